//! Exit rates of the last minutes.

use std::collections::{BTreeMap, VecDeque};

use exits::{Key, Profile, What, Whose};

/// The maximum number of intervals in a curve.
pub(super) const SHOWN: usize = 120;
/// The number of intervals kept: the oldest column of a curve may begin before the first shown interval.
const KEPT: usize = 2 * SHOWN;

/// The number of exits of each kind in each of the last intervals.
#[derive(Debug, Default)]
pub(super) struct Courses {
    /// The lengths of the intervals in nanoseconds, the latest last.
    lengths_ns: VecDeque<u64>,
    /// The counts in the intervals, the latest last. Missing ones at the front are zero.
    counts: BTreeMap<Key, VecDeque<u32>>,
    /// The number of all intervals.
    intervals: u64,
}

impl Courses {
    /// Adds one interval.
    pub(super) fn add(&mut self, profile: &Profile, length_ns: u64) {
        let sums = sums(profile);
        self.intervals += 1;
        self.lengths_ns.push_back(length_ns);
        if self.lengths_ns.len() > KEPT {
            self.lengths_ns.pop_front();
        }
        for (key, counts) in &mut self.counts {
            counts.push_back(sums.get(key).copied().unwrap_or(0));
            if counts.len() > KEPT {
                counts.pop_front();
            }
        }
        for (key, sum) in sums {
            self.counts.entry(key).or_insert_with(|| VecDeque::from([sum]));
        }
        let is_seen = |counts: &VecDeque<u32>| counts.iter().rev().take(SHOWN).any(|&count| count > 0);
        self.counts.retain(|_, counts| is_seen(counts));
    }

    /// The keys with exits in the kept intervals.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.counts.keys().copied()
    }

    /// Forgets a VM.
    pub(super) fn forget(&mut self, vm: Option<u32>) {
        self.counts.retain(|key, _| key.whose == Whose::Everyone || key.whose.vm() != vm);
    }

    /// The exits per second in at most this many columns, the latest last. A column keeps its intervals while it moves to
    /// the left, so that only the height of the last one changes.
    pub(super) fn rates(&self, key: Key, columns: usize) -> Vec<f64> {
        let Some(counts) = self.counts.get(&key) else { return Vec::new() };
        let a_column = intervals_a_column(columns) as u64;
        let first = self.intervals - self.lengths_ns.len() as u64;
        let without = self.lengths_ns.len() - counts.len();
        let mut sums: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (at, &length_ns) in self.lengths_ns.iter().enumerate() {
            let count = at.checked_sub(without).map_or(0, |at| counts[at]);
            let sum = sums.entry((first + at as u64) / a_column).or_default();
            *sum = (sum.0 + u64::from(count), sum.1 + length_ns);
        }
        let rates: Vec<f64> =
            sums.into_values().map(|(count, ns)| count as f64 / ns.max(1) as f64 * 1e9).collect();
        rates[rates.len().saturating_sub(columns)..].to_vec()
    }
}

/// The number of intervals in a column for this many columns.
pub(super) fn intervals_a_column(columns: usize) -> usize {
    SHOWN.div_ceil(columns.max(1))
}

fn sums(profile: &Profile) -> BTreeMap<Key, u32> {
    let mut sums = BTreeMap::new();
    let mut add = |whose, what, count: u64| {
        let sum: &mut u32 = sums.entry(Key { whose, what }).or_default();
        *sum = sum.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    };
    for exits in profile.vcpus() {
        let whose = [Whose::Vm(exits.vcpu.vm), Whose::Vcpu(exits.vcpu)];
        for (&reason, exits) in &exits.reasons {
            add(Whose::Everyone, What::Everything, exits.count);
            for whose in whose {
                add(whose, What::Everything, exits.count);
                add(whose, What::Reason(reason), exits.count);
            }
        }
        for (&access, exits) in &exits.accesses {
            whose.into_iter().for_each(|whose| add(whose, What::Access(access), exits.count));
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use exits::{ExitReason, Vcpu};

    const EVERYONE: Key = Key { whose: Whose::Everyone, what: What::Everything };

    fn profile(vm: u32, count: u64) -> Profile {
        let mut profile = Profile::new();
        let vcpu = Vcpu { vm: Some(vm), number: Some(0), thread: Some(vm + 1) };
        profile.vcpu(vcpu).reasons.entry(ExitReason::vmx(12)).or_default().count = count;
        profile
    }

    #[test]
    fn rates_are_of_the_length_of_their_interval() {
        let mut courses = Courses::default();
        courses.add(&profile(1, 100), 1_000_000_000);
        courses.add(&profile(1, 100), 500_000_000);
        assert_eq!(courses.rates(EVERYONE, SHOWN), [100.0, 200.0]);
        // With sixty intervals in a column, both are in one.
        let [rate] = courses.rates(EVERYONE, 2)[..] else { panic!() };
        assert!((rate - 133.33).abs() < 0.01, "{rate}");
    }

    #[test]
    fn who_comes_later_had_nothing_before() {
        let mut courses = Courses::default();
        courses.add(&profile(1, 5), 1_000_000_000);
        courses.add(&profile(2, 7), 1_000_000_000);
        let of = |vm| courses.rates(Key { whose: Whose::Vm(Some(vm)), what: What::Everything }, SHOWN);
        assert_eq!((of(1), of(2), of(3)), (vec![5.0, 0.0], vec![0.0, 7.0], vec![]));
    }

    #[test]
    fn nothing_grows_for_ever() {
        let mut courses = Courses::default();
        for vm in 0..3 * KEPT as u32 {
            courses.add(&profile(vm, 1), 1_000_000_000);
        }
        assert_eq!(courses.lengths_ns.len(), KEPT);
        assert!(courses.counts.values().all(|counts| counts.len() <= KEPT));
        // Each VM has four keys: itself and its vCPU, in total and by reason.
        assert_eq!(courses.counts.len(), 4 * SHOWN + 1);
        assert_eq!(courses.rates(EVERYONE, 40).len(), 40);
        courses.forget(Some(3 * KEPT as u32 - 1));
        assert_eq!(courses.counts.len(), 4 * (SHOWN - 1) + 1);
    }

    #[test]
    fn a_column_keeps_its_height_once_it_is_full() {
        let mut courses = Courses::default();
        let mut before = Vec::new();
        for count in 1..=100 {
            courses.add(&profile(1, count * count % 37), 1_000_000_000);
            let rates = courses.rates(EVERYONE, 40);
            let full = before.len().saturating_sub(1);
            assert_eq!(rates[..full], before[..full]);
            before = rates;
        }
        assert_eq!(before.len(), 34);
    }
}
