//! The times at which events were lost, by CPU.

use rustc_hash::FxHashMap;

/// The most entries of a list that may be out of order; only corrupt recordings have more, and those that were joined
/// although the clock went back between them.
const MOST_OUT_OF_ORDER: usize = 1024;

/// The times of losses: by CPU, and those that concern vCPUs on any CPU.
#[derive(Debug, Default)]
pub(crate) struct LossMarks {
    by_cpu: FxHashMap<u16, Spans>,
    /// CPUs without an event since their last loss, with the time of the last event before it.
    open: FxHashMap<u16, u64>,
    anywhere: Spans,
    /// Events may be missing at any time.
    always: bool,
}

/// Time spans.
#[derive(Debug, Default)]
struct Spans {
    /// By start.
    sorted: Vec<Span>,
    /// The start of the first and the end of the last of those that were too far out of order.
    around: Option<(u64, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    from_ns: u64,
    to_ns: u64,
    /// The maximum of `to_ns` up to this one.
    latest_ns: u64,
}

impl Spans {
    fn add(&mut self, from_ns: u64, to_ns: u64) {
        // CPUs are read one after the other and each is in order, so spans are nearly in order.
        let at = self.sorted.partition_point(|span| span.from_ns <= from_ns);
        if self.sorted.len() - at >= MOST_OUT_OF_ORDER {
            let (first_ns, last_ns) = self.around.unwrap_or((from_ns, to_ns));
            self.around = Some((first_ns.min(from_ns), last_ns.max(to_ns)));
            return;
        }
        self.sorted.insert(at, Span { from_ns, to_ns, latest_ns: to_ns });
        for next in at..self.sorted.len() {
            let before_ns = next.checked_sub(1).map_or(0, |before| self.sorted[before].latest_ns);
            let span = &mut self.sorted[next];
            span.latest_ns = before_ns.max(span.to_ns);
        }
    }

    /// Tests whether a span starts before `to_ns` and ends at `from_ns` or later.
    fn overlap(&self, from_ns: u64, to_ns: u64) -> bool {
        let at = self.sorted.partition_point(|span| span.from_ns < to_ns);
        at.checked_sub(1).is_some_and(|last| self.sorted[last].latest_ns >= from_ns)
            || self.around.is_some_and(|(first_ns, last_ns)| first_ns < to_ns && last_ns >= from_ns)
    }
}

impl LossMarks {
    /// Records that events of `cpu` were lost after `after_ns` and before its next event; see [`Self::event`].
    pub(crate) fn mark(&mut self, cpu: u16, after_ns: u64) {
        let from_ns = self.open.entry(cpu).or_insert(after_ns);
        *from_ns = after_ns.min(*from_ns);
    }

    /// Records that events of all CPUs may be missing at any time.
    pub(crate) fn always(&mut self) {
        self.always = true;
    }

    /// Tests whether [`Self::event`] has to be called.
    pub(crate) fn wait_for_event(&self) -> bool {
        !self.open.is_empty()
    }

    /// Ends a loss: this is the next event of `cpu`.
    pub(crate) fn event(&mut self, cpu: u16, time_ns: u64) {
        if let Some(from_ns) = self.open.remove(&cpu) {
            // With a coarse clock, the events around a loss can have the same time.
            let to_ns = time_ns.max(from_ns.saturating_add(1));
            self.by_cpu.entry(cpu).or_default().add(from_ns, to_ns);
        }
    }

    /// Tests whether one of `cpus` lost events between `from_ns` and `to_ns`.
    #[inline]
    pub(crate) fn between(&self, cpus: [u16; 2], from_ns: u64, to_ns: u64) -> bool {
        self.always || !self.is_empty() && cpus.iter().any(|&cpu| self.of_cpu(cpu, from_ns, to_ns))
    }

    fn of_cpu(&self, cpu: u16, from_ns: u64, to_ns: u64) -> bool {
        // An event at the end of a loss is the first one that was not lost.
        let ended = |spans: &Spans| spans.overlap(from_ns.saturating_add(1), to_ns);
        self.by_cpu.get(&cpu).is_some_and(ended)
            || self.open.get(&cpu).is_some_and(|&open_ns| open_ns < to_ns)
    }

    /// Records that a CPU lost events in this time, among which may be those of a vCPU that was on no CPU before and
    /// after.
    pub(crate) fn span(&mut self, from_ns: u64, to_ns: u64) {
        self.anywhere.add(from_ns, to_ns);
    }

    /// Tests whether one of these spans overlaps that from `from_ns` to `to_ns`.
    pub(crate) fn anywhere(&self, from_ns: u64, to_ns: u64) -> bool {
        self.always || self.anywhere.overlap(from_ns, to_ns)
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.always && self.by_cpu.is_empty() && self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_last_from_event_to_event_of_a_processor() {
        let mut marks = LossMarks::default();
        assert!(marks.is_empty());
        assert!(!marks.wait_for_event());
        for (after_ns, next_ns) in [(100, 160), (300, 310), (200, 200)] {
            marks.mark(1, after_ns);
            assert!(marks.wait_for_event());
            marks.event(0, 1);
            marks.event(1, next_ns);
        }
        assert!(!marks.wait_for_event());
        for (from_ns, to_ns, lost) in [
            (50, 100, false),
            (100, 101, true),
            (101, 102, true),
            (150, 400, true),
            (160, 200, false),
            (200, 201, true),
            (201, 300, false),
            (310, 1000, false),
        ] {
            assert_eq!(marks.between([1, 0], from_ns, to_ns), lost, "{from_ns} to {to_ns}");
            assert_eq!(marks.between([0, 1], from_ns, to_ns), lost, "{from_ns} to {to_ns}");
        }
        assert!(!marks.between([0, 0], 0, 1000));
        marks.mark(0, 500);
        assert!(marks.between([0, 0], 600, 1000));
        assert!(!marks.between([0, 0], 400, 500));
        assert!(!marks.anywhere(0, 1000));
    }

    #[test]
    fn losses_too_far_out_of_order_are_not_forgotten() {
        let mut marks = LossMarks::default();
        let lose = |marks: &mut LossMarks, after_ns, next_ns| {
            marks.mark(1, after_ns);
            marks.event(1, next_ns);
        };
        (0..=MOST_OUT_OF_ORDER as u64)
            .for_each(|number| lose(&mut marks, 1000 + 10 * number, 1005 + 10 * number));
        assert!(!marks.between([1, 1], 5, 100));
        lose(&mut marks, 50, 60);
        lose(&mut marks, 5, 9);
        for (from_ns, to_ns, lost) in [(1, 5, false), (5, 9, true), (50, 60, true), (60, 100, false)] {
            assert_eq!(marks.between([1, 1], from_ns, to_ns), lost, "{from_ns} to {to_ns}");
        }
        assert!(!marks.between([0, 0], 5, 60));
    }

    #[test]
    fn spans_of_any_processor_have_time_in_common() {
        let mut marks = LossMarks::default();
        for (from_ns, to_ns) in [(100, 900), (500, 600), (200, 210), (2000, 2001)] {
            marks.span(from_ns, to_ns);
        }
        for (from_ns, to_ns, lost) in
            [(0, 100, false), (0, 101, true), (700, 710, true), (901, 2000, false), (901, 2001, true)]
        {
            assert_eq!(marks.anywhere(from_ns, to_ns), lost, "{from_ns} to {to_ns}");
        }
        assert!(!marks.anywhere(2002, u64::MAX));
        marks.always();
        assert!(marks.anywhere(2002, u64::MAX) && marks.between([0, 1], 5, 6) && !marks.is_empty());
    }
}
