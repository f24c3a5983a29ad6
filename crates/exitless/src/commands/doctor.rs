//! `exitless doctor`: examines a host, from its firmware to the threads of its VMs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use doctor::{VmSide, baseline, examine_below};
use host::Inspection;
use host::snapshot::{self, Opened};
use host::vms::{Vm, Vms};
use report::findings::FindingsView;
use verify::{Verification, Verify, verify};

use super::paths;
use super::watching::HOST;
use crate::console::{self, StatusLine};
use crate::status;

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Examine this host instead: a directory to use as /, or an archive of `exitless snapshot`; `-` is
    /// standard input.
    #[arg(long, value_name = "DIR|ARCHIVE", value_parser = paths::input(), default_value = "/")]
    root: PathBuf,
    /// Examine only this running VM, by its name, UUID, process, VMID of Proxmox VE, ID of libvirt or
    /// NAMESPACE/NAME; may be given more than once.
    #[arg(long = "vm", value_name = "NAME|PID")]
    vms: Vec<String>,
    /// Also compare the kernel, its command line, KVM's modules with their parameters, the microcode and the CPU
    /// with a saved state: an archive of `exitless snapshot`, or a directory.
    #[arg(long, value_name = "DIR|ARCHIVE", value_parser = paths::input())]
    baseline: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand. `verbose` is the program's global option: all evidence and sources are shown then.
pub(crate) fn run(arguments: &Arguments, verbose: bool) -> anyhow::Result<ExitCode> {
    let Opened { root, mut warnings, .. } = snapshot::open(&arguments.root)?;
    let saved = arguments.baseline.as_deref().map(snapshot::open).transpose()?;
    for warning in &warnings {
        tracing::warn!("{}: {warning}", arguments.root.display());
    }
    if let Some((saved, path)) = saved.as_ref().zip(arguments.baseline.as_deref()) {
        for warning in &saved.warnings {
            tracing::warn!("{}: {warning}", path.display());
            warnings.push(format!("the baseline: {warning}"));
        }
    }
    let host = Inspection::read(&root)?;
    let found = running(&host);
    let chosen = found.select(&arguments.vms)?;
    let sides = if root.is_live() { sides(&found, &chosen, !arguments.vms.is_empty()) } else { Vec::new() };
    let pids: Vec<i32> = match arguments.vms.is_empty() {
        true => Vec::new(),
        false => chosen.iter().map(|vm| vm.pid).collect(),
    };
    let mut examination = examine_below(&host, &sides, &pids, root.path());
    if let Some(saved) = &saved {
        let then = Inspection::read(&saved.root)?.fingerprint;
        examination.add(baseline::drift(&host.fingerprint, &then));
    }
    let subject = arguments.root.display().to_string();
    let document = || report::examination::json(&subject, &examination, &warnings);
    let text = || {
        let view = FindingsView { width: console::width(), colour: console::colour(), passes: true, verbose };
        let text = report::examination::terminal(&host, &examination, view);
        match verbose {
            true => format!("{text}\nRules and tables of kernels as of {}\n", doctor::RULES_DATE),
            false => text,
        }
    };
    crate::output::print(arguments.json, document, text)?;
    Ok(ExitCode::from(match (warnings.is_empty(), examination.summary.fail) {
        (false, _) => status::DAMAGED,
        (true, 0) => 0,
        (true, _) => status::SOME_FAILED,
    }))
}

/// The VMs of a host, in the form for selection.
fn running(host: &Inspection) -> Vms {
    let running = &host.running;
    let vms = running.vms.get().map_or(&[][..], Vec::as_slice).iter().map(|one| one.vm.clone());
    Vms {
        vms: vms.collect(),
        unreadable: running.unreadable,
        likely: running.likely.clone(),
        held: running.held.clone(),
    }
}

/// KVM's current state of the VMs. Fast, because nothing is observed over time.
fn sides(found: &Vms, vms: &[&Vm], chosen: bool) -> Vec<VmSide> {
    if vms.is_empty() {
        return Vec::new();
    }
    let line = StatusLine::new();
    line.show("Reading KVM's state");
    let wanted = Verify { root: Path::new(HOST), found, vms, chosen, duration: Duration::ZERO };
    let seen = verify(&wanted, &AtomicBool::new(false));
    drop(line);
    sides_of(&seen)
}

/// The words of a verification about each VM.
pub(super) fn sides_of(seen: &Verification) -> Vec<VmSide> {
    seen.vms.iter().map(|vm| side(seen, vm)).collect()
}

fn side(seen: &Verification, vm: &verify::VmVerification) -> VmSide {
    let of_it = seen.missing.iter().filter(|one| one.pid.is_none_or(|pid| pid == vm.pid));
    VmSide {
        pid: vm.pid,
        activation: vm.activation.clone(),
        ipi_virtualization: vm.ipi_virtualization,
        devices: vm.devices.clone(),
        inhibits: vm.state.as_ref().and_then(|state| state.last.inhibits),
        missing: of_it.map(|one| format!("{}: {}", one.what, one.why)).collect(),
    }
}
