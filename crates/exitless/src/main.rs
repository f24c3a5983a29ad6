//! The command: parse, call, render; one file for each subcommand, and no logic of its own.

// They panic where the stream is closed or full. `writeln!` gives an error that is handled; `console::say` goes on.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod background_log;
mod command_line;
mod commands;
mod console;
mod examples;
mod help;
mod interrupt;
mod json;
mod log_lines;
#[cfg(test)]
mod named_commands;
mod output;
mod service_manager;
mod status;
mod tips;
mod version;

use std::io::Write as _;
use std::process::ExitCode;

use ::doctor::enable::Arm;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::commands::{
    advise, collect_script, diff, doctor, enable, experiment as experiment_command,
    exporter as exporter_command, guest, iocm as iocm_command, lab as lab_command, lab_self_test, load,
    pages, predict, probe, profile, prove, record, report, restore, self_test, snapshot, stat, timeline, top,
    trace, tune, verify, vm, vms,
};

/// Find out what a VM's interrupts and I/O cost in VM exits, remove those exits, and measure the gain.
#[derive(Debug, Parser)]
#[command(name = "exitless", version, long_version = version::long(), max_term_width = 100)]
struct Arguments {
    /// Log more to standard error; twice for everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check whether this host has APICv or AVIC, has it enabled, and uses it for each running VM; with a fix
    /// for what fails.
    ///
    /// With --verbose, all evidence of each check is shown, with its source.
    ///
    /// Exit status: 0 when nothing failed; 1 when something did, or differs from --baseline; 2 for a wrong
    /// command line, or a VM, directory or archive that does not exist; 4 when an archive is damaged and its
    /// undamaged part was used; 125 when nothing could be read.
    Doctor(doctor::Arguments),
    /// Show which commands work for this user on this host, what the others lack, and the smallest set of capabilities
    /// that each needs.
    ///
    /// It takes seconds, and changes nothing. With --verbose, all parts of the host and the capabilities of each command
    /// are shown.
    ///
    /// Exit status: 0 when each selected command works in full; 1 when one is limited or fails; 2 for a wrong command
    /// line or an unknown command; 125 when the tool itself failed.
    SelfTest(self_test::Arguments),
    /// Measure what interrupt virtualization gains: a micro VM with it on and off, on this host or in a lab.
    ///
    /// Exit status: 0 when both arms were measured; 1 when this host has only one of them; 2 for a wrong command line;
    /// 3 when the counted exits contradict an arm; 125 when nothing could be measured; 130 when interrupted.
    Prove(prove::Arguments),
    /// Measure the cost of interrupts and exits with a micro VM on this machine's /dev/kvm.
    ///
    /// Exit status: 0 when every measure gave samples; 1 when some failed; 2 for a wrong command line; 125 when none
    /// could be taken.
    Probe(probe::Arguments),
    /// Count the VM exits of this host's VMs live, in the kernel, with their handling times.
    ///
    /// Exit status: 0, or that of the command; 1 when the VMs selected by --vm ended meanwhile, or, without eBPF, when
    /// a VM's counters could not be read; 2 for a wrong command line or a VM that does not exist; 125 when exits cannot
    /// be counted here.
    Stat(stat::Arguments),
    /// Serve exits, the state of interrupt virtualization and doctor's findings to Prometheus, as OpenMetrics.
    ///
    /// Exit status: 0, however it is ended; 2 for a wrong command line, a VM that does not exist, or a host of Xen; 125
    /// when exits cannot be counted here, or the address cannot be had.
    Exporter(exporter_command::Arguments),
    /// Record every VM exit of this host's VMs, or only their totals, for `report`, `diff` and `timeline`.
    ///
    /// Exit status: 0, or that of the command; 1 when the recording could not be written to its end, or the VMs
    /// of --vm ended before it; 2 for a wrong command line or a VM that does not exist; 125 when exits cannot be
    /// recorded here.
    Record(record::Arguments),
    /// Watch the VM exits of this host's VMs on a live page: by VM, by reason, by vCPU, down to ports and registers.
    ///
    /// Exit status: 0, however it is ended; 2 for a wrong command line, a VM that does not exist, or without
    /// a terminal; 125 when exits cannot be counted here.
    Top(top::Arguments),
    /// Verify whether interrupt virtualization (APICv, AVIC, x2AVIC) is active for each VM now, with the
    /// evidence.
    ///
    /// Exit status: 0 when it is active for all VMs; 1 when it is inhibited for some, or active for only some of
    /// their vCPUs or part of the time; 2 when the state is unknown, or for a wrong command line; 125 when the
    /// tool itself failed.
    Verify(verify::Arguments),
    /// Show the VM exits of recordings by reason, VM, vCPU, port or register, with their handling times.
    ///
    /// Exit status: 0 when everything was read; 2 for a wrong command line or a file that does not exist; 4 when a
    /// recording is damaged and its undamaged part was used; 125 when nothing could be read.
    Report(report::Arguments),
    /// Predict which exits of recordings, or of this host, interrupt virtualization would remove, and which
    /// would remain.
    ///
    /// Exit status: as for `report`; 2 also when --for names the technology of another vendor than the
    /// recording's.
    Predict(predict::Arguments),
    /// Show which devices cause the exits of VMs, what they cost, and what to change in QEMU, libvirt or the
    /// guest.
    ///
    /// Exit status: as for `report`; 1 with --idle when a VM has more exits than its budget.
    Advise(advise::Arguments),
    /// Sample what the host does while it handles exits: functions of the kernel and of device models by exit
    /// reason, as tables and as a flame graph.
    ///
    /// Exit status: 0, also when Ctrl-C ended it early, because the samples until then are shown; 2 for a
    /// wrong command line, or a VM or file that does not exist; 4 when a file is damaged and its undamaged
    /// part was used; 125 when nothing can be sampled here or an output cannot be written.
    Profile(profile::Arguments),
    /// Draw the VM exits of recordings over time.
    ///
    /// Exit status: as for `report`.
    Timeline(timeline::Arguments),
    /// Compare two recordings, or two sets of them: what changed, by how much, and how certain that is.
    ///
    /// Exit status: as for `report`; 2 also when the recordings are of different kinds of machines.
    Diff(diff::Arguments),
    /// List the VMs that run on this host, with their vCPUs, threads, devices and KVM counters.
    ///
    /// Exit status: 0 when everything was found; 1 when a VM's counters could not be read, or, without --vm, a process
    /// that looks like a VM cannot be examined, or one that may be a VM blocks it; 2 for a wrong command line, or when
    /// no VM has the name; 125 when nothing could be read.
    Vms(vms::Arguments),
    /// Check and fix definitions of VMs: libvirt's XML, QEMU's arguments and Xen's xl.cfg.
    #[command(subcommand)]
    Vm(vm::Command),
    /// Enable interrupt virtualization on this host: show the steps as diffs and commands, or apply them.
    ///
    /// Exit status: 0 when everything requested is in force, was applied, or can be applied; 1 when it is
    /// refused, or a step is blocked or failed; 2 for a wrong command line; 125 when the host or the journal cannot be
    /// read or written.
    Enable(enable::Arguments),
    /// Disable interrupt virtualization on this host, for the other arm of a test.
    ///
    /// Exit status: as for `enable`.
    Disable(enable::Arguments),
    /// Undo the changes that exitless made on this host, the newest first, also after a crash.
    ///
    /// Exit status: 0 when nothing is left to undo; 1 when something is left: others changed it since, its
    /// process still runs, it needs a script to undo it, or it failed; also when a line of the journal is
    /// damaged; 2 for a wrong command line; 125 when the journal cannot be read or written.
    Restore(restore::Arguments),
    /// Archive everything needed to examine this host elsewhere, without secrets.
    ///
    /// Exit status: 0; 1 when this user may not read some of them, and the archive has the rest; 2 for a
    /// wrong command line; 4 when --root is a damaged archive, whose undamaged part was used; 125 when
    /// nothing could be read or written.
    Snapshot(snapshot::Arguments),
    /// Print a shell script that collects what `doctor --root` reads, where exitless cannot be installed.
    ///
    /// The script writes a tar archive to standard output: `sh collect.sh > host.tar`. It changes nothing on the host and
    /// lists on standard error what it could not read. Passwords in command lines of VMs and in libvirt's definitions stay
    /// in the archive; `exitless snapshot --root host.tar clean.tar.zst` removes them.
    ///
    /// Exit status: 0; 2 for a wrong command line. That of the script: 0; 1 when this user may not read some files; 2 when
    /// standard output is a terminal; 125 when nothing could be written.
    CollectScript,
    /// Show rare events of interrupt virtualization on this host live: inhibit changes and others.
    ///
    /// Exit status: 0 when it was ended by Ctrl-C, a signal, --count or --duration; 2 for a wrong command line or, with
    /// --longer-than, a VM that does not run; 125 when nothing can be traced.
    Trace(trace::Arguments),
    /// Run studies: what settings do to workloads in VMs, with an interval for every difference.
    #[command(subcommand)]
    Experiment(experiment_command::Command),
    /// Try changes to a plan's guests one by one, and keep those that a study finds better.
    ///
    /// Each change is compared with the best so far. It starts its own guests, or uses those that the plan
    /// names; other VMs are not touched. Completed runs are kept; the same command continues.
    ///
    /// Exit status: 0 when every change was tried, whether kept or not; 1 when runs of some step failed for
    /// good, or a change of the host could not be undone; 2 for a wrong command line or plan, or a folder
    /// that holds something else; 125 when the tuning could not continue; 130 when interrupted.
    Tune(tune::Arguments),
    /// Serve virtio devices of many VMs from shared I/O workers.
    #[command(subcommand)]
    Iocm(iocm_command::Command),
    /// Build and try the image from which guests of studies start.
    #[command(subcommand)]
    Guest(guest::Command),
    /// Send requests or publish messages at a fixed rate, and measure the attained rate and the latency.
    #[command(subcommand)]
    Load(load::Command),
    /// Run commands on an emulated KVM or Xen host, for machines without the hardware.
    #[command(subcommand)]
    Lab(lab_command::Command),
    #[command(name = lab::SELF_TEST, hide = true)]
    LabSelfTest(lab_self_test::Arguments),
    /// Write the manual pages and completions, for packages.
    #[command(hide = true)]
    Pages(pages::Arguments),
}

