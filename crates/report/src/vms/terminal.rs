//! The tables of `exitless vms`.

use host::vms::{AS_ROOT, AssignedDevice, Vm, Vmm};
use live::statistics::{Missing, VmStatistics};
use std::time::{Duration, UNIX_EPOCH};

use super::running::{Counted, Running};
use crate::format::{NONE, count, counted, per_second, whole_time};
use crate::terminal::columns::{Column, drawn};
use crate::terminal::labels::listed;
use crate::terminal::{NARROWEST, wrapped};
use crate::text::printable;

/// The VMs, each with its counters if they were read, and notes on those that could not be examined.
///
/// No line is wider than `width` columns if `width` is at least 80; less important columns are left out if needed. Without
/// `colour` it has no escape sequences.
#[must_use]
pub fn terminal(running: &Running<'_>, width: usize, colour: bool) -> String {
    let width = width.max(NARROWEST);
    let mut text = if running.vms.is_empty() {
        "No VM was found.\n".to_owned()
    } else {
        drawn(columns(running.vms), width, false, colour)
    };
    for one in running.counted.unwrap_or_default() {
        text += &format!("\n{}", counters(one, width, colour));
    }
    text + &listed("Notes", notes(running), width)
}

fn columns(vms: &[&Vm]) -> Vec<Column> {
    let cells = |of: &dyn Fn(&Vm) -> String| vms.iter().map(|vm| of(vm)).collect::<Vec<_>>();
    let number = |number: usize| if number == 0 { NONE.to_owned() } else { count(number as u64) };
    let mut columns = vec![
        Column::names("VM", cells(&|vm| printable(&vm.name))),
        Column::figures("process", cells(&|vm| vm.pid.to_string())),
        Column::names("VMM", cells(&vmm)),
        Column::figures("VMs", cells(&|vm| number(vm.vm_fds.len()))).may_go(2),
        Column::figures("vCPUs", cells(&|vm| number(vm.vcpus.len()))),
        Column::names("their threads", cells(&|vm| ranges(vm.vcpus.iter().filter_map(|one| one.thread)))),
        Column::figures("vhost", cells(&|vm| number(vm.vhost.len()))).may_go(4),
        Column::figures("I/O", cells(&|vm| number(vm.iothreads.len()))).may_go(5),
        Column::figures("VFIO", cells(&|vm| number(vm.devices.len().max(vm.vfio.len())))).may_go(3),
        Column::whole_names("started", cells(&started)).may_go(1),
    ];
    // Omit the column if no VM was made by a management program.
    if vms.iter().any(|vm| !vm.management.manager.is_vmm()) {
        columns.insert(3, Column::names("made by", cells(&made_by)).may_go(6));
    }
    columns
}

fn vmm(vm: &Vm) -> String {
    match vm.vmm {
        Vmm::Qemu => "QEMU".to_owned(),
        Vmm::CloudHypervisor => "cloud-hypervisor".to_owned(),
        Vmm::Crosvm => "crosvm".to_owned(),
        Vmm::Firecracker => "firecracker".to_owned(),
        _ => printable(&vm.command),
    }
}

/// The program that made the VM; a dash if it is the VMM itself.
fn made_by(vm: &Vm) -> String {
    let management = &vm.management;
    if management.manager.is_vmm() {
        return NONE.to_owned();
    }
    let number = match (&management.namespaced, management.vmid, management.libvirt_id) {
        (Some((space, name)), ..) => format!(" {space}/{name}"),
        (None, Some(vmid), _) => format!(" {vmid}"),
        (None, None, Some(id)) => format!(" {id}"),
        _ => String::new(),
    };
    format!("{}{number}", management.manager.name())
}

fn started(vm: &Vm) -> String {
    let time = vm.started.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
    // The formatter only accepts dates up to the year 9999.
    let time = time.filter(|_| vm.started.is_some_and(|seconds| seconds < 253_402_300_800));
    time.map_or_else(|| NONE.to_owned(), |time| humantime::format_rfc3339_seconds(time).to_string())
}

