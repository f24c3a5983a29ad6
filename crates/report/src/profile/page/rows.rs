//! Rows of exits as tables of a page.

use exits::{Dimension, Exits, Grouping, Key, Profile, Table};
use maud::{Markup, html};

use crate::format::{NONE, count, counted, per_second, share_of, time, time_of, whole_time};
use crate::page::table::{Cell, Column, render};
use crate::recordings::words::{vcpu, vm};
use crate::text::printable;

/// The number of rows shown before the rest is collapsed.
const MOST_ROWS: usize = 12;

/// The rows of `table`, which was made from `profile`, over `observed_ns` nanoseconds.
pub(crate) fn exits(caption: &str, table: &Table, profile: &Profile, observed_ns: u64) -> Markup {
    let all: Vec<&Exits> =
        table.rows().iter().map(|row| &row.exits).chain(table.rest().map(|rest| &rest.exits)).collect();
    let mut columns = names(table, profile);
    let figures = |title: &str, cell: &dyn Fn(&Exits) -> Cell| {
        Column::figures(title, all.iter().copied().chain([table.total()]).map(cell).collect())
    };
    let times = |exits: &Exits, at: f64| {
        let ns = (exits.handling.count() > 0).then(|| exits.handling.quantile_ns(at)).flatten();
        Cell::figure(&time_of(ns), ns.map(|ns| ns as f64))
    };
    columns.push(figures("Exits", &|exits| Cell::figure(&count(exits.count), Some(exits.count as f64))));
    if observed_ns > 0 {
        columns.push(figures("A second", &|exits| {
            let rate = exits.count as f64 / observed_ns as f64 * 1e9;
            Cell::figure(&per_second(rate), Some(rate))
        }));
    }
    columns.push(figures("Of all", &|exits| {
        let percent = table.samples_percent(exits);
        Cell::figure(&share_of(percent), percent)
    }));
    columns.push(figures("Time", &|exits| {
        let ns = exits.handling.total_ns();
        Cell::figure(&whole_time(ns), Some(ns as f64))
    }));
    let bars = all.iter().map(|exits| {
        let percent = table.time_percent(exits);
        Cell::bar(percent.unwrap_or(0.0) / 100.0, &format!("{} of the time", share_of(percent)))
    });
    columns.push(Column::drawings(html! { "Share of the time" }, bars.collect()));
    columns.push(figures("%", &|exits| {
        let percent = table.time_percent(exits);
        Cell::figure(share_of(percent).trim_end_matches(" %"), percent)
    }));
    columns.push(figures("p50", &|exits| times(exits, 0.5)));
    columns.push(figures("Mean", &|exits| {
        let mean = exits.handling.mean_ns();
        Cell::figure(&mean.map_or_else(|| NONE.to_owned(), time), mean)
    }));
    columns.push(figures("p99", &|exits| times(exits, 0.99)));
    columns.push(figures("p99.9", &|exits| times(exits, 0.999)));
    columns.push(figures("Max", &|exits| {
        Cell::figure(&time_of(exits.handling.max_ns()), exits.handling.max_ns().map(|ns| ns as f64))
    }));
    render(caption, &columns, 1)
}

/// The table of accesses of one kind. A long one is collapsed after its first rows.
pub(crate) fn accesses(title: &str, dimension: Dimension, profile: &Profile, observed_ns: u64) -> Markup {
    let Ok(grouping) = Grouping::new([dimension]) else { return html! {} };
    let mut table = Table::new(profile, grouping);
    if table.is_empty() {
        return html! {};
    }
    table.sort(exits::Order::Time);
    let whole = table.clone();
    table.keep_top(MOST_ROWS);
    html! {
        h3 { (title) }
        (exits(title, &table, profile, observed_ns))
        @if table.rest().is_some() {
            details.all-rows {
                summary { "All " (count(whole.rows().len() as u64)) " rows" }
                (exits(title, &whole, profile, observed_ns))
            }
        }
    }
}

/// A function that returns the text of a row in a column of names.
type Naming<'a> = Box<dyn Fn(Key) -> String + 'a>;

fn names(table: &Table, profile: &Profile) -> Vec<Column> {
    let grouping = table.grouping();
    let rest = table.rest().map(|rest| format!("other ({})", counted(rest.rows as u64, "row")));
    let mut columns: Vec<(&str, Naming<'_>)> = Vec::new();
    if grouping.tells_vms_apart() {
        columns.push(("VM", Box::new(|key| vm(key.whose.vm(), profile))));
    }
    if grouping.has(Dimension::Vcpu) {
        columns.push((
            "vCPU",
            Box::new(|key| key.whose.vcpu().map_or_else(|| NONE.to_owned(), |of| vcpu(of.number, of.thread))),
        ));
    }
    if grouping.has(Dimension::Reason) || !grouping.access_kinds().is_empty() {
        let title = if grouping.has(Dimension::Reason) { "Exit reason" } else { "Access" };
        columns.push((title, Box::new(|key| printable(&key.what.to_string()))));
    }
    let columns = columns.into_iter().enumerate().map(|(at, (title, name))| {
        let mut cells: Vec<Cell> = table.rows().iter().map(|row| Cell::name(&name(row.key))).collect();
        let sum = |name: &str| Cell::figure(if at == 0 { name } else { "" }, None);
        cells.extend(rest.iter().map(|rest| sum(rest)));
        cells.push(sum("all"));
        Column::names(title, cells)
    });
    columns.collect()
}
