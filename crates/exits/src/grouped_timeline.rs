//! Exits over time by dimensions that a [`Timeline`] does not have: vCPUs, ports, addresses, registers.

use std::collections::BTreeMap;

use crate::{Access, ExitReason, Grouping, Isa, Key, SeriesIndex, SeriesKey, Slice, Timeline, Vcpu, What};

/// The most rows with slices. A row takes up to 32 KiB, or twice that if the guest slept. Later rows have no slices.
const MOST_ROWS: usize = 1024;

/// The VM, the row's key, and whether the guest slept: in rows of all reasons, sleep is not handling time.
type GroupKey = (Option<u32>, Key, bool);

/// Exits over time by any [`Grouping`], up to a limit of keys.
#[derive(Debug, Clone)]
pub struct GroupedTimeline {
    grouping: Grouping,
    /// Each series is numbered instead of keyed by reason, so that one type of timeline serves all keys.
    timeline: Timeline,
    /// Always by VM too: the selected VMs may be known only after everything has been read.
    series: BTreeMap<GroupKey, SeriesIndex>,
    keys: Vec<GroupKey>,
    rows: usize,
}

impl GroupedTimeline {
    /// No exits yet.
    #[must_use]
    pub fn new(grouping: Grouping) -> Self {
        Self { grouping, timeline: Timeline::default(), series: BTreeMap::new(), keys: Vec::new(), rows: 0 }
    }

    /// Counts an exit that began at `time_ns`, or if the grouping is by accesses, those of the selected kinds.
    /// `accesses` are all accesses of the exit, each with its own handling time.
    pub fn add(
        &mut self,
        vcpu: Vcpu,
        reason: ExitReason,
        time_ns: u64,
        handling_ns: Option<u64>,
        accesses: impl IntoIterator<Item = (Access, Option<u64>)>,
    ) {
        let kinds = self.grouping.access_kinds();
        if kinds.is_empty() {
            return self.count(vcpu, reason, self.grouping.what(reason), time_ns, handling_ns);
        }
        for (access, handling_ns) in accesses {
            if kinds.contains(&access.kind()) {
                self.count(vcpu, reason, What::Access(access), time_ns, handling_ns);
            }
        }
    }

    fn count(&mut self, vcpu: Vcpu, reason: ExitReason, what: What, time_ns: u64, handling_ns: Option<u64>) {
        let sleeps = what == What::Everything && reason.is_sleep();
        let key = (vcpu.vm, Key { whose: self.grouping.whose(vcpu), what }, sleeps);
        let index = match self.series.get(&key) {
            Some(&index) => index,
            None => {
                // A row has slices for both sleep and handling, or for neither.
                let is_new = !self.series.contains_key(&(key.0, key.1, !sleeps));
                if is_new && self.rows >= MOST_ROWS {
                    return;
                }
                self.rows += usize::from(is_new);
                let index = self.timeline.series(numbered(self.keys.len()));
                self.keys.push(key);
                self.series.insert(key, index);
                index
            }
        };
        self.timeline.add(index, time_ns, Slice { count: 1, handling_ns: handling_ns.unwrap_or(0) });
    }

    /// The start of the first slice, in nanoseconds of the source's clock.
    #[must_use]
    pub fn start_ns(&self) -> u64 {
        self.timeline.start_ns()
    }

    /// The width of a slice in nanoseconds.
    #[must_use]
    pub fn width_ns(&self) -> u64 {
        self.timeline.width_ns()
    }

    /// Keys with their slices, of the VMs that `keep` selects. If rows are not grouped by VM, a key occurs once per
    /// VM. In rows of all reasons, exits in which the guest slept have separate slices, marked `true`.
    pub fn of_vms(
        &self,
        keep: impl Fn(Option<u32>) -> bool,
    ) -> impl Iterator<Item = (Key, bool, Vec<Slice>)> {
        self.timeline.iter().filter_map(move |(series, slices)| {
            let &(vm, key, sleeps) = self.keys.get(series.vm? as usize)?;
            keep(vm).then_some((key, sleeps, slices))
        })
    }
}

