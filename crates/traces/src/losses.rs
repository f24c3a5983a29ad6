//! The time spans in which events were lost, for each processor.

use rustc_hash::FxHashMap;

/// So many places of a list may be out of order; only a broken recording has more, and is not worth the time.
const MOST_OUT_OF_ORDER: usize = 1024;

/// Times after which a processor's recorder dropped events, until its next event.
#[derive(Debug, Default)]
pub(crate) struct LossMarks {
    by_cpu: FxHashMap<u16, Vec<u64>>,
    /// From when to when any processor's recorder dropped events, by beginning.
    spans: Vec<Span>,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    from_ns: u64,
    to_ns: u64,
    /// The latest `to_ns` up to this one.
    latest_ns: u64,
}

impl LossMarks {
    /// Events of `cpu` were lost after `after_ns` and before its next one.
    pub(crate) fn mark(&mut self, cpu: u16, after_ns: u64) {
        let marks = self.by_cpu.entry(cpu).or_default();
        // A processor's events come in order, so the marks are sorted but for damaged recordings.
        match marks.last() {
            Some(&last) if last > after_ns => {
                let at = marks.partition_point(|&mark| mark <= after_ns);
                if marks.len() - at < MOST_OUT_OF_ORDER {
                    marks.insert(at, after_ns);
                }
            }
            Some(&last) if last == after_ns => {}
            _ => marks.push(after_ns),
        }
    }

    /// Tests whether events of `cpu` were lost from `from_ns` on and before `to_ns`.
    pub(crate) fn between(&self, cpu: u16, from_ns: u64, to_ns: u64) -> bool {
        let Some(marks) = self.by_cpu.get(&cpu) else { return false };
        let at = marks.partition_point(|&mark| mark < from_ns);
        marks.get(at).is_some_and(|&mark| mark < to_ns)
    }

    /// A processor's recorder dropped events in this time, and those of a vCPU that was on no processor
    /// before and after may be among them.
    pub(crate) fn span(&mut self, from_ns: u64, to_ns: u64) {
        // Processors are read one after the other, so spans come nearly in order.
        let at = self.spans.partition_point(|span| span.from_ns <= from_ns);
        if self.spans.len() - at >= MOST_OUT_OF_ORDER {
            return;
        }
        self.spans.insert(at, Span { from_ns, to_ns, latest_ns: to_ns });
        for next in at..self.spans.len() {
            let before_ns = next.checked_sub(1).map_or(0, |before| self.spans[before].latest_ns);
            let span = &mut self.spans[next];
            span.latest_ns = before_ns.max(span.to_ns);
        }
    }

    /// Tests whether one of the spans overlaps that from `from_ns` to `to_ns`.
    pub(crate) fn anywhere(&self, from_ns: u64, to_ns: u64) -> bool {
        let at = self.spans.partition_point(|span| span.from_ns < to_ns);
        at.checked_sub(1).is_some_and(|last| self.spans[last].latest_ns >= from_ns)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_cpu.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_lie_between_events_of_the_same_processor() {
        let mut marks = LossMarks::default();
        assert!(marks.is_empty());
        marks.mark(1, 100);
        marks.mark(1, 300);
        marks.mark(1, 200);
        assert!(marks.between(1, 100, 101));
        assert!(!marks.between(1, 101, 200));
        assert!(marks.between(1, 150, 400));
        assert!(!marks.between(0, 0, 1000));
        assert!(!marks.between(1, 301, 1000));
        assert!(!marks.anywhere(0, 1000));
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
    }
}
