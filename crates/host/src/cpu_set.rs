//! Sets of processors, as the kernel writes them: `0-3,8,10-11`.

use std::fmt;

/// Some of the host's processors, kept as ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet {
    /// First and last of each range, ascending, with gaps between them.
    ranges: Vec<(u32, u32)>,
}

impl CpuSet {
    /// Parses a list of the kernel (`lib/bitmap-str.c`, `bitmap_print_to_pagebuf`); an empty text is the
    /// empty set. `None` for any other text.
    #[must_use]
    pub fn parse(list: &str) -> Option<Self> {
        let list = list.trim();
        if list.is_empty() {
            return Some(Self::default());
        }
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (number(first)?, number(last)?);
            (first <= last).then_some((first, last))
        };
        Some(Self::from_ranges(list.split(',').map(range).collect::<Option<Vec<_>>>()?))
    }

    fn from_ranges(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        Self { ranges: joined }
    }

    /// The number of CPUs.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// Tests whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Tests whether it contains this CPU.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.ranges.iter().any(|&(first, last)| (first..=last).contains(&cpu))
    }

    /// Tests whether it contains all CPUs of the other set.
    #[must_use]
    pub fn contains_all(&self, other: &Self) -> bool {
        let within =
            |&(first, last): &(u32, u32)| self.ranges.iter().any(|range| range.0 <= first && last <= range.1);
        other.ranges.iter().all(within)
    }

    /// Tests whether both have a common CPU.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        let meets = |one: &(u32, u32)| other.ranges.iter().any(|two| one.0 <= two.1 && two.0 <= one.1);
        self.ranges.iter().any(meets)
    }

    /// The CPU of a set with one element.
    #[must_use]
    pub fn only(&self) -> Option<u32> {
        match self.ranges.as_slice() {
            [(first, last)] if first == last => Some(*first),
            _ => None,
        }
    }

    /// The greatest number.
    #[must_use]
    pub fn last(&self) -> Option<u32> {
        self.ranges.last().map(|range| range.1)
    }

    /// All CPUs, ascending. A hostile list can contain 2^32 CPUs, so limit the number that you take.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(|&(first, last)| first..=last)
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self::from_ranges(cpus.into_iter().map(|cpu| (cpu, cpu)).collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.ranges.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

fn number(text: &str) -> Option<u32> {
    let text = text.trim();
    // `parse` would accept a sign.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_of_the_kernel() {
        let set = CpuSet::parse("0-3,8,10-11\n").unwrap();
        assert_eq!((set.count(), set.last(), set.only()), (7, Some(11), None));
        assert!(set.contains(8) && !set.contains(9));
        assert_eq!(CpuSet::parse(" ").unwrap(), CpuSet::default());
        assert_eq!(CpuSet::parse("5").unwrap().only(), Some(5));
        assert_eq!(CpuSet::parse("2,0-1,1").unwrap().to_string(), "0-2");
        assert_eq!(CpuSet::parse("0-4294967295").unwrap().count(), 1 << 32);
        for wrong in ["3-1", "a", "1,", "-1", "+1", "1-2-3", "4294967296"] {
            assert_eq!(CpuSet::parse(wrong), None, "{wrong}");
        }
        let other = CpuSet::parse("9,11-20").unwrap();
        assert!(set.meets(&other) && !set.contains_all(&other));
        assert!(set.contains_all(&CpuSet::parse("1-2,10").unwrap()));
        assert!(!set.meets(&CpuSet::parse("4-7,9").unwrap()));
    }

    proptest! {
        #[test]
        fn a_set_written_and_read_is_the_same(cpus in prop::collection::btree_set(0u32..600, 0..40)) {
            let set: CpuSet = cpus.iter().copied().collect();
            prop_assert_eq!(CpuSet::parse(&set.to_string()), Some(set.clone()));
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), cpus.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn no_text_panics(text in "[0-9,\\- ]{0,20}") {
            let _ = CpuSet::parse(&text).map(|set| (set.count(), set.to_string()));
        }
    }
}
