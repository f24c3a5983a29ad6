//! Exits by reason, as charts and tables.

use maud::{Markup, html};
use probe::run::Arm;
use prove::{Proof, ReasonRow};

use super::legend::{arms, legend};
use crate::format::{self, counted};
use crate::page::axis::{linear_ticks, percent};
use crate::page::chart::chart;
use crate::prove::words;
use crate::text;

/// The end of the longest bar, as a share of the width, so that its figure fits behind it.
const LONGEST: f64 = 0.84;
/// The maximum number of reasons that are drawn. The others are only in the table.
const MOST_DRAWN: usize = 12;
const BAR: u32 = 11;
const LABEL: u32 = 18;
const GAP: u32 = 12;
const PER: f64 = 1000.0;

pub(crate) fn render(outcome: &Proof) -> Markup {
    let totals = &outcome.exits;
    let lost = totals.lost.off + totals.lost.on;
    html! {
        section {
            h2 { "VM exits by reason" }
            @if totals.reasons.is_empty() {
                p.muted { "Only their sum is known here: the kernel's tracepoints could not be used, and the warnings say why." }
            } @else {
                p.muted {
                    "Over all operations that were measured, for each 1,000 of them. Counted in runs of their own, so that "
                    "counting slows none of the timed ones. "
                    @if lost == 0 { "The kernel lost no event." } @else { "The kernel lost " (counted(lost, "event")) "." }
                }
                (legend(outcome))
                figure.bars { (bars(outcome)) }
            }
            (figures(outcome))
            (by_operation(outcome))
        }
    }
}

/// Bars by reason. Their axis is linear because bars start at zero; bars that are too short to see still have their
/// figures.
fn bars(outcome: &Proof) -> Markup {
    let arms = arms(outcome);
    let drawn = &outcome.exits.reasons[..outcome.exits.reasons.len().min(MOST_DRAWN)];
    let rate = |row: &ReasonRow, arm: Arm| row.per_operation.of(arm).unwrap_or(0.0) * PER;
    let most = drawn.iter().flat_map(|row| arms.iter().map(move |&arm| rate(row, arm))).fold(0.0, f64::max);
    let most = if most > 0.0 { most } else { 1.0 };
    let across = |value: f64| value / most * LONGEST;
    let row_height = LABEL + arms.len() as u32 * BAR + GAP;
    let bottom = drawn.len() as u32 * row_height;
    let description = drawn
        .iter()
        .map(|row| {
            let figures = arms.iter().map(|&arm| format!("{} {:.0}", words::arm(arm), rate(row, arm)));
            format!("{}: {}", row.reason, figures.collect::<Vec<_>>().join(", "))
        })
        .collect::<Vec<_>>()
        .join("; ");
    let content = html! {
        @for tick in linear_ticks(0.0, most) {
            @let x = percent(across(tick));
            line.grid x1=(x) x2=(x) y1="0" y2=(bottom) {}
            text.tick x=(x) y=(bottom + 14) text-anchor=(if tick == 0.0 { "start" } else { "middle" }) {
                (format::cycles(tick))
            }
        }
        text.tick x="100%" y=(bottom + 14) text-anchor="end" { "exits per 1,000" }
        @for (index, row) in (0..).zip(drawn) {
            @let top = index * row_height;
            text.name x="0" y=(top + 13) { (row.reason) }
            @for (place, &arm) in (0..).zip(&arms) {
                @let y = top + LABEL + place * BAR;
                @let width = percent(across(rate(row, arm)));
                rect class=(words::arm(arm)) x="0" y=(y) width=(width) height=(BAR - 1) {}
                text.value x=(width) dx="5" y=(y + 9) { (value(rate(row, arm))) }
            }
        }
    };
    chart(bottom + 22, "Exits for each 1,000 operations, by reason", &description, &content)
}

fn value(rate: f64) -> String {
    if rate == 0.0 || rate >= 10.0 { format::cycles(rate) } else { format!("{rate:.1}") }
}

fn figures(outcome: &Proof) -> Markup {
    let arms = arms(outcome);
    let both = arms.len() == 2;
    let totals = &outcome.exits;
    let reasons = !totals.reasons.is_empty();
    html! {
        div.wide {
            table {
                thead {
                    tr {
                        th scope="col" { "Exit reason" }
                        @for &arm in &arms { th scope="col" { "Exits, " (words::arm(arm)) } }
                        @if both {
                            th scope="col" { "Change, %" }
                            th scope="col" { "95 % interval" }
                        }
                        @if reasons {
                            @for &arm in &arms { th scope="col" { "Mean time, " (words::arm(arm)) ", ns" } }
                            th.text scope="col" { "What it is" }
                        }
                    }
                }
                tbody {
                    @for row in &totals.reasons {
                        tr {
                            th scope="row" { code { (row.reason) } }
                            @for &arm in &arms { td { (format::count_of(*row.count.of(arm))) } }
                            @if both {
                                td { (text::minus(&change(row.change))) }
                                td { (text::minus(&format::interval_of(row.interval))) }
                            }
                            @for &arm in &arms { td { (mean(row, arm)) } }
                            td.text { (row.reason.about().unwrap_or_default()) }
                        }
                    }
                }
                tfoot {
                    @for (name, sum) in [
                        ("All reasons", totals.traced),
                        ("KVM's own count of the same runs", totals.statistics),
                    ] {
                        @if sum.off.or(sum.on).is_some() {
                            tr {
                                th scope="row" { (name) }
                                @for &arm in &arms { td { (format::count_of(*sum.of(arm))) } }
                                @if both {
                                    td { (text::minus(&change(words::change_between(sum, totals.operations)))) }
                                    td { (text::minus(&words::interval_between(sum, totals.operations))) }
                                }
                                @if reasons {
                                    @for _ in &arms { td {} }
                                    td.text {}
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn by_operation(outcome: &Proof) -> Markup {
    let arms = arms(outcome);
    let rows = || outcome.measures.iter().filter(|row| !row.exits.reasons.is_empty());
    html! {
        @if rows().next().is_some() {
            details {
                summary { "Exits of each operation by reason" }
                div.wide {
                    table {
                        thead {
                            tr {
                                th scope="col" { "Operation" }
                                th.text scope="col" { "Exit reason" }
                                @for &arm in &arms { th scope="col" { "An operation, " (words::arm(arm)) } }
                                @if arms.len() == 2 { th scope="col" { "Change, %" } }
                            }
                        }
                        tbody {
                            @for row in rows() {
                                @for (index, reason) in row.exits.reasons.iter().enumerate() {
                                    tr.first[index == 0] {
                                        th scope="row" { @if index == 0 { (row.measure.title()) } }
                                        td.text { code { (reason.reason) } }
                                        @for &arm in &arms { td { (format::per_operation_of(*reason.per_operation.of(arm))) } }
                                        @if arms.len() == 2 { td { (text::minus(&change(reason.change))) } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The change without the unit, which is in the column's title.
fn change(change: Option<conclusions::RelativeChange>) -> String {
    format::change(change).trim_end_matches(" %").to_owned()
}

fn mean(row: &ReasonRow, arm: Arm) -> String {
    let time = row.handling.of(arm).as_ref().filter(|time| time.count() > 0);
    time.map_or_else(
        || format::NONE.to_owned(),
        |time| format::cycles(time.total_ns() as f64 / time.count() as f64),
    )
}
