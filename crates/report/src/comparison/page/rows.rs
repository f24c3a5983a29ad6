//! The tables of a comparison.

use conclusions::RelativeChange;
use conclusions::profile_comparison::{ComparedRow, Effect, Estimate, Figures};
use maud::{Markup, html};

use crate::comparison::compared::Compared;
use crate::comparison::figures;
use crate::format::{NONE, count, counted, share_of, time, time_of, whole_time};
use crate::page::axis::percent;
use crate::page::table::{Cell, Column, render};
use crate::text::{capital, minus};

type Of<'a> = &'a dyn Fn(&ComparedRow) -> Option<Estimate>;
type Shown<'a> = &'a dyn Fn(&Figures) -> (String, Option<f64>);

pub(super) fn section(compared: &Compared<'_>) -> Markup {
    let comparison = compared.comparison;
    let unit = figures::unit(comparison.per);
    html! {
        @if !comparison.rows.is_empty() {
            section {
                h2 { "In figures" }
                h3 { "Exits " (unit) }
                (rates(compared))
                @if comparison.total.time.is_some() {
                    h3 { "Handling time " (unit) }
                    (times(compared))
                }
                @if comparison.has_times() {
                    h3 { "Handling time of one exit" }
                    (means(compared))
                }
                @if let Some(rest) = comparison.rest {
                    p.muted {
                        (counted(rest.rows as u64, "row")) " that changed less not listed: "
                        (count(rest.before.exits)) " exits before, " (count(rest.after.exits)) " after."
                    }
                }
            }
        }
    }
}

fn rates(compared: &Compared<'_>) -> Markup {
    let per = compared.comparison.per;
    let rate = |figures: &Figures| match figures.rate_bound {
        Some(bound) => (format!("<{}", figures::rate(bound, per)), Some(0.0)),
        None => (figures::rate(figures.rate, per), Some(figures.rate)),
    };
    let exits = |figures: &Figures| (count(figures.exits), Some(figures.exits as f64));
    let mut columns = names(compared);
    columns.extend(both(compared, ["Before", "After"], &rate));
    columns.extend(changes(compared, &|row| Some(row.rate)));
    columns.extend(both(compared, ["Exits before", "Exits after"], &exits));
    render("Exits before and after", &columns, 1)
}

fn times(compared: &Compared<'_>) -> Markup {
    let rate = |figures: &Figures| (time(figures.time_rate_ns), Some(figures.time_rate_ns));
    let part = |figures: &Figures| (share_of(figures.time_percent), figures.time_percent);
    let all = |figures: &Figures| (whole_time(figures.time_ns), Some(figures.time_ns as f64));
    let mut columns = names(compared);
    columns.extend(both(compared, ["Before", "After"], &rate));
    columns.extend(changes(compared, &|row| row.time));
    columns.extend(both(compared, ["Share before", "Share after"], &part));
    columns.extend(both(compared, ["In all before", "In all after"], &all));
    render("Handling time before and after", &columns, 1)
}

fn means(compared: &Compared<'_>) -> Markup {
    let mean = |figures: &Figures| (figures.mean_ns.map_or_else(|| NONE.to_owned(), time), figures.mean_ns);
    let p50 = |figures: &Figures| (time_of(figures.p50_ns), figures.p50_ns.map(|ns| ns as f64));
    let p99 = |figures: &Figures| (time_of(figures.p99_ns), figures.p99_ns.map(|ns| ns as f64));
    let mut columns = names(compared);
    columns.extend(both(compared, ["Mean before", "Mean after"], &mean));
    columns.extend(changes(compared, &|row| row.mean));
    columns.extend(both(compared, ["p50 before", "p50 after"], &p50));
    columns.extend(both(compared, ["p99 before", "p99 after"], &p99));
    render("Handling time of one exit before and after", &columns, 1)
}

/// The rows, and the total at the end.
fn rows<'a>(compared: &Compared<'a>) -> impl Iterator<Item = &'a ComparedRow> {
    let comparison = compared.comparison;
    comparison.rows.iter().chain([&comparison.total])
}

fn names(compared: &Compared<'_>) -> Vec<Column> {
    let titles = compared.titles();
    let columns = titles.iter().enumerate().map(|(at, title)| {
        let rows = &compared.comparison.rows;
        let mut cells: Vec<Cell> =
            rows.iter().map(|row| Cell::name(&compared.names(&row.subject)[at])).collect();
        cells.push(Cell::figure(if at == 0 { "all" } else { "" }, None));
        Column::names(&capital(title), cells)
    });
    columns.collect()
}

