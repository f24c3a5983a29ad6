//! Rows before and after as bars, with the interval of the change at the bar after.

use conclusions::profile_comparison::{ComparedRow, Estimate, Per};
use maud::{Markup, html};

use crate::comparison::compared::Compared;
use crate::comparison::figures;
use crate::format::time;
use crate::page::axis::{linear_ticks, percent};
use crate::page::chart::chart;
use crate::page::round;

/// The end of the longest bar, as a share of the width, so that its figure fits behind it.
const LONGEST: f64 = 0.84;
const MOST_DRAWN: usize = 14;
const BAR: u32 = 11;
const LABEL: u32 = 18;
const GAP: u32 = 12;

/// Before, after, and the change with its interval.
type Sides = (f64, f64, Option<Estimate>);

/// A figure to draw for both sides, and its format.
struct Drawn<'a> {
    title: String,
    of: &'a dyn Fn(&ComparedRow) -> Sides,
    shown: &'a dyn Fn(f64) -> String,
}

/// The charts of counts and of time.
pub(super) fn section(compared: &Compared<'_>) -> Markup {
    let comparison = compared.comparison;
    let (per, unit) = (comparison.per, figures::unit(comparison.per));
    let rates = Drawn {
        title: if per == Per::Recording { "Exits a recording".to_owned() } else { format!("Exits {unit}") },
        of: &|row| (row.before.rate, row.after.rate, Some(row.rate)),
        shown: &|value| figures::rate(value, per),
    };
    let times = Drawn {
        title: format!("Handling time {unit}"),
        of: &|row| (row.before.time_rate_ns, row.after.time_rate_ns, row.time),
        shown: &time,
    };
    html! {
        @if !comparison.rows.is_empty() {
            section {
                h2 { "Before and after" }
                p.muted {
                    "The whisker is the 95 % interval of the change, about the bar after. Rows are in the order of the tables."
                }
                p.legend {
                    span.off { svg width="12" height="12" aria-hidden="true" { rect.off width="12" height="12" {} } "before" }
                    span.on { svg width="12" height="12" aria-hidden="true" { rect.on width="12" height="12" {} } "after" }
                }
                div.sides {
                    (figure(compared, &rates, |_| true))
                    @if comparison.has_times() { (figure(compared, &times, |row| !row.idle)) }
                }
            }
        }
    }
}

fn figure(compared: &Compared<'_>, drawn: &Drawn<'_>, keep: impl Fn(&ComparedRow) -> bool) -> Markup {
    let figures = |row: &ComparedRow| (drawn.of)(row);
    let mut rows: Vec<&ComparedRow> = compared.comparison.rows.iter().filter(|row| keep(row)).collect();
    if rows.len() > MOST_DRAWN {
        let size = |row: &ComparedRow| figures(row).0.max(figures(row).1);
        let mut sizes: Vec<f64> = rows.iter().map(|row| size(row)).collect();
        sizes.sort_by(|a, b| b.total_cmp(a));
        rows.retain(|row| size(row) >= sizes[MOST_DRAWN - 1]);
    }
    let longest = rows.iter().map(|row| figures(row).0.max(figures(row).1)).fold(0.0, f64::max);
    let ends = rows.iter().filter_map(|row| Some(whisker(figures(row).0, figures(row).2)?.1));
    // Limit the scale: a very long whisker would make the bars too short.
    let most = ends.fold(longest, f64::max).min(longest * 1.5);
    let most = if most > 0.0 { most } else { 1.0 };
    let across = |value: f64| (value / most).min(1.0) * LONGEST;
    let row_height = LABEL + 2 * BAR + GAP;
    let bottom = rows.len() as u32 * row_height;
    let description = rows.iter().map(|row| {
        let (before, after, _) = figures(row);
        format!(
            "{}: before {}, after {}",
            compared.name(&row.subject),
            (drawn.shown)(before),
            (drawn.shown)(after)
        )
    });
    let content = html! {
        @for tick in linear_ticks(0.0, most) {
            @let x = percent(across(tick));
            line.grid x1=(x) x2=(x) y1="0" y2=(bottom) {}
            text.tick x=(x) y=(bottom + 14) text-anchor=(if tick == 0.0 { "start" } else { "middle" }) { (label(drawn, tick)) }
        }
        @for (index, row) in (0..).zip(&rows) {
            @let top = index * row_height;
            @let (before, after, estimate) = figures(row);
            text.name x="0" y=(top + 13) { (compared.name(&row.subject)) }
            @for (place, class, value) in [(0, "off", before), (1, "on", after)] {
                @let y = top + LABEL + place * BAR;
                rect class=(class) x="0" y=(y) width=(percent(across(value))) height=(BAR - 1) {}
                @let whisker = whisker(before, estimate).filter(|_| place == 1);
                @let end = whisker.map_or(value, |(_, high)| high.max(value));
                text.value.halo x=(percent(across(end))) dx="5" y=(y + 9) { ((drawn.shown)(value)) }
            }
            @if let Some((low, high)) = whisker(before, estimate) {
                @let y = top + LABEL + BAR + BAR / 2;
                line.under x1=(percent(across(low))) x2=(percent(across(high))) y1=(y) y2=(y) {}
                line.whisker x1=(percent(across(low))) x2=(percent(across(high))) y1=(y) y2=(y) {}
                @for end in [low, high] {
                    line.whisker x1=(percent(across(end))) x2=(percent(across(end))) y1=(y - 3) y2=(y + 3) {}
                }
            }
        }
    };
    html! {
        figure.bars {
            figcaption { strong { (drawn.title) } }
            (chart(bottom + 22, &drawn.title, &description.collect::<Vec<_>>().join("; "), &content))
        }
    }
}

fn label(drawn: &Drawn<'_>, tick: f64) -> String {
    match tick {
        0.0 => "0".to_owned(),
        // Omit trailing zeros of round numbers.
        _ if drawn.title.starts_with("Handling") => round(tick),
        _ => (drawn.shown)(tick),
    }
}

/// The figure after at both ends of the interval; `None` if an end is open.
fn whisker(before: f64, estimate: Option<Estimate>) -> Option<(f64, f64)> {
    let interval = estimate?.interval?;
    let at = |percent: f64| before * (1.0 + percent / 100.0);
    (before > 0.0).then_some(())?;
    interval.high.is_finite().then(|| (at(interval.low), at(interval.high)))
}
