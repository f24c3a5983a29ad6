//! The table of `exitless report`.

use exits::{AccessKind, Dimension, Exits, Table};
use traces::Recordings;

use super::empty::why_empty;
use crate::format::{NONE, count, counted, share, share_of, time, time_of, whole_time};
use crate::recordings::terminal::head;
use crate::recordings::words::{notes, vcpu, vm};
use crate::terminal::columns::{Column, drawn};
use crate::terminal::labels::listed;
use crate::terminal::{NARROWEST, wrapped};
use crate::text::printable;

/// The exits of `recordings` in the rows of `table`, which was made from their profile.
///
/// No line is wider than `width` columns if `width` is at least 80; less important columns are left out if needed. Without
/// `colour` it has no escape sequences.
#[must_use]
pub fn terminal(recordings: &Recordings, table: &Table, width: usize, colour: bool) -> String {
    let width = width.max(NARROWEST);
    let mut text = head(recordings, width, colour);
    text.push('\n');
    if table.is_empty() {
        text += &wrapped(&why_empty(recordings, table), width, "", "");
    } else {
        text += &drawn(columns(recordings, table), width, true, colour);
    }
    let mut notes = notes(recordings);
    if table.unsorted().count > 0 {
        notes.push(format!(
            "Accesses of any kind in no row: {}. The recording has more different ones than are kept apart.",
            count(table.unsorted().count)
        ));
    }
    text + &listed("Notes", &notes, width)
}

fn columns(recordings: &Recordings, table: &Table) -> Vec<Column> {
    let mut columns = names(recordings, table);
    let all: Vec<&Exits> = table
        .rows()
        .iter()
        .map(|row| &row.exits)
        .chain(table.rest().map(|rest| &rest.exits))
        .chain([table.total()])
        .collect();
    let cells = |cell: &dyn Fn(&Exits) -> String| all.iter().map(|exits| cell(exits)).collect::<Vec<_>>();
    let quantile = |at: f64| cells(&|exits| time_of(exits.handling.quantile_ns(at)));

    columns.push(Column::figures("samples", cells(&|exits| count(exits.handling.count()))));
    // Exits at the end of the recording are in the notes: they alone do not justify a column.
    let without_time = table.total().count.saturating_sub(table.total().handling.count());
    if without_time > recordings.profile.losses.exits_at_the_end {
        columns.push(Column::figures("seen", cells(&|exits| count(exits.count))).may_go(2));
    }
    columns.push(Column::figures("of all", cells(&|exits| share_of(table.samples_percent(exits)))).may_go(4));
    columns.push(Column::figures("of time", cells(&|exits| share_of(table.time_percent(exits)))));
    columns.push(Column::figures("min", cells(&|exits| time_of(exits.handling.min_ns()))).may_go(3));
    columns.push(Column::figures("p50", quantile(0.5)).may_go(5));
    let mean = |exits: &Exits| exits.handling.mean_ns().map_or_else(|| NONE.to_owned(), time);
    columns.push(Column::figures("mean", cells(&mean)));
    let error =
        |exits: &Exits| exits.handling.relative_error_percent().map_or_else(|| NONE.to_owned(), share);
    columns.push(Column::figures("+-", cells(&error)).may_go(1));
    columns.push(Column::figures("p99", quantile(0.99)).may_go(6));
    columns.push(Column::figures("p99.9", quantile(0.999)).may_go(0));
    columns.push(Column::figures("max", cells(&|exits| time_of(exits.handling.max_ns()))));
    if let Some(ns) = table.threshold_ns() {
        let title = format!("≥ {}", whole_time(ns));
        columns.push(Column::figures(title, cells(&|exits| count(exits.handling.at_least(ns)))));
    }
    columns
}

/// The columns that identify rows. The first one also has the names of the sums.
fn names(recordings: &Recordings, table: &Table) -> Vec<Column> {
    let grouping = table.grouping();
    let rows = || table.rows().iter().map(|row| row.key);
    let mut columns: Vec<(&'static str, Vec<String>)> = Vec::new();
    if grouping.tells_vms_apart() {
        columns.push(("VM", rows().map(|key| vm(key.whose.vm(), &recordings.profile)).collect()));
    }
    if grouping.has(Dimension::Vcpu) {
        let cells = rows()
            .map(|key| key.whose.vcpu().map_or_else(|| NONE.to_owned(), |of| vcpu(of.number, of.thread)));
        columns.push(("vCPU", cells.collect()));
    }
    if grouping.has(Dimension::Reason) || !grouping.access_kinds().is_empty() {
        columns.push((title(table), rows().map(|key| printable(&key.what.to_string())).collect()));
    }
    let sums = table.rest().map(|rest| format!("other ({})", counted(rest.rows as u64, "row")));
    let sums: Vec<String> = sums.into_iter().chain(["all".to_owned()]).collect();
    let first = |at: usize, sum: &String| if at == 0 { sum.clone() } else { String::new() };
    let last = columns.len().saturating_sub(1);
    let is_access = |at: usize| at == last && !grouping.access_kinds().is_empty();
    let columns = columns.into_iter().enumerate().map(|(at, (title, mut cells))| {
        cells.extend(sums.iter().map(|sum| first(at, sum)));
        if is_access(at) { Column::whole_names(title, cells) } else { Column::names(title, cells) }
    });
    columns.collect()
}

fn title(table: &Table) -> &'static str {
    let kinds: Vec<_> = table.grouping().access_kinds().into_iter().collect();
    match kinds[..] {
        [] => "exit reason",
        [AccessKind::Port] => "port",
        [AccessKind::Mmio] => "address",
        [AccessKind::Msr] => "MSR",
        [AccessKind::Apic, AccessKind::Unaccelerated] => "APIC register",
        [AccessKind::IncompleteIpi] => "IPI that failed",
        [AccessKind::Nested] => "nested exit",
        _ => "access",
    }
}
