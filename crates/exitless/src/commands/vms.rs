//! `exitless vms`: the VMs of this host.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use host::vms::{Vm, Vms};
use live::statistics::{StatisticsSource, VmStatistics};
use report::vms::{Counted, Running};

use super::quantity;
use crate::{console, status};

/// Arguments of `vms`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only this VM, by its name, UUID, process, VMID of Proxmox VE, ID of libvirt or NAMESPACE/NAME; may be given
    /// more than once.
    #[arg(long = "vm", value_name = "NAME|PID")]
    vms: Vec<String>,
    /// Also read KVM's counters of each VM, through QEMU's monitor or from debugfs.
    #[arg(long)]
    statistics: bool,
    /// Read them twice, this time apart, and also show the rates: 1s, 500ms; a number alone is in seconds.
    #[arg(long, value_name = "TIME", value_parser = quantity::wait, requires = "statistics")]
    interval: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let root = Path::new("/");
    let found = Vms::discover(root)?;
    let vms = found.select(&arguments.vms)?;
    let interval = arguments.interval.map(Duration::from_nanos);
    let counted = arguments.statistics.then(|| count(root, &vms, interval));
    let running = Running { found: &found, vms: &vms, counted: counted.as_deref() };
    let text = || report::vms::terminal(&running, console::width(), console::colour());
    crate::output::print_table(arguments.json, || report::vms::json(&running), text)?;
    Ok(ExitCode::from(exit_code(&running, &arguments.vms)))
}

fn count(root: &Path, vms: &[&Vm], interval: Option<Duration>) -> Vec<Counted> {
    let mut source = source(root, vms);
    let first = source.read();
    let Some(interval) = interval else {
        return first.into_iter().map(|statistics| Counted { statistics, change: None }).collect();
    };
    thread::sleep(interval);
    since(source.read(), &first)
}

/// The source of these VMs' statistics.
pub(crate) fn source(root: &Path, vms: &[&Vm]) -> StatisticsSource {
    let vms: Vec<Vm> = vms.iter().copied().cloned().collect();
    StatisticsSource::new(root, &vms)
}

/// The changes since an earlier reading, for the VMs in both.
pub(crate) fn since(now: Vec<VmStatistics>, before: &[VmStatistics]) -> Vec<Counted> {
    let change = |statistics: &VmStatistics| before.iter().find_map(|before| statistics.since(before));
    now.into_iter().map(|statistics| Counted { change: change(&statistics), statistics }).collect()
}

/// The exit status; `wanted` are the VMs that were chosen. Processes that may be others do not concern them.
pub(crate) fn exit_code(running: &Running<'_>, wanted: &[String]) -> u8 {
    let lacking =
        running.counted.is_some_and(|counted| counted.iter().any(|one| one.statistics.origin.is_none()));
    let hides = |found: &Vms| !found.likely.is_empty() || found.hidden().next().is_some();
    if lacking || wanted.is_empty() && hides(running.found) { status::SOME_FAILED } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::vms::HeldProcess;

    #[test]
    fn a_process_that_may_be_a_vm_and_blocks_inspection_makes_the_list_partial() {
        let status = |vms: Vec<Vm>, wanted: &[String]| {
            let held = vec![HeldProcess { pid: 7, command: "qemu".to_owned() }];
            let found = Vms { vms, held, ..Vms::default() };
            exit_code(&Running { found: &found, vms: &[], counted: None }, wanted)
        };
        assert_eq!(status(Vec::new(), &[]), status::SOME_FAILED);
        assert_eq!(status(Vec::new(), &["web".to_owned()]), 0);
        assert_eq!(status(vec![Vm { pid: 7, ..Vm::default() }], &[]), 0);
    }
}
