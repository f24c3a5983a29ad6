//! Advice as a document.

use advice::{Advice, Audit, Cure, DeviceExits, Effect, Of, Suspect, VmAdvice};
use conclusions::prediction::Part;
use exits::{Access, ExitReason, Losses};
use host::pci::Bar;
use host::vms::Spent;
use serde::Serialize;
use traces::Recordings;

use super::words::{name, per_second, percent};
use crate::json::Document;
use crate::recordings::json::Head;

/// The output of `exitless advise --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fields<'a> {
    #[serde(flatten)]
    head: Head,
    observed_ns: u64,
    losses: Losses,
    vms: Vec<VmDocument<'a>>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct VmDocument<'a> {
    vm: Option<u32>,
    name: Option<&'a str>,
    has_definition: bool,
    vcpus: usize,
    exits: u64,
    exits_per_second: Option<f64>,
    time_ns: u64,
    sleep_ns: u64,
    host_cpu_percent: Option<f64>,
    at_most_saved_ns: u64,
    at_most_saved_percent: Option<f64>,
    rows: Vec<RowDocument<'a>>,
    suspects: &'a [&'a Suspect],
    /// Only with `--idle`.
    idle: Option<IdleDocument>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct RowDocument<'a> {
    /// The device's ID for programs; `None` for an unknown device.
    device: Option<&'a str>,
    name: String,
    what: Option<&'a str>,
    why: Option<&'a str>,
    /// True if it was identified by the VM's definition, not by the address alone.
    by_definition: bool,
    wakes: Option<&'a str>,
    exits: u64,
    exits_per_second: Option<f64>,
    time_ns: u64,
    host_cpu_percent: Option<f64>,
    sleeps: bool,
    effect: Option<Effect>,
    at_most_saved_ns: u64,
    at_most_saved_percent: Option<f64>,
    parts: Vec<PartDocument>,
    /// The PCI devices that own the addresses, if QEMU reported them.
    bars: &'a [Bar],
    cures: Vec<CureDocument<'a>>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct PartDocument {
    reason: ExitReason,
    access: Option<Access>,
    exits: u64,
    time_ns: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct CureDocument<'a> {
    #[serde(flatten)]
    cure: &'a Cure,
    there: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct IdleDocument {
    budget_exits_per_second: f64,
    exits_per_second: f64,
    sleeps_per_second: f64,
    within: bool,
    /// The host CPU time of the process's threads during the audit.
    threads: Vec<ThreadsDocument>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct ThreadsDocument {
    #[serde(flatten)]
    spent: Spent,
    host_cpu_percent: Option<f64>,
    wake_ups_per_second: Option<f64>,
}

/// The advice with its recordings. With `--idle` it has an audit for each VM.
#[must_use]
pub fn json<'a>(
    recordings: &Recordings,
    advice: &'a Advice<'a>,
    audits: Option<&[Audit<'a>]>,
) -> impl Serialize {
    let observed_ns = advice.observed_ns;
    let threads = |spent: &Spent| ThreadsDocument {
        spent: spent.clone(),
        host_cpu_percent: percent(spent.host_ns, observed_ns),
        wake_ups_per_second: per_second(spent.wake_ups, observed_ns),
    };
    let audit_of = |vm: &VmAdvice<'_>| {
        let found = audits?.iter().find(|audit| audit.vm == vm.vm)?;
        Some(IdleDocument {
            budget_exits_per_second: found.budget,
            exits_per_second: found.exits_per_second,
            sleeps_per_second: found.sleeps_per_second,
            within: found.is_within(),
            threads: found.threads.iter().map(threads).collect(),
        })
    };
    let vm = |vm: &'a VmAdvice<'a>| VmDocument {
        vm: vm.vm,
        name: vm.name.as_deref(),
        has_definition: vm.has_definition,
        vcpus: vm.vcpus,
        exits: vm.exits,
        exits_per_second: per_second(vm.exits, observed_ns),
        time_ns: vm.time_ns,
        sleep_ns: vm.sleep_ns,
        host_cpu_percent: percent(vm.time_ns, observed_ns).filter(|_| vm.is_timed()),
        at_most_saved_ns: vm.at_most_ns(),
        at_most_saved_percent: percent(vm.at_most_ns(), observed_ns).filter(|_| vm.is_timed()),
        rows: vm.rows.iter().map(|row| row_document(vm, row, observed_ns)).collect(),
        suspects: &vm.suspects,
        idle: audit_of(vm),
    };
    Document::new(Fields {
        head: Head::new(recordings),
        observed_ns,
        losses: recordings.profile.losses,
        vms: advice.vms.iter().map(vm).collect(),
    })
}

fn row_document<'a>(vm: &VmAdvice<'_>, row: &'a DeviceExits<'a>, observed_ns: u64) -> RowDocument<'a> {
    let share = |time_ns: u64| percent(time_ns, observed_ns).filter(|_| vm.is_timed());
    let device = match row.of {
        Of::Device(device) => Some(device),
        Of::UnknownAccess(_) | Of::UnknownReason(_) => None,
    };
    let part = |&(reason, part, exits, time_ns): &(ExitReason, Part, u64, u64)| PartDocument {
        reason,
        access: match part {
            Part::Access(access) => Some(access),
            Part::Nested => Some(Access::Nested { reason, to_l1: false }),
            Part::Whole | Part::Rest => None,
        },
        exits,
        time_ns,
    };
    RowDocument {
        device: device.map(|device| device.id.as_str()),
        name: name(row.of),
        what: device.map(|device| device.what.as_str()),
        why: device.map(|device| device.why.as_str()),
        by_definition: row.bars.is_empty() && device.is_some_and(advice::Device::is_by_definition),
        wakes: device.and_then(|device| device.wakes.as_deref()),
        exits: row.exits,
        exits_per_second: per_second(row.exits, observed_ns),
        time_ns: row.time_ns,
        host_cpu_percent: share(row.time_ns).filter(|_| !row.sleeps()),
        sleeps: row.sleeps(),
        effect: row.best(),
        at_most_saved_ns: row.at_most_ns(),
        at_most_saved_percent: share(row.at_most_ns()),
        parts: row.parts.iter().map(part).collect(),
        bars: &row.bars,
        cures: row.cures.iter().map(|cured| CureDocument { cure: cured.cure, there: cured.there }).collect(),
    }
}
