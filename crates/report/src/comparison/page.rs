//! Two sides of recordings as one page: the changes with their intervals.

mod bars;
mod rows;

use std::collections::BTreeMap;

use conclusions::profile_comparison::{Estimate, Overall, SideSummary};
use exits::{ExitReason, HandlingTime, TimelineFigure};
use maud::{Markup, html};
use traces::Recordings;

use super::compared::Compared;
use super::{doubts, figures, verdict};
use crate::format::{counted, rate_over, whole_time};
use crate::page::document::document;
use crate::page::document::tile;
use crate::page::histogram::{self, Lane, MOST_REASONS};
use crate::recordings::course::{Colours, Course};
use crate::recordings::page as recording;
use crate::recordings::words::part;
use crate::text::minus;

/// Columns of a chart over half the page.
const COLUMNS: usize = 90;
/// The maximum number of recordings of a side that are drawn over time.
const MOST_COURSES: usize = 3;

/// The comparison as one page that opens offline, follows the reader's dark mode, fits a phone and prints.
#[must_use]
pub fn page(compared: &Compared<'_>) -> String {
    let sections = html! {
        (head(compared))
        (warnings(compared))
        @if compared.comparison.verdict != Overall::Nothing {
            (bars::section(compared))
            (rows::section(compared))
            (courses(compared))
            (histograms(compared))
            (method(compared))
        }
        (about(compared))
    };
    document("VM exits before and after", &sections)
}

fn head(compared: &Compared<'_>) -> Markup {
    let comparison = compared.comparison;
    let total = &comparison.total;
    let tone = match comparison.verdict {
        Overall::Less => "good",
        Overall::More => "bad",
        _ => "neutral",
    };
    let word = match comparison.verdict {
        Overall::Less => "Less",
        Overall::More => "More",
        Overall::Mixed => "Less of one, more of the other",
        Overall::Same => "No certain change",
        Overall::Unsure => "Nothing certain",
        Overall::Nothing => "Nothing to compare",
    };
    let unit = figures::unit(comparison.per);
    let changed = |title: &str, estimate: Estimate| {
        let within = match estimate.interval {
            Some(_) => format!("95 % interval {}", figures::interval(Some(estimate))),
            None => "no interval".to_owned(),
        };
        tile(title, &minus(&figures::change(Some(estimate))), &minus(&within))
    };
    html! {
        header {
            p.eyebrow { "VM exits before and after" }
            p class={ "judgement " (tone) } { (word) }
            // No line break between a figure and its unit.
            h1 { (minus(&verdict::headline(compared)).replace(" %", "\u{a0}%")) }
            @for extreme in verdict::extremes(compared) { p { (minus(&extreme)) } }
            @if let Some(part) = compared.any().and_then(part) { p.muted { "Only " (part) "." } }
            @for (label, (summary, recordings), exits) in [
                ("Before", (&comparison.before, compared.before), total.before.exits),
                ("After", (&comparison.after, compared.after), total.after.exits),
            ] {
                p.muted.side { (side(label, summary, recordings, exits)) }
            }
        }
        @if comparison.verdict != Overall::Nothing {
            dl.tiles {
                (changed(&format!("Exits {unit}"), total.rate))
                @if let Some(time) = total.time { (changed(&format!("Handling time {unit}, without sleep"), time)) }
                @if let Some(mean) = total.mean { (changed("Mean handling time", mean)) }
            }
        }
    }
}

fn side(label: &str, summary: &SideSummary, recordings: &[Recordings], exits: u64) -> String {
    let files: Vec<_> = recordings.iter().flat_map(|one| one.files.clone()).collect();
    let ns = recordings.iter().map(Recordings::observed_ns).fold(0, u64::saturating_add);
    let operations = summary
        .operations
        .map_or_else(String::new, |operations| format!(", {}", counted(operations, "operation")));
    format!(
        "{label}: {} in {} ({}){operations}, {} with {} · {}",
        counted(exits, "exit"),
        whole_time(ns),
        rate_over(exits, ns),
        counted(summary.vms as u64, "VM"),
        counted(summary.vcpus as u64, "vCPU"),
        recording::eyebrow(&files),
    )
}

fn warnings(compared: &Compared<'_>) -> Markup {
    let doubts = doubts::doubts(compared);
    let is_grave = |doubt: &str| doubt.contains("lower bounds") || doubt.contains("damaged");
    html! {
        @if !doubts.is_empty() {
            section.warnings {
                h2 { "What to know first" }
                ul { @for doubt in &doubts { li.grave[is_grave(doubt)] { (doubt) } } }
            }
        }
    }
}

