//! The difference between two readings.

use super::{Counters, VmStatistics};
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The increase of each counter, and the elapsed time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StatisticsChange {
    /// The time between the readings; serialized as nanoseconds.
    #[serde(rename = "elapsed_ns", serialize_with = "nanoseconds")]
    pub elapsed: Duration,
    /// The increase of the VM's counters.
    pub total: Counters,
    /// The increase by vCPU; vCPUs that are only in one reading are left out.
    pub vcpus: BTreeMap<u32, Counters>,
    /// Counters of the VM without an increase: they went back because somebody reset them through debugfs, or they
    /// are sums over vCPUs of which one was plugged in or unplugged meanwhile. A vCPU that comes back continues with
    /// its old counts.
    pub reset: Vec<String>,
}

fn nanoseconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

impl VmStatistics {
    /// The increase since an earlier reading; `None` if that is of another process or source, if one of them has no
    /// counters, or if no time has passed.
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<StatisticsChange> {
        let same = |one: &Self| (one.pid, one.start_ticks, one.origin);
        let elapsed = self.read_at.checked_duration_since(before.read_at).filter(|time| !time.is_zero())?;
        if self.origin.is_none() || same(self) != same(before) {
            return None;
        }
        let mut reset = Vec::new();
        let mut total = grown(&before.total, &self.total, |name| reset.push(name.to_owned()));
        let only_in = |one: &'_ Self, other: &Self| {
            let vcpus = one.vcpus.iter().filter(|(number, _)| !other.vcpus.contains_key(number));
            vcpus.flat_map(|(_, counters)| counters.keys().cloned()).collect::<BTreeSet<_>>()
        };
        for name in &only_in(before, self) | &only_in(self, before) {
            if total.remove(&name).is_some() {
                reset.push(name);
            }
        }
        let vcpus = self.vcpus.iter().filter_map(|(number, counters)| {
            Some((*number, grown(before.vcpus.get(number)?, counters, |_| {})))
        });
        Some(StatisticsChange { elapsed, total, vcpus: vcpus.collect(), reset })
    }
}

fn grown(before: &Counters, after: &Counters, mut went_back: impl FnMut(&str)) -> Counters {
    let mut growth = Counters::new();
    for (name, value) in after {
        let Some(earlier) = before.get(name) else { continue };
        match value.checked_sub(*earlier) {
            Some(more) => drop(growth.insert(name.clone(), more)),
            None => went_back(name),
        }
    }
    growth
}

impl StatisticsChange {
    /// The increase per second of one of the VM's counters.
    #[must_use]
    pub fn per_second(&self, name: &str) -> Option<f64> {
        Some(*self.total.get(name)? as f64 / self.elapsed.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Origin;
    use std::time::Instant;

    fn reading(at: Instant, values: &[(&str, u64)]) -> VmStatistics {
        let total: Counters = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        VmStatistics {
            pid: 1,
            start_ticks: 2,
            name: "web".to_owned(),
            origin: Some(Origin::Qmp),
            failures: Vec::new(),
            vcpus: BTreeMap::from([(0, total.clone())]),
            total,
            units: BTreeMap::new(),
            missing: Vec::new(),
            read_at: at,
        }
    }

    #[test]
    fn growth_and_rates() {
        let now = Instant::now();
        let before = reading(now, &[("exits", 100), ("io_exits", 50), ("gone", 1)]);
        let after = reading(now + Duration::from_secs(2), &[("exits", 300), ("io_exits", 3), ("new", 9)]);
        let change = after.since(&before).unwrap();
        assert_eq!(change.total, Counters::from([("exits".to_owned(), 200)]));
        assert_eq!(change.vcpus[&0], change.total);
        assert_eq!(change.reset, ["io_exits"]);
        assert_eq!((change.per_second("exits"), change.per_second("io_exits")), (Some(100.0), None));
    }

    #[test]
    fn sums_over_other_vcpus_have_no_growth() {
        let now = Instant::now();
        let of = |after: u64, exits: &[(u32, u64)]| VmStatistics {
            vcpus: exits.iter().map(|&(vcpu, exits)| (vcpu, [("exits".to_owned(), exits)].into())).collect(),
            ..reading(
                now + Duration::from_secs(after),
                &[("exits", exits.iter().map(|one| one.1).sum()), ("pages", 5 + after)],
            )
        };
        let [both, one, again] =
            [of(0, &[(0, 10), (1, 90)]), of(1, &[(0, 1010)]), of(2, &[(0, 1020), (1, 95)])];
        for (before, after) in [(&both, &one), (&one, &again)] {
            let change = after.since(before).unwrap();
            assert_eq!(change.total, Counters::from([("pages".to_owned(), 1)]));
            assert_eq!(change.reset, ["exits"]);
            assert!(change.vcpus.contains_key(&0) && change.vcpus.len() == 1);
        }
        assert_eq!(again.since(&both).unwrap().total["exits"], 1015);
    }

    #[test]
    fn what_cannot_be_compared_gives_no_change() {
        let now = Instant::now();
        let before = reading(now, &[("exits", 1)]);
        let after = reading(now + Duration::from_secs(1), &[("exits", 2)]);
        assert!(after.since(&before).is_some());
        assert!(before.since(&after).is_none() && before.since(&before).is_none());
        assert!(VmStatistics { start_ticks: 3, ..after.clone() }.since(&before).is_none());
        assert!(VmStatistics { origin: Some(Origin::Debugfs), ..after.clone() }.since(&before).is_none());
        let nothing = VmStatistics { origin: None, ..after };
        assert!(nothing.since(&VmStatistics { origin: None, ..before }).is_none());
    }
}
