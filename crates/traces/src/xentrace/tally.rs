//! The number of records of each event.

use super::event::{counted_as, name};

/// The number of subclasses of a class, and of minor numbers of a subclass.
const SUBCLASSES: usize = 16;
const MINORS: usize = 1 << 12;

/// The size of the cache of counters; a power of two.
const RECENT: usize = 64;

/// Counts by event without hashing, because each record of a recording is counted.
#[derive(Debug)]
pub(super) struct Tally {
    /// Cached events, flags included, with their counts.
    recent: [(u32, u64); RECENT],
    /// Counts by class and subclass; empty if there are no records.
    counts: Vec<Vec<u64>>,
}

impl Default for Tally {
    fn default() -> Self {
        Self { recent: [(0, 0); RECENT], counts: Vec::new() }
    }
}

impl Tally {
    /// Counts a record of an event that has exactly one class.
    #[inline]
    pub(super) fn add(&mut self, event: u32) {
        let recent = &mut self.recent[(event ^ event >> 6 ^ event >> 12) as usize % RECENT];
        if recent.0 != event {
            let before = std::mem::replace(recent, (event, 0));
            self.add_many(before);
        }
        self.recent[(event ^ event >> 6 ^ event >> 12) as usize % RECENT].1 += 1;
    }

    #[cold]
    fn add_many(&mut self, (event, count): (u32, u64)) {
        if count == 0 {
            return;
        }
        let event = counted_as(event);
        let class = (event >> 16).trailing_zeros() as usize;
        let table = class * SUBCLASSES + (event as usize >> 12) % SUBCLASSES;
        match self.counts.get_mut(table).and_then(|counts| counts.get_mut(event as usize % MINORS)) {
            Some(sum) => *sum += count,
            None => self.add_first(table, event as usize % MINORS, count),
        }
    }

    fn add_first(&mut self, table: usize, minor: usize, count: u64) {
        if self.counts.len() <= table {
            self.counts.resize(table + 1, Vec::new());
        }
        self.counts[table] = vec![0; MINORS];
        self.counts[table][minor] = count;
    }

    /// The names of the recorded events, and their counts.
    pub(super) fn named(&mut self) -> impl Iterator<Item = (String, u64)> {
        for place in 0..RECENT {
            let recent = std::mem::take(&mut self.recent[place]);
            self.add_many(recent);
        }
        self.counts.iter().enumerate().flat_map(|(table, counts)| {
            let class = 1u32 << (16 + table / SUBCLASSES) | ((table % SUBCLASSES) as u32) << 12;
            let recorded = (0u32..).zip(counts).filter(|&(_, &count)| count > 0);
            recorded.map(move |(minor, &count)| (name(class | minor), count))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_share_a_place_stay_apart() {
        let mut tally = Tally::default();
        let minors = 3 * RECENT as u32;
        for minor in 0..minors {
            tally.add(0x0800_f000 | minor);
            tally.add(0x0008_1003);
        }
        // A second call returns the same.
        for _ in 0..2 {
            let named: Vec<_> = tally.named().collect();
            assert_eq!(named.len(), minors as usize + 1);
            assert!(named.contains(&("hvm_svm_exit".to_owned(), u64::from(minors))));
            assert!(named.iter().filter(|(name, _)| name.starts_with("guest")).all(|found| found.1 == 1));
        }
    }

    #[test]
    fn events_are_counted_whatever_their_flags() {
        let mut tally = Tally::default();
        for event in [0x0008_1003, 0x0008_1103, 0x0002_1011, 0x0008_1503, 0x0800_ffff, 0x0002_1101] {
            tally.add(event);
        }
        let named: Vec<_> = tally.named().collect();
        let expected = [("sched_runstate_change", 2), ("hvm_svm_exit", 3), ("guest_0x800ffff", 1)];
        assert_eq!(named, expected.map(|(name, count)| (name.to_owned(), count)));
    }
}
