//! Facts of recordings in words, the same in every medium.

use std::collections::BTreeSet;

use exits::{Losses, Nested, Profile, Vcpu, Whose};
use traces::{Options, Recordings};

use crate::format::{NONE, count, counted, whole_time};
use crate::text::printable;

/// Linux's default host name.
pub(crate) const NAMELESS: &str = "(none)";

/// The selected part, if it is not everything.
pub(crate) fn part(recordings: &Recordings) -> Option<String> {
    let selection = &recordings.selection;
    let mut said: Vec<String> = Vec::new();
    if !selection.vms.is_empty() {
        said.push(format!("VM {}", selection.vms.join(", ")));
    }
    if !selection.vcpus.is_empty() {
        let numbers: Vec<_> = selection.vcpus.iter().map(u32::to_string).collect();
        said.push(format!("vCPU {}", numbers.join(", ")));
    }
    said.extend(window(recordings.options));
    (!said.is_empty()).then(|| said.join("; "))
}

/// The selected time, if it is not all.
pub(crate) fn window(options: Options) -> Option<String> {
    match (options.from_ns, options.to_ns) {
        (None, None) => None,
        (Some(from), None) => Some(format!("from {} on", whole_time(from))),
        (None, Some(to)) => Some(format!("the first {}", whole_time(to))),
        (Some(from), Some(to)) => Some(format!("from {} to {}", whole_time(from), whole_time(to))),
    }
}

/// The selected time and the length of the recordings, if none of them has anything of that time: "nothing from 4.50 s on:
/// it is 4.11 s long".
#[must_use]
pub fn nothing_in_window(recordings: &Recordings) -> Option<String> {
    let window = window(recordings.options)?;
    let is_there = recordings.files.iter().any(|file| file.observed.is_some());
    let length_ns = recordings.profile.span.map_or(0, |span| span.length_ns());
    (!is_there).then(|| format!("nothing {window}: it is {} long", whole_time(length_ns)))
}

/// Notes on the recordings in addition to their head, a sentence or two each.
pub(crate) fn notes(recordings: &Recordings) -> Vec<String> {
    let mut notes = warnings(recordings);
    notes.extend(losses(&recordings.profile));
    notes.extend(nested(&recordings.profile));
    notes
}

/// The exits of nested guests, if there are any.
fn nested(profile: &Profile) -> Option<String> {
    let Nested { exits, to_l1 } = Nested::of(profile);
    (exits > 0).then(|| {
        format!(
            "{} of nested guests (L2), counted by their reasons like the others; {} of them went on to the guest's own \
             hypervisor (L1), and the host handled the rest. --by nested lists them.",
            counted(exits, "exit"),
            count(to_l1)
        )
    })
}

pub(crate) fn warnings(recordings: &Recordings) -> Vec<String> {
    let mut warnings: Vec<String> = Vec::new();
    for file in &recordings.files {
        warnings.extend(file.warnings.iter().map(|warning| match recordings.files.len() {
            1 => warning.clone(),
            _ => format!("{}: {warning}", file.name),
        }));
    }
    let hosts = recordings.different_hosts();
    if !hosts.is_empty() {
        warnings.push(format!(
            "The recordings are of different hosts ({}): VMs of the same number are counted as one.",
            hosts.join(", ")
        ));
    }
    if recordings.have_several_clocks() {
        warnings.push(
            "The recordings are not known to be of one clock, which begins anew with each boot of a host: their times \
             are added up, and they have no common timeline. Draw each by itself."
                .to_owned(),
        );
    }
    if recordings.overlap_without_a_boot() {
        warnings.push(
            "Recordings overlap, and their common time counts once. If the host was restarted between them, its clock \
             began anew, and rates are too high: then read each by itself."
                .to_owned(),
        );
    }
    warnings
}

