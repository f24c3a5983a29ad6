//! The recordings of a page, and the data that they lack.

use exits::{Losses, Profile};
use maud::{Markup, html};
use traces::{Recording, Recordings};

use super::words::{NAMELESS, lost_percent, notes, without_vcpu};
use crate::format::{count, counted, share, whole_time};
use crate::page::table;

/// The line above the title: "perf.data · Linux 6.12.107 · host-17 · AMD EPYC 9654".
pub(crate) fn eyebrow(files: &[Recording]) -> String {
    let mut said: Vec<String> = Vec::new();
    for file in files {
        let origin = &file.origin;
        let kernel = origin.kernel.as_ref().map(|kernel| format!("Linux {kernel}"));
        let host = origin.host.clone().filter(|host| host != NAMELESS);
        let parts = [Some(file.name.clone()), origin.xen(), kernel, host, origin.processor.clone()];
        for part in parts.into_iter().flatten() {
            if !said.contains(&part) {
                said.push(part);
            }
        }
    }
    said.join(" · ")
}

/// The section at the top of the page: damage and losses, and other notes that belong to them.
pub(crate) fn warnings(recordings: &Recordings, more: &[String]) -> Markup {
    let grave = grave(recordings);
    html! {
        @if !grave.is_empty() || !more.is_empty() {
            section.warnings {
                h2 { "What to know first" }
                ul {
                    @for said in &grave { li.grave { (said) } }
                    @for note in more { li { (note) } }
                    @if !grave.is_empty() { @for note in notes(recordings) { li { (note) } } }
                }
            }
        }
    }
}

/// The notes on recordings; empty if [`warnings`] has them.
pub(crate) fn notes_below(recordings: &Recordings) -> Markup {
    let notes = if grave(recordings).is_empty() { notes(recordings) } else { Vec::new() };
    html! {
        @if !notes.is_empty() { ul { @for note in &notes { li { (note) } } } }
    }
}

fn grave(recordings: &Recordings) -> Vec<String> {
    let damage = recordings.files.iter().filter_map(|file| Some((file, file.damage.as_ref()?)));
    let damage = damage.map(|(file, damage)| format!("{} is {damage}.", file.name));
    let without_vcpu = without_vcpu(&recordings.profile.losses).map(|said| said + ".");
    damage.chain(lost(recordings)).chain(without_vcpu).collect()
}

fn lost(recordings: &Recordings) -> Option<String> {
    let Losses { lost_events, lost_exits, .. } = recordings.profile.losses;
    if lost_events == 0 {
        return None;
    }
    let of_all = lost_percent([&recordings.profile])
        .map_or_else(String::new, |percent| format!(" ({} of all)", share(percent)));
    let exits =
        if lost_exits == 0 { String::new() } else { format!(", {} of them exits", count(lost_exits)) };
    Some(format!(
        "{}{of_all}{exits} lost by the recorder: every count is a lower bound. Record with larger buffers \
         (perf: -m, trace-cmd: -b).",
        counted(lost_events, "event")
    ))
}

/// Facts of each recording.
pub(crate) fn facts(files: &[Recording]) -> Markup {
    html! {
        div.wide {
            table.facts {
                @for file in files {
                    tbody {
                        @for (name, value) in fact_rows(file) {
                            tr { th scope="row" { (name) } td.text { (value) } }
                        }
                    }
                }
            }
        }
    }
}

fn fact_rows(file: &Recording) -> Vec<(&'static str, String)> {
    let origin = &file.origin;
    let span = file.observed.map(|span| whole_time(span.length_ns()));
    let damage = file.damage.as_ref().map(ToString::to_string);
    let all = [
        ("recording", Some(file.name.clone())),
        ("format", Some(origin.format.to_string())),
        ("version", origin.version.clone()),
        ("host", origin.host.clone().filter(|host| host != NAMELESS)),
        ("hypervisor", origin.xen()),
        ("kernel", origin.kernel.clone()),
        ("processor", origin.processor.clone()),
        ("command", origin.command.clone()),
        ("size", Some(counted(origin.bytes, "byte"))),
        ("length", span),
        ("exits", Some(count(file.exits))),
        ("damage", damage),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Numbers of missing and doubtful data.
pub(crate) fn losses(profile: &Profile) -> Markup {
    let losses = profile.losses;
    let rows = [
        ("events lost by the recorder", losses.lost_events),
        ("exits without an entry after them", losses.exits_without_entry),
        ("exits that the recording ends with", losses.exits_at_the_end),
        ("entries without an exit before them", losses.entries_without_exit),
        ("pairs that a loss lies between", losses.pairs_across_loss),
        ("pairs that go back in time", losses.pairs_back_in_time),
        ("events too late to be put in order", losses.out_of_order),
        ("events that could not be read", losses.undecoded),
        ("exits without their VM", losses.exits_without_vcpu),
    ];
    table::facts(rows.map(|(name, number)| (name, count(number))), None)
}

/// The number of each event in the recording.
pub(crate) fn events(profile: &Profile) -> Markup {
    html! {
        @if !profile.events.is_empty() {
            (table::facts(profile.events.iter().map(|(name, &number)| (html! { code { (name) } }, count(number))), None))
        }
    }
}
