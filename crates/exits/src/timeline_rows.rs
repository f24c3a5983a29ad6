//! A timeline as rows: grouped, sorted, and summed into as many columns as fit.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::{Grouping, Key, Slice, Span, Timeline, Vcpu, Whose};

/// The most columns of a timeline: more than anything draws.
const MOST_COLUMNS: u64 = 1 << 16;

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

/// A part of the time axis that is drawn as one, with its slices and its observed time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The indices of the slices; empty before the first exit and after the last one.
    pub slices: Range<usize>,
    /// The part of the time axis.
    pub span: Span,
    /// The time in it that was observed, in nanoseconds; zero between recordings.
    pub observed_ns: u64,
}

impl Column {
    /// The figure of `slices` in this column: exits, or nanoseconds.
    #[must_use]
    pub fn sum(&self, slices: &[Slice], figure: TimelineFigure) -> u64 {
        let part = slices.get(self.slices.clone()).unwrap_or_default();
        part.iter().fold(0, |sum, &slice| sum.saturating_add(figure.of(slice)))
    }

    /// The figure of `slices` for each nanosecond of this column that was observed; zero if none was.
    #[must_use]
    pub fn per_ns(&self, slices: &[Slice], figure: TimelineFigure) -> f64 {
        if self.observed_ns == 0 {
            return 0.0;
        }
        self.sum(slices, figure) as f64 / self.observed_ns as f64
    }

    fn extend(&mut self, next: &Self) {
        self.slices.end = next.slices.end;
        self.span = self.span.join(next.span);
        self.observed_ns = self.observed_ns.saturating_add(next.observed_ns);
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

    /// At most `count` columns from the beginning of the first of the `observed` spans, which do not overlap, to the end
    /// of the last one. Each has the width of the same number of slices or of one more. Exits outside are in the first or
    /// last column. None without exits, or without a duration.
    ///
    /// A recording begins and ends within a slice. A column that was observed for less than half as long as its
    /// neighbour is merged with it, because a rate over such a short time would be random.
    #[must_use]
    pub fn columns(&self, count: usize, observed: &[Span]) -> Vec<Column> {
        let whole = observed.iter().copied().reduce(Span::join);
        let Some(whole) = whole.filter(|whole| self.length > 0 && whole.length_ns() > 0) else {
            return Vec::new();
        };
        // Slices by their number since the beginning of the clock, also those before the first exit and after the last.
        let start = whole.first_ns / self.width_ns;
        let all = (whole.last_ns - 1) / self.width_ns - start + 1;
        let count = (count as u64).clamp(1, all.min(MOST_COLUMNS));
        let edge = |number: u64| start + number * all / count;
        let is_short = |one_ns: u64, other_ns: u64| one_ns > 0 && one_ns < other_ns / 2;
        let mut columns: Vec<Column> = Vec::new();
        let (mut previous_ns, mut is_joined) = (0, false);
        for number in 0..count {
            let next = self.column(edge(number)..edge(number + 1), observed, whole);
            let next_ns = next.observed_ns;
            let joins = is_short(next_ns, previous_ns) || (!is_joined && is_short(previous_ns, next_ns));
            match columns.last_mut() {
                Some(last) if joins => last.extend(&next),
                _ => columns.push(next),
            }
            (previous_ns, is_joined) = (next_ns, joins);
        }
        if let Some(first) = columns.first_mut() {
            first.slices.start = 0;
        }
        if let Some(last) = columns.last_mut() {
            last.slices.end = self.length;
        }
        columns
    }

    /// The column of these slices of the clock.
    fn column(&self, slices: Range<u64>, observed: &[Span], whole: Span) -> Column {
        let time = |number: u64| number.saturating_mul(self.width_ns).clamp(whole.first_ns, whole.last_ns);
        let index = |number: u64| {
            let index = number.saturating_sub(self.start_ns / self.width_ns);
            usize::try_from(index).map_or(self.length, |index| index.min(self.length))
        };
        let (first_ns, last_ns) = (time(slices.start), time(slices.end));
        let part = |span: &Span| span.last_ns.min(last_ns).saturating_sub(span.first_ns.max(first_ns));
        Column {
            slices: index(slices.start)..index(slices.end),
            span: Span { first_ns, last_ns },
            observed_ns: observed.iter().map(part).fold(0, u64::saturating_add),
        }
    }
}

#[cfg(test)]
#[path = "timeline_rows_tests.rs"]
mod tests;
