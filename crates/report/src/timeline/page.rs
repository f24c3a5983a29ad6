//! Each row of a timeline as a chart with its own scale.

use std::collections::BTreeSet;

use exits::{Dimension, Grouping, Key, Slice, Table, TimelineFigure, TimelineRows, Whose};
use maud::{Markup, html};
use traces::Recordings;

use crate::format::counted;
use crate::page::chart::{self, chart};
use crate::page::round;
use crate::profile::page as profile;
use crate::recordings::scale::Scale;
use crate::recordings::words::{vcpus_of, vm};
use crate::text::printable;

const HEIGHT: u32 = 64;
const COLUMNS: usize = 120;

/// The page of recordings, with a curve of the exits for each of `rows` at the top. `rows` were made from the recordings'
/// timeline by `grouping`.
#[must_use]
pub fn page(
    recordings: &Recordings,
    rows: &TimelineRows,
    grouping: &Grouping,
    figure: TimelineFigure,
) -> String {
    let table = Table::new(&recordings.profile, Grouping::by_reason());
    let figures = html! {
        (profile::course(recordings))
        (section(recordings, rows, grouping, figure))
        (profile::rows(recordings, &table))
    };
    profile::around(recordings, &[], &figures)
}

/// A small chart for each row; empty if the recording has no duration.
fn section(
    recordings: &Recordings,
    rows: &TimelineRows,
    grouping: &Grouping,
    figure: TimelineFigure,
) -> Markup {
    let Some(observed) = recordings.observed().filter(|span| span.length_ns() > 0 && !rows.is_empty()) else {
        return html! {};
    };
    let columns = rows.columns(COLUMNS, &recordings.spans());
    let one = |name: &str, whose: &BTreeSet<Whose>, slices: &[Slice], total: Slice| {
        let scale = Scale::new(recordings, figure, vcpus_of(whose, &recordings.profile));
        let values = scale.values(&columns, slices);
        let peak = values.iter().copied().fold(0.0, f64::max);
        let mean = scale.mean(figure.of(total));
        let words = format!("mean {}, peak {}", scale.shown(mean), scale.shown(peak));
        html! {
            figure {
                figcaption { strong { code { (name) } } span.muted { (words) } }
                (chart(HEIGHT + 20, &format!("{name} over time"), &words, &curve(&values, peak, observed.length_ns())))
            }
        }
    };
    let name = |key: Key| {
        let of_vm = grouping.tells_vms_apart().then(|| vm(key.whose.vm(), &recordings.profile));
        let reason = grouping.has(Dimension::Reason).then(|| printable(&key.what.to_string()));
        [of_vm, reason].into_iter().flatten().collect::<Vec<_>>().join(" · ")
    };
    html! {
        section {
            h2 { "Each by itself" }
            p.muted {
                @match figure {
                    TimelineFigure::Exits => { "Exits a second." }
                    TimelineFigure::Time => { "Share of the time of its vCPUs; in HLT they sleep." }
                }
                " Each has its own scale, up to its peak."
            }
            div.multiples {
                @for row in rows.rows() { (one(&name(row.key), &BTreeSet::from([row.key.whose]), &row.slices, row.total)) }
                @if let Some(rest) = rows.rest() {
                    (one(
                        &format!("other ({})", counted(rest.rows as u64, "row")),
                        &rest.whose,
                        &rest.slices,
                        rest.total,
                    ))
                }
            }
        }
    }
}

fn curve(values: &[f64], peak: f64, length_ns: u64) -> Markup {
    html! {
        (chart::hill("on", 0, HEIGHT, values, peak))
        line.axis x1="0" x2="100%" y1=(HEIGHT) y2=(HEIGHT) {}
        text.tick x="0" y=(HEIGHT + 16) { "0" }
        text.tick x="100%" y=(HEIGHT + 16) text-anchor="end" { (round(length_ns as f64)) }
    }
}