/// Ranges of numbers: "138-140, 144"; a dash for none.
fn ranges(numbers: impl Iterator<Item = i32>) -> String {
    let mut numbers: Vec<i32> = numbers.collect();
    numbers.sort_unstable();
    let mut runs: Vec<(i32, i32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if number.checked_sub(1) == Some(*last) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let shown: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    if shown.is_empty() { NONE.to_owned() } else { shown.join(", ") }
}

fn counters(one: &Counted, width: usize, colour: bool) -> String {
    let statistics = &one.statistics;
    let vm = format!("{} ({})", statistics.name, statistics.pid);
    let Some(origin) = statistics.origin else {
        return wrapped(&format!("{vm}: no counters"), width, "", "");
    };
    let mut text = wrapped(&format!("{vm}: KVM's counters by {origin}"), width, "", "");
    text.push('\n');
    let mut names: Vec<&String> =
        statistics.total.iter().filter(|(_, value)| **value > 0).map(|(name, _)| name).collect();
    names.sort_by_key(|name| (rank(name), name.as_str()));
    let value = |name: &str, value: u64| match statistics.units.get(name).map(String::as_str) {
        None => count(value),
        Some("ns") => whole_time(value),
        Some(unit) => format!("{} {}", count(value), printable(unit)),
    };
    let mut columns = vec![
        Column::names("counter", names.iter().map(|name| printable(name)).collect()),
        Column::figures("in all", names.iter().map(|name| value(name, statistics.total[*name])).collect()),
    ];
    if let Some(change) = &one.change {
        let rate = |name: &&String| {
            let Some(rate) = change.per_second(name) else { return NONE.to_owned() };
            if statistics.units.get(*name).is_some_and(|unit| unit == "ns") {
                return format!("{}/s", whole_time(rate.round() as u64));
            }
            per_second(rate)
        };
        columns.push(Column::figures("rate", names.iter().map(rate).collect()));
    }
    text += &drawn(columns, width, false, colour);
    text.push('\n');
    text + &wrapped(&by_vcpu(statistics, statistics.total.len() - names.len()), width, "", "")
}

/// The order of counters: first all exits, then exits by kind, then the others.
fn rank(name: &str) -> u8 {
    match name {
        "exits" => 0,
        name if name.ends_with("_exits") => 1,
        _ => 2,
    }
}

fn by_vcpu(statistics: &VmStatistics, zero: usize) -> String {
    let exits = |(number, counters): (&u32, &live::statistics::Counters)| {
        Some(format!("{number}: {}", count(*counters.get("exits")?)))
    };
    let exits: Vec<String> = statistics.vcpus.iter().filter_map(exits).collect();
    let mut text = match zero {
        0 => String::new(),
        1 => "1 other counter is 0. ".to_owned(),
        many => format!("{many} other counters are 0. "),
    };
    if !exits.is_empty() {
        text += &format!("Exits by vCPU: {}. ", exits.join(", "));
    }
    let missing: Vec<&str> = statistics.missing.iter().map(|one| said(*one)).collect();
    text + &format!("Not to be had from here: {}.", missing.join(", "))
}

fn said(missing: Missing) -> &'static str {
    match missing {
        Missing::Reasons => "other exit reasons",
        Missing::HandlingTimes => "handling times",
        Missing::Vcpus => "which vCPU",
        _ => "more",
    }
}

fn notes(running: &Running<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    for vm in running.vms.iter().filter(|vm| !vm.devices.is_empty()) {
        let devices: Vec<&str> = vm
            .devices
            .iter()
            .map(|device| match device {
                AssignedDevice::Pci(name) | AssignedDevice::Sysfs(name) => name.as_str(),
            })
            .collect();
        notes.push(format!("{} ({}) has {} for itself.", vm.name, vm.pid, devices.join(", ")));
    }
    for one in running.counted.unwrap_or_default() {
        let statistics = &one.statistics;
        for failure in &statistics.failures {
            notes.push(format!(
                "{} ({}), {}: {}.",
                statistics.name, statistics.pid, failure.origin, failure.cause
            ));
        }
        if let Some(change) = one.change.as_ref().filter(|change| !change.reset.is_empty()) {
            let reset = change.reset.join(", ");
            notes.push(format!(
                "{} ({}): {reset} went back, so there is no rate: somebody reset it, or a vCPU was unplugged.",
                statistics.name, statistics.pid
            ));
        }
    }
    let found = running.found;
    if found.unreadable > 0 {
        let (processes, vms) = if found.unreadable == 1 { ("process", "a VM") } else { ("processes", "VMs") };
        let number = count(found.unreadable.into());
        notes.push(format!("{number} {processes} cannot be inspected, and may be {vms}; {AS_ROOT}."));
    }
    for one in &found.likely {
        let threads = counted(one.vcpu_threads.into(), "thread");
        notes.push(format!(
            "Process {} ({}) looks like a VM: {threads} named as vCPUs.",
            one.pid, one.command
        ));
    }
    for one in &found.held {
        notes.push(format!(
            "Process {} ({}) may be a VM: it was not fully inspected, because it blocks inspection.",
            one.pid, one.command
        ));
    }
    notes
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
