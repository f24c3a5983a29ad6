//! Recordings as one page: exits by reason, time, VM and vCPU, with handling times and accesses.

mod rows;
mod vcpus;

use exits::{Dimension, ExitReason, Exits, HandlingTime, Table, TimelineFigure};
use maud::{Markup, html};
use traces::Recordings;

use crate::format::{count, counted, rate_over, share, whole_time};
use crate::page::document::{document, tile};
use crate::page::histogram::{self, Lane, MOST_REASONS};
use crate::recordings::course::{Colours, Course};
use crate::recordings::page as recording;
use crate::recordings::words::part as selected;

/// Columns of a chart over the width of the page.
const COLUMNS: usize = 160;

/// The exits of `recordings` as one page that opens offline, follows the reader's dark mode, fits a phone and prints.
/// `table` is its main table, made from their profile.
#[must_use]
pub fn page(recordings: &Recordings, table: &Table) -> String {
    let figures = html! { (rows(recordings, table)) (course(recordings)) };
    around(recordings, &unsorted(table), &figures)
}

/// A page of `recordings`: the head, warnings, `figures`, and the sections that all pages of recordings have.
pub(crate) fn around(recordings: &Recordings, warnings: &[String], figures: &Markup) -> String {
    let sections = html! {
        (head(recordings))
        (recording::warnings(recordings, warnings))
        (figures)
        (histograms(recordings))
        (vcpus::section(recordings))
        (accesses(recordings))
        (about(recordings))
    };
    document(&title(recordings), &sections)
}

fn title(recordings: &Recordings) -> String {
    let names: Vec<_> = recordings.files.iter().map(|file| file.name.as_str()).collect();
    format!("VM exits of {}", names.join(", "))
}

/// Handling times of the exits that are not idle, and of idle ones.
fn times(recordings: &Recordings) -> (HandlingTime, HandlingTime) {
    let (mut handled, mut asleep) = (HandlingTime::new(), HandlingTime::new());
    for (reason, exits) in recordings.profile.reasons() {
        (if reason.is_sleep() { &mut asleep } else { &mut handled }).merge(&exits.handling);
    }
    (handled, asleep)
}

fn head(recordings: &Recordings) -> Markup {
    let profile = &recordings.profile;
    let observed_ns = recordings.observed_ns();
    let (handled, asleep) = times(recordings);
    let vcpus = profile.vcpus().len().max(1) as f64;
    let part = |ns: u64| ns as f64 / (observed_ns.max(1) as f64 * vcpus) * 100.0;
    let vms: std::collections::BTreeSet<_> = profile.vcpus().iter().map(|exits| exits.vcpu.vm).collect();
    let quantile = |at: f64| handled.quantile_ns(at).map_or_else(String::new, whole_time);
    html! {
        header {
            p.eyebrow { (recording::eyebrow(&recordings.files)) }
            h1 {
                (counted(profile.total(), "VM exit")) " in " (whole_time(observed_ns))
                @if handled.count() > 0 {
                    "; handling them took " (share(part(handled.total_ns())).replace(' ', "\u{a0}")) " of the time of "
                    (counted(profile.vcpus().len() as u64, "vCPU"))
                }
            }
            @if let Some(part) = selected(recordings) { p.muted { "Only " (part) "." } }
        }
        @if profile.total() > 0 {
            dl.tiles {
                (tile("Exits a second", &rate_over(profile.total(), observed_ns), &format!("{} with {}", counted(vms.len() as u64, "VM"), counted(profile.vcpus().len() as u64, "vCPU"))))
                @if handled.count() > 0 {
                    (tile("Handling, without sleep", &share(part(handled.total_ns())), &format!("of the vCPUs' time; {} in all", whole_time(handled.total_ns()))))
                    (tile("One exit, p50", &quantile(0.5), &format!("p99 {}, p99.9 {}", quantile(0.99), quantile(0.999))))
                }
                @if asleep.count() > 0 {
                    (tile("Asleep in HLT", &share(part(asleep.total_ns())), &format!("{}; {} in all", counted(asleep.count(), "exit"), whole_time(asleep.total_ns()))))
                }
                @if profile.losses.lost_events > 0 {
                    (tile("Events lost", &count(profile.losses.lost_events), "counts are lower bounds"))
                }
            }
        }
    }
}