/// Adds the output's name to an error of a full disk: only writes to standard output lack a name.
fn named(error: anyhow::Error) -> anyhow::Error {
    let io = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    let json = error.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
    let is_full = io.or(json) == Some(std::io::ErrorKind::StorageFull) && error.chain().len() == 1;
    if is_full { anyhow::anyhow!("Could not write to standard output: {error}") } else { error }
}

/// Prints help, the version, or an error of the command line.
fn told(error: &clap::Error) -> ExitCode {
    match error.print().and_then(|()| std::io::stdout().flush()) {
        Err(failed) if !error.use_stderr() => status::report(&named(failed.into())),
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(status::USAGE)),
    }
}

fn main() -> ExitCode {
    if lab::agent::is_agent() {
        lab::agent::run();
    }
    if ::guest::is_agent() {
        ::guest::run();
    }
    let line = iocm_command::device::by_name(std::env::args_os().collect());
    let matches = help::with_examples(Arguments::command()).try_get_matches_from(&line);
    let arguments = match matches.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(mut error) => {
            tips::add(&mut error, &Arguments::command(), &line);
            return told(&error);
        }
    };
    console::log_to_standard_error(arguments.verbose);
    let outcome = match arguments.command {
        Command::Doctor(own) => doctor::run(&own, arguments.verbose > 0),
        Command::SelfTest(own) => self_test::run(&own, arguments.verbose > 0),
        Command::Prove(arguments) => prove::run(&arguments),
        Command::Probe(arguments) => probe::run(&arguments),
        Command::Stat(arguments) => stat::run(&arguments),
        Command::Exporter(arguments) => exporter_command::run(&arguments),
        Command::Record(arguments) => record::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Predict(arguments) => predict::run(&arguments),
        Command::Advise(arguments) => advise::run(&arguments),
        Command::Profile(arguments) => profile::run(&arguments),
        Command::Timeline(arguments) => timeline::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Vms(arguments) => vms::run(&arguments),
        Command::Vm(command) => vm::run(&command, arguments.verbose > 0),
        Command::Enable(arguments) => enable::run(&arguments, Arm::On),
        Command::Disable(arguments) => enable::run(&arguments, Arm::Off),
        Command::Restore(arguments) => restore::run(&arguments),
        Command::Snapshot(arguments) => snapshot::run(&arguments),
        Command::CollectScript => collect_script::run(),
        Command::Trace(arguments) => trace::run(&arguments),
        Command::Experiment(command) => experiment_command::run(&command),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::Iocm(command) => iocm_command::run(command),
        Command::Guest(command) => guest::run(command),
        Command::Load(command) => load::run(command),
        Command::Lab(command) => lab_command::run(command),
        Command::LabSelfTest(arguments) => lab_self_test::run(&arguments),
        Command::Pages(arguments) => pages::run(&arguments, Arguments::command()),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => status::report(&named(error)),
    }
}
