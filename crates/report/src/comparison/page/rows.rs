//! The tables of a comparison.

use conclusions::RelativeChange;
use conclusions::profile_comparison::{ComparedRow, Effect, Estimate, Figures};
use maud::{Markup, html};

use crate::comparison::compared::Compared;
use crate::comparison::figures;
use crate::format::{NONE, count, counted, share_of, time, time_of, whole_time};
use crate::page::span::Span;
use crate::page::table::{Cell, Column, render};
use crate::text::capital;

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
    let estimates = rows(compared).filter_map(of);
    let span = Span::new(estimates.map(|estimate| (estimate.change.percent(), estimate.interval)));
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
    let plot = rows(compared).map(|row| {
        let estimate = of(row);
        let (name, change) = (compared.name(&row.subject), estimate.and_then(|one| one.change.percent()));
        let label = format!("{name}: {}, {}", figures::change(estimate), figures::interval(estimate));
        Cell::drawing(span.plot(&label, change, estimate.and_then(|one| one.interval)))
    });
    let title = html! { span.hidden { "Change drawn" } (span.labels(" %")) };
    let basis = rows(compared).map(|row| Cell::name(figures::basis(of(row))));
    vec![
        Column::figures("Change", change.collect()),
        Column::figures("95 % interval", interval.collect()),
        Column::drawings(title, plot.collect()),
        Column::names("By", basis.collect()),
    ]
}

/// The colour of a change.
fn tone(estimate: Option<Estimate>, is_idle: bool) -> &'static str {
    match estimate.map(|estimate| estimate.effect()) {
        Some(Effect::Less) if !is_idle => "best good",
        Some(Effect::More) if !is_idle => "best bad",
        _ => "best",
    }
}