fn both(compared: &Compared<'_>, titles: [&str; 2], shown: Shown<'_>) -> [Column; 2] {
    [0, 1].map(|side: usize| {
        let cells = rows(compared).map(|row| {
            let (text, value) = shown(if side == 0 { &row.before } else { &row.after });
            Cell::figure(&text, value)
        });
        Column::figures(titles[side], cells.collect())
    })
}

fn changes(compared: &Compared<'_>, of: Of<'_>) -> Vec<Column> {
    let span = Span::new(rows(compared).filter_map(of));
    let change = rows(compared).map(|row| {
        let estimate = of(row);
        let value = estimate.map(|estimate| match estimate.change {
            RelativeChange::Percent(percent) => percent,
            RelativeChange::FromNothing => f64::MAX,
            RelativeChange::StillNothing => 0.0,
        });
        Cell::figure(&figures::change(estimate), value).class(tone(estimate, row.idle))
    });
    let interval = rows(compared).map(|row| {
        let low = of(row).and_then(|estimate| estimate.interval).map(|interval| interval.low);
        Cell::figure(&figures::interval(of(row)), low)
    });
    let plot = rows(compared).map(|row| Cell::drawing(span.plot(&compared.name(&row.subject), of(row))));
    let basis = rows(compared).map(|row| Cell::name(figures::basis(of(row))));
    vec![
        Column::figures("Change", change.collect()),
        Column::figures("95 % interval", interval.collect()),
        Column::drawings(span.labels(), plot.collect()),
        Column::names("By", basis.collect()),
    ]
}

/// The drawn range of changes, in percent.
struct Span {
    low: f64,
    high: f64,
}

impl Span {
    /// The range of the estimates, rounded to multiples of ten. It includes zero and ends at +100 %, because larger changes
    /// would hide the other rows.
    fn new(estimates: impl Iterator<Item = Estimate>) -> Self {
        let ends: Vec<f64> = estimates
            .filter_map(|estimate| estimate.interval)
            .flat_map(|interval| {
                [interval.low, if interval.high.is_finite() { interval.high } else { 100.0 }]
            })
            .collect();
        let low = ends.iter().copied().fold(-10.0, f64::min).max(-100.0);
        let high = ends.iter().copied().fold(10.0, f64::max).min(100.0);
        Self { low: (low / 10.0).floor() * 10.0, high: (high / 10.0).ceil() * 10.0 }
    }

    fn across(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    fn labels(&self) -> Markup {
        html! {
            span.hidden { "Change drawn" }
            svg width="100%" height="14" aria-hidden="true" {
                text.tick x="0" y="11" { (minus(&format!("{:.0} %", self.low))) }
                @if (0.4..0.7).contains(&self.across(0.0)) {
                    text.tick x=(percent(self.across(0.0))) y="11" text-anchor="middle" { "0" }
                }
                text.tick x="100%" y="11" text-anchor="end" { (format!("+{:.0} %", self.high)) }
            }
        }
    }

    fn plot(&self, name: &str, estimate: Option<Estimate>) -> Markup {
        let zero = percent(self.across(0.0));
        let label = format!("{name}: {}, {}", figures::change(estimate), figures::interval(estimate));
        let interval = estimate.and_then(|estimate| estimate.interval);
        let change = estimate.and_then(|estimate| estimate.change.percent());
        html! {
            svg role="img" width="100%" height="18" aria-label=(label) {
                title { (label) }
                line.axis x1=(zero) x2=(zero) y1="0" y2="18" {}
                @if let Some(interval) = interval {
                    line.interval x1=(percent(self.across(interval.low))) x2=(percent(self.across(interval.high))) y1="9" y2="9" {}
                }
                // An arrow if the interval extends beyond the range.
                @if interval.is_some_and(|interval| interval.high > self.high) {
                    svg x="100%" y="4" width="1" height="10" overflow="visible" { path.best d="M-7 0l7 5-7 5z" {} }
                }
                @if let Some(change) = change.filter(|&change| change <= self.high) {
                    circle.best cx=(percent(self.across(change))) cy="9" r="3.5" {}
                }
            }
        }
    }
}

/// The colour of a change.
fn tone(estimate: Option<Estimate>, is_idle: bool) -> &'static str {
    match estimate.map(|estimate| estimate.effect()) {
        Some(Effect::Less) if !is_idle => "best good",
        Some(Effect::More) if !is_idle => "best bad",
        _ => "best",
    }
}