fn unsorted(table: &Table) -> Vec<String> {
    let count_of = table.unsorted().count;
    let said = format!(
        "Accesses of any kind in no row: {}. The recording has more different ones than are kept apart.",
        count(count_of)
    );
    if count_of > 0 { vec![said] } else { Vec::new() }
}

/// The main table.
pub(crate) fn rows(recordings: &Recordings, table: &Table) -> Markup {
    let names: Vec<_> = table.grouping().dimensions().map(Dimension::name).collect();
    html! {
        section {
            h2 { "Exits by " (names.join(" and ")) }
            @if table.is_empty() {
                p { "There is none." }
            } @else {
                p.muted {
                    "Time is from an exit to the next entry of the same vCPU, as " code { "perf kvm stat" }
                    " measures it; in HLT the guest sleeps meanwhile. Shares are of the exits whose time is known. "
                    "Quantiles are at most 3.2 % too high."
                }
                (rows::exits("Exits", table, &recordings.profile, recordings.observed_ns()))
            }
        }
    }
}

/// The exits over time.
pub(crate) fn course(recordings: &Recordings) -> Markup {
    let colours = Colours::new([recordings]);
    let exits = Course::new(recordings, TimelineFigure::Exits, &colours, COLUMNS);
    let time = Course::new(recordings, TimelineFigure::Time, &colours, COLUMNS);
    html! {
        @if let Some(exits) = exits {
            section {
                h2 { "Over time" }
                h3 { "Exits a second" }
                p.muted { "By reason, the most frequent at the bottom; a column is " (exits.step()) "." }
                (exits.render("Exits a second over time", 220, exits.highest()))
                @if let Some(time) = time.filter(|time| time.highest() > 0.0) {
                    h3 { "Share of the vCPUs' time that handling took" }
                    p.muted {
                        "Without sleep in HLT. The time of an exit counts where the exit began, so a long one can take a "
                        "column above 100 %."
                    }
                    (time.render("Share of time handling exits, over time", 160, time.highest()))
                }
            }
        }
    }
}

fn histograms(recordings: &Recordings) -> Markup {
    let mut reasons: Vec<(ExitReason, Exits)> = recordings.profile.reasons().into_iter().collect();
    reasons.retain(|(_, exits)| exits.handling.count() > 0);
    reasons.sort_by_key(|(reason, exits)| (std::cmp::Reverse(exits.handling.total_ns()), *reason));
    reasons.truncate(MOST_REASONS);
    let lanes = reasons
        .iter()
        .map(|(reason, exits)| (*reason, vec![Lane { class: "on", name: "", times: &exits.handling }]));
    histogram::section(&lanes.collect::<Vec<_>>())
}

fn accesses(recordings: &Recordings) -> Markup {
    let kinds = [
        ("I/O ports", Dimension::Port),
        ("Addresses of devices (MMIO)", Dimension::Mmio),
        ("Model-specific registers", Dimension::Msr),
        ("Registers of the local APIC", Dimension::Apic),
        ("IPIs that AVIC could not deliver", Dimension::Ipi),
        ("Exits of nested guests", Dimension::Nested),
    ];
    let (profile, observed_ns) = (&recordings.profile, recordings.observed_ns());
    html! {
        @if !profile.accesses().is_empty() {
            section {
                h2 { "Ports, addresses and registers" }
                @for (title, dimension) in kinds { (rows::accesses(title, dimension, profile, observed_ns)) }
            }
        }
    }
}

fn about(recordings: &Recordings) -> Markup {
    html! {
        section {
            h2 { "The recording" }
            (recording::notes_below(recordings))
            (recording::facts(&recordings.files))
            details { summary { "What is missing or doubtful" } (recording::losses(&recordings.profile)) }
            details { summary { "Events in it" } (recording::events(&recordings.profile)) }
        }
    }
}
