//! Facts of recordings, and the data that they lack.

use std::collections::BTreeSet;

use exits::Losses;
use traces::{Origin, Recording, Recordings};

use super::words::{NAMELESS, lost_percent, part, warnings, without_vcpu};
use crate::format::{count, counted, rate_over, share, whole_time};
use crate::terminal::labels::line;
use crate::text;

/// The recordings, their duration, and their faults.
pub(crate) fn head(recordings: &Recordings, width: usize, colour: bool) -> String {
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
    if let Some(said) = without_vcpu(&recordings.profile.losses) {
        text += &alarming(&line("no VM", &said, width), colour);
    }
    for damage in damages(recordings) {
        text += &alarming(&line("damage", &damage, width), colour);
    }
    text
}

/// The positions of damage, with file names if there are several files.
fn damages(recordings: &Recordings) -> Vec<String> {
    let of = |file: &Recording| {
        let damage = file.damage.as_ref()?;
        let whose = if recordings.files.len() == 1 { "" } else { &format!("{} ", file.name) };
        let at = count(damage.offset);
        Some(format!("{whose}at byte {at}: {}; everything whole before it was read", damage.what))
    };
    recordings.files.iter().filter_map(of).collect()
}

/// Doubts about the figures, for formats that cannot contain them: losses, damage and warnings, a sentence each.
#[must_use]
pub fn doubts(recordings: &Recordings) -> Vec<String> {
    let lost = (recordings.profile.losses.lost_events > 0).then(|| format!("Lost: {}", lost(recordings)));
    let damages = damages(recordings).into_iter().map(|damage| format!("Damage {damage}"));
    let doubts = lost
        .into_iter()
        .chain(without_vcpu(&recordings.profile.losses))
        .chain(damages)
        .chain(warnings(recordings));
    doubts.map(|doubt| text::printable(&doubt)).collect()
}

/// The damage because of which nothing could be read from recordings, and the next step; `None` if they are not damaged, or
/// something could be read.
#[must_use]
pub fn nothing_read(recordings: &Recordings) -> Option<String> {
    if !recordings.profile.events.is_empty() {
        return None;
    }
    let damage = recordings.files.iter().find_map(|file| file.damage.as_ref())?;
    Some(if damage.what.starts_with("perf was killed") {
        "The recording has no exits: perf was killed before it wrote any. Let it run longer, or end it with Ctrl-C."
            .to_owned()
    } else {
        let (at, what) = (count(damage.offset), &damage.what);
        format!(
            "The recording has no exits before its damage at byte {at}: {what}. Record again, or copy it again."
        )
    })
}

fn alarming(text: &str, colour: bool) -> String {
    if !colour {
        return text.to_owned();
    }
    text.lines().map(|line| format!("\u{1b}[1;31m{line}\u{1b}[0m\n")).collect()
}

pub(crate) fn named(file: &Recording) -> String {
    let origin @ Origin { format, version, host, kernel, processor, .. } = &file.origin;
    let mut said = vec![match version {
        Some(version) => format!("{format}, version {version}"),
        None => format.to_string(),
    }];
    said.extend(host.as_ref().filter(|host| *host != NAMELESS).map(|host| format!("host {host}")));
    said.extend(origin.xen());
    said.extend(kernel.as_ref().map(|kernel| format!("Linux {kernel}")));
    said.extend(processor.clone());
    format!("{} ({})", file.name, said.join("; "))
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
    let of_all = lost_percent([&recordings.profile])
        .map_or_else(String::new, |percent| format!(" ({} of all)", share(percent)));
    let exits = match lost_exits {
        0 => String::new(),
        exits => format!(", {} of them exits", count(exits)),
    };
    format!(
        "{}{of_all}{exits}: counts are lower bounds; record with larger buffers (perf: -m, trace-cmd: -b)",
        counted(lost_events, "event")
    )
}