/// Both sides over time, on one scale and in the same colours.
fn courses(compared: &Compared<'_>) -> Markup {
    let colours = Colours::new(compared.before.iter().chain(compared.after));
    let of = |figure| {
        compared.sides().map(|(name, recordings)| {
            let courses = recordings.iter().take(MOST_COURSES).enumerate().filter_map(|(number, one)| {
                let name = if recordings.len() == 1 {
                    name.to_owned()
                } else {
                    format!("{name}, recording {}", number + 1)
                };
                Some((name, Course::new(one, figure, &colours, COLUMNS)?))
            });
            courses.collect::<Vec<_>>()
        })
    };
    let drawn = |title: &str, note: &str, courses: [Vec<(String, Course)>; 2]| {
        let highest = courses.iter().flatten().map(|(_, course)| course.highest()).fold(0.0, f64::max);
        html! {
            @if highest > 0.0 {
                h3 { (title) }
                @if !note.is_empty() { p.muted { (note) } }
                div.sides {
                    @for (name, course) in courses.iter().flatten() {
                        div {
                            p.muted { (name) "; a column is " (course.step()) }
                            (course.render(&format!("{title}, {name}"), 180, highest))
                        }
                    }
                }
            }
        }
    };
    let hidden = [compared.before.len(), compared.after.len()]
        .map(|len| len.saturating_sub(MOST_COURSES))
        .iter()
        .sum::<usize>();
    html! {
        section {
            h2 { "Over time" }
            p.muted {
                "By reason, on one scale for both sides. Where a load comes and goes within a recording, intervals are wide."
                @if hidden > 0 { " " (counted(hidden as u64, "recording")) " more is not drawn." }
            }
            (drawn("Exits a second", "", of(TimelineFigure::Exits)))
            (drawn("Share of the vCPUs' time that handling took", "Without sleep in HLT.", of(TimelineFigure::Time)))
        }
    }
}

fn histograms(compared: &Compared<'_>) -> Markup {
    let mut reasons: BTreeMap<ExitReason, [HandlingTime; 2]> = BTreeMap::new();
    for (at, (_, recordings)) in compared.sides().into_iter().enumerate() {
        for (reason, exits) in recordings.iter().flat_map(|one| one.profile.reasons()) {
            reasons.entry(reason).or_default()[at].merge(&exits.handling);
        }
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.retain(|(_, times)| times.iter().any(|times| times.count() > 0));
    reasons.sort_by_key(|(reason, times)| {
        let ns = times[0].total_ns().saturating_add(times[1].total_ns());
        (std::cmp::Reverse(ns), *reason)
    });
    reasons.truncate(MOST_REASONS);
    let lanes = reasons.iter().map(|(reason, [before, after])| {
        let before = Lane { class: "off", name: "before", times: before };
        (*reason, vec![before, Lane { class: "on", name: "after", times: after }])
    });
    histogram::section(&lanes.collect::<Vec<_>>())
}

fn method(compared: &Compared<'_>) -> Markup {
    let comparison = compared.comparison;
    html! {
        section {
            h2 { "How to read this" }
            p {
                "A change is relative to the figure before. Its interval is made so that it holds the true change 95 times in "
                "100; of " (comparison.rows.len()) " rows some will miss it by chance. One that holds 0 means no significant "
                "difference, not that the sides are equal. A change below 1 % is not coloured, however certain it is."
            }
            p {
                "Exits come in bursts, so counting each as an independent event would make intervals far too narrow. The word "
                "behind an interval says how it was made:"
            }
            ul { @for method in figures::methods(comparison) { li { (method) "." } } }
            @if let Some(scope) = figures::scope(comparison) { p { (scope) } }
            p {
                "Handling time is from an exit to the next entry of the same vCPU. In HLT the guest sleeps meanwhile, so that time "
                "is in no sum. What was not seen on one side is shown as a bound: with 95 % certainty there are no more."
            }
        }
    }
}

fn about(compared: &Compared<'_>) -> Markup {
    html! {
        section {
            h2 { "The recordings" }
            @for (name, recordings) in compared.sides() {
                details {
                    summary { (name) }
                    @for one in recordings {
                        (recording::facts(&one.files))
                        (recording::losses(&one.profile))
                    }
                }
            }
        }
    }
}
