//! The columns of each page.

use exits::Isa;

use super::columns::{Column, Content};
use super::page::Page;
use super::rows::Row;
use super::sort::Sort;
use super::state::Top;
use crate::format::{self, NONE};

/// The width of most rates, shares, times and numbers.
const RATE: usize = 8;
const SHARE: usize = 6;
const TIME: usize = 7;
const NUMBER: usize = 0;
/// The minimum width of a curve.
const NARROWEST_CURVE: usize = 8;

/// The columns of the current page.
pub(super) fn columns(top: &Top, rows: &[Row]) -> Vec<Column> {
    let sort = top.view().sort();
    let by = Columns { top, rows, ns: top.shown_ns(), sort };
    let curves = by.column("", Content::Curves(NARROWEST_CURVE), Some(3), None);
    match top.view().page {
        Page::Vms => by.of_vms(curves),
        Page::Vcpus(_) => by.of_vcpus(curves),
        page @ (Page::Reasons(_) | Page::Reason(..)) => by.of_kinds(page, curves),
    }
}

/// A share of time. Above 100 % it includes time before the interval, of an exit that began before it.
pub(super) fn share(percent: f64) -> String {
    if percent > 100.5 { ">100 %".to_owned() } else { format::share(percent) }
}

struct Columns<'a> {
    top: &'a Top,
    rows: &'a [Row],
    ns: u64,
    sort: Sort,
}

impl Columns<'_> {
    fn of_vms(&self, curves: Column) -> Vec<Column> {
        let facts = |row: &Row| self.top.vms.get(row.key.whose.vm()).map(|vm| &vm.facts);
        let is_named = |row: &Row| facts(row).is_some_and(|facts| facts.name.is_some());
        let process = |row: &Row| row.key.whose.vm().map_or_else(|| NONE.to_owned(), |vm| vm.to_string());
        let virtualized = |row: &Row| {
            let known = facts(row).and_then(|facts| facts.interrupt_virtualization.as_deref());
            crate::text::printable(known.unwrap_or("?"))
        };
        let mut columns = vec![self.names("VM", 10, None, &|row| row.name.clone(), Some(Sort::Name))];
        // A VM without a name is named by its process, so its pid is not repeated.
        if self.rows.iter().any(is_named) {
            columns.push(self.figures(("pid", NUMBER), Some(1), &process, None));
        }
        columns.push(self.figures(("vCPUs", NUMBER), Some(2), &|row| row.vcpus.to_string(), None));
        columns.extend(self.pace());
        let title = match self.top.source.isa {
            Isa::Vmx => "APICv",
            Isa::Svm => "AVIC",
        };
        columns.push(self.names(title, 6, Some(5), &virtualized, None));
        columns.push(self.names("top reason", 10, Some(4), &|row| most(row), None));
        columns.push(curves);
        columns
    }

    fn of_vcpus(&self, curves: Column) -> Vec<Column> {
        let thread = |row: &Row| {
            let thread = row.key.whose.vcpu().and_then(|vcpu| vcpu.thread);
            thread.map_or_else(|| NONE.to_owned(), |thread| thread.to_string())
        };
        let mut columns = vec![self.names("vCPU", 8, None, &|row| row.name.clone(), Some(Sort::Name))];
        columns.push(self.figures(("thread", NUMBER), Some(2), &thread, None));
        columns.extend(self.pace());
        columns.push(self.figures(("mean", TIME), Some(1), &mean, None));
        columns.push(self.names("top reason", 10, Some(4), &|row| most(row), None));
        columns.push(curves);
        columns
    }

    fn of_kinds(&self, page: Page, curves: Column) -> Vec<Column> {
        let title = match page {
            Page::Reason(..) => page.accesses().map_or("vCPU", |accesses| accesses.title),
            _ => "exit reason",
        };
        let whole: u64 = self.rows.iter().map(|row| row.exits.count).sum();
        let of_all =
            |row: &Row| format::share_of((whole > 0).then(|| row.exits.count as f64 / whole as f64 * 100.0));
        let name = |row: &Row| {
            let sleep = if row.is_sleep && matches!(page, Page::Reasons(_)) { " (halted)" } else { "" };
            format!("{}{sleep}", row.name)
        };
        let quantile = |row: &Row, q| format::time_of(row.exits.handling.quantile_ns(q));
        vec![
            self.names(title, 12, None, &name, Some(Sort::Name)),
            self.rates(),
            self.figures(("of all", SHARE), Some(3), &of_all, None),
            self.figures(
                ("of vCPU", SHARE),
                Some(7),
                &|row| share(row.time_percent(self.ns)),
                Some(Sort::Time),
            ),
            self.figures(("p50", TIME), Some(5), &|row| quantile(row, 0.5), None),
            self.figures(("mean", TIME), Some(2), &mean, Some(Sort::Mean)),
            self.figures(("p99", TIME), Some(6), &|row| quantile(row, 0.99), Some(Sort::P99)),
            self.figures(
                ("max", TIME),
                Some(1),
                &|row| format::time_of(row.exits.handling.max_ns()),
                Some(Sort::Max),
            ),
            curves,
        ]
    }

    fn pace(&self) -> [Column; 3] {
        [
            self.rates(),
            self.figures(("host", SHARE), Some(7), &|row| share(row.host_percent(self.ns)), Some(Sort::Time)),
            self.figures(
                ("halted", SHARE),
                Some(6),
                &|row| share(row.halted_percent(self.ns)),
                Some(Sort::Halted),
            ),
        ]
    }

    fn rates(&self) -> Column {
        let rate = |row: &Row| format::rate_over(row.exits.count, self.ns);
        self.figures(("exits", RATE), None, &rate, Some(Sort::Exits))
    }

    fn names(
        &self,
        title: &str,
        least: usize,
        rank: Option<u8>,
        cell: &dyn Fn(&Row) -> String,
        sort: Option<Sort>,
    ) -> Column {
        self.column(title, Content::Names(self.rows.iter().map(cell).collect(), least), rank, sort)
    }

    fn figures(
        &self,
        (title, least): (&str, usize),
        rank: Option<u8>,
        cell: &dyn Fn(&Row) -> String,
        sort: Option<Sort>,
    ) -> Column {
        self.column(title, Content::Figures(self.rows.iter().map(cell).collect(), least), rank, sort)
    }

    fn column(&self, title: &str, content: Content, rank: Option<u8>, sort: Option<Sort>) -> Column {
        Column { title: title.to_owned(), content, rank, is_sorted_by: sort == Some(self.sort) }
    }
}

fn most(row: &Row) -> String {
    match row.most {
        _ if row.has_ended => "(ended)".to_owned(),
        Some(reason) => reason.to_string(),
        None => NONE.to_owned(),
    }
}

fn mean(row: &Row) -> String {
    row.exits.handling.mean_ns().map_or_else(|| NONE.to_owned(), format::time)
}
