//! A timeline as rows: grouped, sorted, and summed into as many columns as fit.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::{Grouping, Key, Slice, Span, Timeline, Vcpu, Whose};

/// Exits of one kind over time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineRow {
    /// Its key.
    pub key: Key,
    /// Its slices, as many as the timeline has.
    pub slices: Vec<Slice>,
    /// The sum of all slices.
    pub total: Slice,
}

/// The figure by which the rows of a timeline are sorted and drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TimelineFigure {
    /// Exits.
    #[default]
    Exits,
    /// Handling time.
    Time,
}

impl TimelineFigure {
    /// The figure of a slice: exits, or nanoseconds.
    #[must_use]
    pub const fn of(self, slice: Slice) -> u64 {
        match self {
            Self::Exits => slice.count,
            Self::Time => slice.handling_ns,
        }
    }
}

/// The rows that [`TimelineRows::keep_top`] removed, as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineRest {
    /// The number of rows.
    pub rows: usize,
    /// The vCPUs whose exits they count.
    pub whose: BTreeSet<Whose>,
    /// Their summed slices.
    pub slices: Vec<Slice>,
    /// The sum of all slices.
    pub total: Slice,
}

/// A timeline in rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineRows {
    start_ns: u64,
    width_ns: u64,
    length: usize,
    rows: Vec<TimelineRow>,
    rest: Option<TimelineRest>,
}

/// Neighbouring slices that are drawn as one, and their observed time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The indices of the slices.
    pub slices: Range<usize>,
    /// The time in them that was observed, in nanoseconds; never zero.
    pub observed_ns: u64,
}

impl Column {
    /// The figure of `slices` in this column: exits, or nanoseconds.
    #[must_use]
    pub fn sum(&self, slices: &[Slice], figure: TimelineFigure) -> u64 {
        let part = slices.get(self.slices.clone()).unwrap_or_default();
        part.iter().fold(0, |sum, &slice| sum.saturating_add(figure.of(slice)))
    }
}

impl TimelineRows {
    /// The exits of `timeline` by VM, by reason or by both, as `grouping` says; the row with the largest `figure`
    /// first. A timeline has neither vCPUs nor accesses, so grouping by vCPU is by VM, and accesses are not
    /// distinguished.
    #[must_use]
    pub fn new(timeline: &Timeline, grouping: &Grouping, figure: TimelineFigure) -> Self {
        let mut rows: BTreeMap<Key, (Vec<Slice>, Slice)> = BTreeMap::new();
        for (series, slices) in timeline.iter() {
            let vcpu = Vcpu { vm: series.vm, number: None, thread: None };
            let key = Key { whose: grouping.whose(vcpu), what: grouping.what(series.reason) };
            let (sums, total) =
                rows.entry(key).or_insert_with(|| (vec![Slice::default(); timeline.len()], Slice::default()));
            for (sum, slice) in sums.iter_mut().zip(slices) {
                sum.merge(slice);
                total.merge(slice);
            }
        }
        let rows = rows.into_iter().map(|(key, (slices, total))| TimelineRow { key, slices, total });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by(|a, b| figure.of(b.total).cmp(&figure.of(a.total)).then(a.key.cmp(&b.key)));
        let (start_ns, width_ns) = (timeline.start_ns(), timeline.width_ns());
        Self { start_ns, width_ns, length: timeline.len(), rows, rest: None }
    }

    /// Keeps the first `count` rows; the others become one.
    pub fn keep_top(&mut self, count: usize) {
        if self.rows.len() <= count {
            return;
        }
        let nothing = TimelineRest {
            rows: 0,
            whose: BTreeSet::new(),
            slices: vec![Slice::default(); self.length],
            total: Slice::default(),
        };
        let rest = self.rest.get_or_insert(nothing);
        for row in self.rows.drain(count..) {
            rest.rows += 1;
            rest.whose.insert(row.key.whose);
            rest.total.merge(row.total);
            rest.slices.iter_mut().zip(row.slices).for_each(|(sum, slice)| sum.merge(slice));
        }
    }

    /// The rows, in order.
    #[must_use]
    pub fn rows(&self) -> &[TimelineRow] {
        &self.rows
    }

    /// The rows that [`Self::keep_top`] removed.
    #[must_use]
    pub fn rest(&self) -> Option<&TimelineRest> {
        self.rest.as_ref()
    }

    /// The start of the first slice, in nanoseconds of the source's clock.
    #[must_use]
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// The width of a slice in nanoseconds.
    #[must_use]
    pub fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// The number of slices of each row.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Tests whether there are no exits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.rest.is_none()
    }

    /// At most `count` columns, each with the same number of slices or one more.
    ///
    /// A recording begins and ends within a slice. A column that was observed for less than half of its width is
    /// merged with its neighbour, because a rate over such a short time would be random.
    #[must_use]
    pub fn columns(&self, count: usize, observed: Span) -> Vec<Column> {
        let count = count.clamp(1, self.length.max(1)).min(self.length);
        let mut columns: Vec<Column> = (0..count)
            .map(|column| column * self.length / count..(column + 1) * self.length / count)
            .map(|slices| self.column(slices, observed))
            .collect();
        let is_short = |column: &Column| {
            column.observed_ns < (column.slices.len() as u64).saturating_mul(self.width_ns) / 2
        };
        if columns.len() > 1 && columns.first().is_some_and(is_short) {
            let first = columns.remove(0);
            columns[0] = self.column(first.slices.start..columns[0].slices.end, observed);
        }
        if columns.len() > 1 && columns.last().is_some_and(is_short) {
            let end = columns.pop().map_or(0, |last| last.slices.end);
            if let Some(last) = columns.last_mut() {
                *last = self.column(last.slices.start..end, observed);
            }
        }
        columns
    }

    fn column(&self, slices: Range<usize>, observed: Span) -> Column {
        let edge =
            |number: usize| self.start_ns.saturating_add((number as u64).saturating_mul(self.width_ns));
        let from = edge(slices.start).max(observed.first_ns);
        let to = edge(slices.end).min(observed.last_ns);
        Column { slices, observed_ns: to.saturating_sub(from).max(1) }
    }
}

#[cfg(test)]
#[path = "timeline_rows_tests.rs"]
mod tests;