fn losses(profile: &Profile) -> Vec<String> {
    let Losses {
        exits_without_entry,
        exits_at_the_end,
        entries_without_exit,
        pairs_across_loss,
        pairs_back_in_time,
        out_of_order,
        undecoded,
        ..
    } = profile.losses;
    let vcpus = profile.vcpus().len() as u64;
    // Each vCPU may have one: the first entry after the start of the recording.
    let entries = if entries_without_exit > vcpus { entries_without_exit } else { 0 };
    let without_time = [
        (
            pairs_across_loss,
            "events were lost before the entry; perf gives such exits times that may not be theirs",
        ),
        (exits_without_entry, "the next event of the vCPU is another exit"),
        (pairs_back_in_time, "the entry lies before the exit: the clocks of the processors differ"),
        (exits_at_the_end, "the recording or the vCPU ends before the entry"),
    ];
    let mut notes: Vec<String> = without_time
        .into_iter()
        .filter(|&(number, _)| number > 0)
        .map(|(number, why)| format!("{} without a time: {why}.", counted(number, "exit")))
        .collect();
    if entries > 0 {
        notes.push(match entries {
            1 => "1 entry without an exit before it.".to_owned(),
            _ => format!("{} entries without an exit before them.", count(entries)),
        });
    }
    if out_of_order > 0 {
        notes.push(format!("{} too late to be put in order.", counted(out_of_order, "event")));
    }
    if undecoded > 0 {
        notes.push(format!("{} not counted: the fields could not be read.", counted(undecoded, "event")));
    }
    notes
}

/// The exits that are counted without their VM, if there are any, with the consequence.
pub fn without_vcpu(losses: &Losses) -> Option<String> {
    let exits = losses.exits_without_vcpu;
    (exits > 0).then(|| not_attributed(exits))
}

/// This number of exits that are counted without their VM, with the consequence.
pub(crate) fn not_attributed(exits: u64) -> String {
    format!(
        "{} could not be attributed to a VM, because the kernel's maps were full: figures of single VMs are too low, \
         their p99 and max included. Watch fewer VMs at once (--vm)",
        counted(exits, "exit")
    )
}

/// The share of all events that the recorders lost, in percent; `None` without events. Sums of counts from files may
/// exceed 64 bits.
pub(crate) fn lost_percent<'a>(profiles: impl IntoIterator<Item = &'a Profile>) -> Option<f64> {
    let (lost, seen) = profiles.into_iter().fold((0_u64, 0_u64), |(lost, seen), profile| {
        let lost = lost.saturating_add(profile.losses.lost_events);
        (lost, profile.events.values().fold(seen, |sum, &count| sum.saturating_add(count)))
    });
    let (lost, seen) = (lost as f64, seen as f64);
    (lost + seen > 0.0).then(|| lost / (lost + seen) * 100.0)
}

/// The number of different vCPUs of a row of a timeline, at least 1.
pub(crate) fn vcpus_of(whose: &BTreeSet<Whose>, profile: &Profile) -> f64 {
    let numbers = profile.vcpus().iter().map(|exits| exits.vcpu);
    let is_one = |vcpu: &Vcpu| whose.iter().any(|one| *one == Whose::Everyone || vcpu.vm == one.vm());
    let different: BTreeSet<_> = numbers.filter(is_one).collect();
    different.len().max(1) as f64
}

/// The VM of a row: its process or domain ID, with its name.
pub(crate) fn vm(number: Option<u32>, profile: &Profile) -> String {
    let Some(number) = number else { return NONE.to_owned() };
    match profile.names.get(&number) {
        Some(name) => printable(&format!("{number} {name}")),
        None => number.to_string(),
    }
}

/// A vCPU's number, or its thread if the number is unknown.
pub(crate) fn vcpu(number: Option<u32>, thread: Option<u32>) -> String {
    match (number, thread) {
        (Some(number), _) => number.to_string(),
        (None, Some(thread)) => format!("thread {thread}"),
        (None, None) => NONE.to_owned(),
    }
}
