//! The command: parse, call, render; one file per subcommand and no logic of its own.

mod commands;
mod console;
mod interrupt;
mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{lab as lab_command, lab_self_test, probe, prove};

/// See, change and prove how a VM's interrupts and I/O reach it.
#[derive(Debug, Parser)]
#[command(name = "exitless", version, max_term_width = 100)]
struct Arguments {
    /// Say more on standard error; twice for everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what interrupt virtualization is worth: both arms, on this host or in a laboratory.
    ///
    /// Exit status: 0 when both arms were measured; 1 when this host has only one of them; 2 for a wrong command line;
    /// 3 when the exits that were counted contradict an arm; 125 when nothing could be measured; 130 when interrupted.
    Prove(prove::Arguments),
    /// Measure interrupts and exits with a micro VM on this machine's /dev/kvm.
    ///
    /// Exit status: 0 when every measure gave samples; 1 when some failed; 2 for a wrong command line; 125 when none
    /// could be taken.
    Probe(probe::Arguments),
    /// A real KVM host in an emulator, for all who lack the hardware.
    #[command(subcommand)]
    Lab(lab_command::Command),
    #[command(name = lab::SELF_TEST, hide = true)]
    LabSelfTest(lab_self_test::Arguments),
}

fn main() -> ExitCode {
    if lab::agent::is_agent() {
        lab::agent::run();
    }
    let arguments = Arguments::parse();
    console::log_to_standard_error(arguments.verbose);
    let outcome = match arguments.command {
        Command::Prove(arguments) => prove::run(&arguments),
        Command::Probe(arguments) => probe::run(&arguments),
        Command::Lab(command) => lab_command::run(command),
        Command::LabSelfTest(arguments) => lab_self_test::run(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => status::report(&error),
    }
}
