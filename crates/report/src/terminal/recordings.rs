//! Facts of recordings, and the data that they lack.

use std::collections::BTreeSet;

use exits::{Losses, Profile};
use traces::{Options, Origin, Recording, Recordings};

use super::wrapped;
use crate::format::{self, count, counted, rate_over, share, whole_time};
use crate::json::lost_percent;
use crate::text;

/// The width of the labels on the left.
const LABEL: usize = 11;

/// The recordings, their duration, and their faults.
pub(super) fn head(recordings: &Recordings, width: usize, colour: bool) -> String {
    let mut text = String::new();
    for file in &recordings.files {
        text += &line("recording", &named(file), width);
    }
    if let Some(part) = part(recordings) {
        text += &line("only", &part, width);
    }
    text += &line("time", &time(recordings), width);
    text += &line("exits", &exits(recordings), width);
    let lost = line("lost", &lost(recordings), width);
    let whole = recordings.profile.losses.lost_events == 0;
    text += &if whole { lost } else { alarming(&lost, colour) };
    for damage in damages(recordings) {
        text += &alarming(&line("damage", &damage, width), colour);
    }
    text
}

/// The places of damage; with file names if there are several.
fn damages(recordings: &Recordings) -> Vec<String> {
    let of = |file: &Recording| {
        let damage = file.damage.as_ref()?;
        let whose = if recordings.files.len() == 1 { "" } else { &format!("{} ", file.name) };
        let at = count(damage.offset);
        Some(format!("{whose}at byte {at}: {}; everything whole before it was read", damage.what))
    };
    recordings.files.iter().filter_map(of).collect()
}

/// Doubts about the figures, for outputs without room for them: losses, damage and warnings, a sentence each.
#[must_use]
pub fn doubts(recordings: &Recordings) -> Vec<String> {
    let lost = (recordings.profile.losses.lost_events > 0).then(|| format!("Lost: {}", lost(recordings)));
    let damages = damages(recordings).into_iter().map(|damage| format!("Damage {damage}"));
    let doubts = lost.into_iter().chain(damages).chain(warnings(recordings));
    doubts.map(|doubt| text::printable(&doubt)).collect()
}

pub(super) fn line(label: &str, said: &str, width: usize) -> String {
    let first = format!("{label:LABEL$}");
    wrapped(&kept_together(said), width, &first, &" ".repeat(LABEL)).replace(NO_BREAK, " ")
}

const NO_BREAK: &str = "\u{a0}";

/// Keeps a figure and its unit on one line.
fn kept_together(text: &str) -> String {
    let is_unit = |word: &str| {
        matches!(word.trim_end_matches([',', ';', '.', ':', ')']), "ns" | "µs" | "ms" | "s" | "M/s" | "%")
    };
    let mut together = String::new();
    for word in text.split(' ') {
        if !together.is_empty() {
            let is_figure = together.ends_with(|c: char| c.is_ascii_digit());
            together += if is_figure && is_unit(word) { NO_BREAK } else { " " };
        }
        together += word;
    }
    together
}

fn alarming(text: &str, colour: bool) -> String {
    if !colour {
        return text.to_owned();
    }
    text.lines().map(|line| format!("\u{1b}[1;31m{line}\u{1b}[0m\n")).collect()
}

/// Linux's name of a host without a name.
const NAMELESS: &str = "(none)";

pub(super) fn named(file: &Recording) -> String {
    let Origin { format, version, host, kernel, processor, .. } = &file.origin;
    let mut said = vec![match version {
        Some(version) => format!("{format}, version {version}"),
        None => format.to_string(),
    }];
    said.extend(host.as_ref().filter(|host| *host != NAMELESS).map(|host| format!("host {host}")));
    said.extend(kernel.as_ref().map(|kernel| format!("Linux {kernel}")));
    said.extend(processor.clone());
    format!("{} ({})", file.name, said.join("; "))
}

/// The selected part, if it is not everything.
fn part(recordings: &Recordings) -> Option<String> {
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

fn time(recordings: &Recordings) -> String {
    let observed_ns = recordings.observed_ns();
    let between = recordings.observed().map_or(0, |span| span.length_ns()).saturating_sub(observed_ns);
    if between == 0 {
        return whole_time(observed_ns);
    }
    format!(
        "{} in {} recordings, {} between them",
        whole_time(observed_ns),
        recordings.files.len(),
        whole_time(between)
    )
}

fn exits(recordings: &Recordings) -> String {
    let profile = &recordings.profile;
    let total = profile.total();
    if total == 0 {
        return "none".to_owned();
    }
    let vms: BTreeSet<_> = profile.vcpus().iter().map(|exits| exits.vcpu.vm).collect();
    let handling = profile.reasons().into_values().fold(exits::HandlingTime::new(), |mut sum, exits| {
        sum.merge(&exits.handling);
        sum
    });
    format!(
        "{} ({}) of {} with {}; {} of them handled in {}",
        count(total),
        rate_over(total, recordings.observed_ns()),
        counted(vms.len() as u64, "VM"),
        counted(profile.vcpus().len() as u64, "vCPU"),
        count(handling.count()),
        whole_time(handling.total_ns()),
    )
}

fn lost(recordings: &Recordings) -> String {
    let Losses { lost_events, lost_exits, .. } = recordings.profile.losses;
    if lost_events == 0 {
        return "nothing".to_owned();
    }
    let of_all =
        lost_percent(recordings).map_or_else(String::new, |percent| format!(" ({} of all)", share(percent)));
    let exits = match lost_exits {
        0 => String::new(),
        exits => format!(", {} of them exits", count(exits)),
    };
    format!(
        "{}{of_all}{exits}: counts are lower bounds; record with larger buffers (perf: -m, trace-cmd: -b)",
        counted(lost_events, "event")
    )
}

/// Notes on the recordings in addition to their head, a sentence or two each.
pub(crate) fn notes(recordings: &Recordings) -> Vec<String> {
    let mut notes = warnings(recordings);
    notes.extend(losses(&recordings.profile));
    notes
}

fn warnings(recordings: &Recordings) -> Vec<String> {
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
    // A vCPU that was running at the start of the recording has one.
    let entries = if entries_without_exit > vcpus { entries_without_exit } else { 0 };
    let without_time = [
        (
            pairs_across_loss,
            "events were lost before the entry; perf gives such exits times that may not be theirs",
        ),
        (exits_without_entry, "the next event of the vCPU is another exit"),
        (pairs_back_in_time, "the entry lies before the exit: the clocks of the processors differ"),
        (exits_at_the_end, "the recording ends before the entry"),
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

/// The notes as a list with a title; empty without notes.
pub(super) fn listed(notes: &[String], width: usize) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let mut text = "\nNotes\n\n".to_owned();
    notes.iter().for_each(|note| text += &wrapped(note, width, "  - ", "    "));
    text
}

/// The VM of a row: its number with its name.
pub(super) fn vm(number: Option<u32>, profile: &Profile) -> String {
    let Some(number) = number else { return format::NONE.to_owned() };
    match profile.names.get(&number) {
        Some(name) => text::printable(&format!("{number} {name}")),
        None => number.to_string(),
    }
}
