//! A histogram of times whose buckets grow with the time.

/// The number of buckets per octave, as a power of two: a bucket is at most 1/32 as wide as its lower bound.
const PER_OCTAVE_BITS: u32 = 5;
const PER_OCTAVE: u64 = 1 << PER_OCTAVE_BITS;

/// A log-linear histogram. Memory is allocated only between the lowest and the highest bucket in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Histogram {
    first: u16,
    counts: Vec<u64>,
}

impl Histogram {
    /// The size in bytes of a histogram whose first and last buckets are those of the shortest and the longest of
    /// these times.
    pub(crate) fn size_of(times: impl Iterator<Item = u64>) -> usize {
        let buckets = times.map(bucket).fold(None, |range: Option<(u16, u16)>, at| {
            Some(range.map_or((at, at), |(first, last)| (first.min(at), last.max(at))))
        });
        buckets.map_or(0, |(first, last)| (usize::from(last - first) + 1) * size_of::<u64>())
    }

    pub(crate) fn add(&mut self, ns: u64, count: u64) {
        if count > 0 {
            let counter = self.counter(bucket(ns));
            *counter = counter.saturating_add(count);
        }
    }

    /// Adds the buckets of one octave; octave 0 has the times below 32 ns.
    pub(crate) fn add_octave(&mut self, number: u8, buckets: &[u32; PER_OCTAVE as usize]) {
        for (at, &count) in (u16::from(number) * PER_OCTAVE as u16..).zip(buckets) {
            if count > 0 {
                let counter = self.counter(at);
                *counter = counter.saturating_add(count.into());
            }
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (at, &count) in (other.first..).zip(&other.counts) {
            if count > 0 {
                let counter = self.counter(at);
                *counter = counter.saturating_add(count);
            }
        }
    }

    /// Subtracts the other's counts; a count does not fall below zero.
    pub(crate) fn subtract(&mut self, other: &Self) {
        for (at, &count) in (other.first..).zip(&other.counts) {
            let index = usize::from(at.wrapping_sub(self.first));
            if let Some(counter) = self.counts.get_mut(index) {
                *counter = counter.saturating_sub(count);
            }
        }
    }

    /// The largest time and the count of each bucket, from the lowest one in use to the highest.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        (self.first..).zip(&self.counts).map(|(at, &count)| (upper_end(at), count))
    }

    fn counter(&mut self, at: u16) -> &mut u64 {
        // One comparison in the common case: below `first` wraps to a large number.
        let index = usize::from(at.wrapping_sub(self.first));
        if index >= self.counts.len() {
            return self.grown(at);
        }
        &mut self.counts[index]
    }

    #[cold]
    fn grown(&mut self, at: u16) -> &mut u64 {
        if self.counts.is_empty() {
            self.first = at;
        }
        if at < self.first {
            let missing = usize::from(self.first - at);
            self.counts.splice(0..0, std::iter::repeat_n(0, missing));
            self.first = at;
        }
        let index = usize::from(at - self.first);
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        &mut self.counts[index]
    }
}

/// The bucket of a time. Times below 32 ns have a bucket each; above, there are 32 buckets per octave.
fn bucket(ns: u64) -> u16 {
    if ns < PER_OCTAVE {
        return ns as u16;
    }
    let octave = ns.ilog2() - PER_OCTAVE_BITS;
    let within = (ns >> octave) & (PER_OCTAVE - 1);
    ((u64::from(octave) + 1) * PER_OCTAVE + within) as u16
}

/// The largest time in a bucket.
fn upper_end(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    if bucket < PER_OCTAVE {
        return bucket;
    }
    let octave = bucket / PER_OCTAVE - 1;
    let first = u128::from(PER_OCTAVE + bucket % PER_OCTAVE) << octave;
    u64::try_from(first + (1u128 << octave) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_everything_without_gaps() {
        assert_eq!(bucket(PER_OCTAVE - 1) + 1, bucket(PER_OCTAVE));
        for at in 0..bucket(u64::MAX) {
            assert_eq!(bucket(upper_end(at)), at);
            assert_eq!(bucket(upper_end(at) + 1), at + 1);
        }
        assert_eq!(upper_end(bucket(u64::MAX)), u64::MAX);
    }

    #[test]
    fn room_follows_the_times_in_use() {
        let mut some = Histogram::default();
        for ns in [1 << 20, 1 << 10, 1 << 20, 1 << 30] {
            some.add(ns, 1);
        }
        let found: Vec<_> = some.iter().filter(|&(_, count)| count > 0).map(|(_, count)| count).collect();
        assert_eq!(found, [1, 2, 1]);
        assert_eq!(some.counts.len(), 20 * 32 + 1);
    }
}
