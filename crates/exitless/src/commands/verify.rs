//! `exitless verify`: the current state of interrupt virtualization for each VM, with the evidence.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use conclusions::activation::Status;
use host::vms::Vms;
use verify::{Verify, provoke, verify};

use super::quantity;
use super::watching::{HOST, for_a_time};
use crate::console::{self, StatusLine};
use crate::{interrupt, status};

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only this VM, by its name, UUID, process, VMID of Proxmox VE, ID of libvirt or NAMESPACE/NAME; may be given
    /// more than once.
    #[arg(long = "vm", value_name = "NAME|PID")]
    vms: Vec<String>,
    /// The time to observe: 2s, 500ms; a number alone is in seconds.
    #[arg(long, value_name = "TIME", value_parser = quantity::wait, default_value = "2s")]
    duration: u64,
    /// Also run a short load in a micro VM: it shows the state that a new VM on this host gets.
    #[arg(long)]
    provoke: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let root = Path::new(HOST);
    let found = Vms::discover(root)?;
    let vms = found.select(&arguments.vms)?;
    let stop = interrupt::flag()?;
    let line = StatusLine::new();
    line.step(for_a_time("Watching", Duration::from_nanos(arguments.duration)));
    let wanted = Verify {
        root,
        found: &found,
        vms: &vms,
        chosen: !arguments.vms.is_empty(),
        duration: Duration::from_nanos(arguments.duration),
    };
    let mut seen = verify(&wanted, &stop);
    if arguments.provoke {
        line.step("Running a micro VM");
        seen = seen.with(provoke());
    }
    drop(line);
    let text = || report::verify::terminal(&seen, console::width(), console::colour());
    crate::output::print_table(arguments.json, || &seen, text)?;
    Ok(ExitCode::from(match seen.status {
        Status::Active => 0,
        Status::Inhibited | Status::Partly => status::INHIBITED,
        Status::Unknown => status::CANNOT_TELL,
    }))
}