fn numbered(number: usize) -> SeriesKey {
    SeriesKey { vm: u32::try_from(number).ok(), reason: ExitReason { isa: Isa::Vmx, code: 0 } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dimension, Direction};

    const IO: ExitReason = ExitReason::vmx(30);
    const VCPU: Vcpu = Vcpu { vm: Some(1), number: Some(0), thread: Some(2) };

    fn port(port: u16) -> Access {
        Access::Port { port, direction: Direction::Write }
    }

    #[test]
    fn exits_are_told_apart_by_port() {
        let mut timeline = GroupedTimeline::new(Grouping::new([Dimension::Port]).unwrap());
        let msr = Access::Msr { number: 1, direction: Direction::Read };
        timeline.add(VCPU, IO, 5 << 20, Some(7), [(port(0x3f8), Some(3)), (msr, Some(2))]);
        timeline.add(VCPU, IO, 9 << 20, None, [(port(0x3f8), None)]);
        timeline.add(VCPU, IO, 6 << 20, Some(9), [(port(0x60), Some(9)), (port(0x3f8), Some(5))]);
        timeline.add(VCPU, IO, 6 << 20, Some(9), [(msr, Some(9))]);
        timeline.add(VCPU, IO, 6 << 20, Some(9), []);
        let found: Vec<_> =
            timeline.of_vms(|_| true).map(|(key, _, slices)| (key.what, slices.len())).collect();
        assert_eq!(found, [(What::Access(port(0x3f8)), 5), (What::Access(port(0x60)), 5)]);
        let sum = |slices: &[Slice]| {
            slices.iter().fold((0, 0), |sum, slice| (sum.0 + slice.count, sum.1 + slice.handling_ns))
        };
        let sums: Vec<_> = timeline.of_vms(|_| true).map(|(.., slices)| sum(&slices)).collect();
        assert_eq!(timeline.of_vms(|vm| vm != Some(1)).count(), 0);
        assert_eq!((sums, timeline.start_ns()), (vec![(3, 8), (1, 9)], 5 << 20));
    }

    #[test]
    fn sleep_is_apart_where_reasons_are_not() {
        let mut by_vcpu = GroupedTimeline::new(Grouping::new([Dimension::Vcpu]).unwrap());
        let mut by_reason =
            GroupedTimeline::new(Grouping::new([Dimension::Vcpu, Dimension::Reason]).unwrap());
        for timeline in [&mut by_vcpu, &mut by_reason] {
            timeline.add(VCPU, IO, 0, Some(7), []);
            timeline.add(VCPU, ExitReason::vmx(12), 0, Some(9), []);
        }
        let found = |timeline: &GroupedTimeline| -> Vec<_> {
            timeline.of_vms(|_| true).map(|(_, sleeps, slices)| (sleeps, slices[0].handling_ns)).collect()
        };
        assert_eq!(found(&by_vcpu), [(false, 7), (true, 9)]);
        assert_eq!(found(&by_reason), [(false, 7), (false, 9)]);
    }

    #[test]
    fn room_is_limited() {
        let mut timeline = GroupedTimeline::new(Grouping::new([Dimension::Port]).unwrap());
        for number in 0..3000 {
            timeline.add(VCPU, IO, 0, None, [(port(number), None)]);
        }
        assert_eq!(timeline.of_vms(|_| true).count(), MOST_ROWS);
        let mut timeline = GroupedTimeline::new(Grouping::new([Dimension::Vcpu]).unwrap());
        for reason in [IO, ExitReason::vmx(12)] {
            for number in 0..3000 {
                let vcpu = Vcpu { vm: Some(1), number: Some(number), thread: Some(number) };
                timeline.add(vcpu, reason, 0, None, []);
            }
        }
        assert_eq!(timeline.of_vms(|_| true).count(), 2 * MOST_ROWS);
    }
}
