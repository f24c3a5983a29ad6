//! A limit of the memory that is allocated for a file.
//!
//! Limiting the file's size is not enough: ten bytes of text can describe a histogram bucket that makes two thousand
//! buckets be allocated. So readers of untrusted files set a [`limit`], against which allocations count.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// The overhead of a map entry or a row besides its own bytes: its part of a node, and an allocation.
const OVERHEAD: usize = 64;

/// A limit for all that this thread parses, until it is dropped.
#[derive(Debug)]
#[must_use = "the limit ends when this is dropped"]
pub struct Limit {
    before: u64,
    bytes: u64,
}

/// Limits the memory that this thread allocates for parsed data to approximately this number of bytes.
pub fn limit(bytes: u64) -> Limit {
    Limit { before: LEFT.replace(bytes), bytes }
}

impl Limit {
    /// Tests whether the limit was reached.
    #[must_use]
    pub fn was_reached(&self) -> bool {
        LEFT.get() == 0
    }

    /// The limit in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        LEFT.set(self.before);
    }
}

/// The error of parsing that would exceed the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("reading it would take more memory than the limit")]
pub(crate) struct TooMuch;

/// Counts bytes before they are allocated.
pub(crate) fn spend(bytes: usize) -> Result<(), TooMuch> {
    match LEFT.get().checked_sub(bytes as u64) {
        Some(left @ 1..) => {
            LEFT.set(left);
            Ok(())
        }
        _ => {
            LEFT.set(0);
            Err(TooMuch)
        }
    }
}

/// The memory that an element of a [`list`] counts as: a growing vector may have twice the capacity it needs.
pub(crate) const fn of_element<T>() -> usize {
    2 * size_of::<T>()
}

/// The memory that an entry of a [`map`] counts as.
#[must_use]
pub const fn of_entry<K, V>() -> usize {
    size_of::<K>() + size_of::<V>() + OVERHEAD
}

/// Parses a list, counting each element against the limit.
///
/// # Errors
/// Those of the elements, or that the [`limit`] is reached.
pub fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct List<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(one) = from.next_element()? {
                spend(of_element::<T>()).map_err(A::Error::custom)?;
                all.push(one);
            }
            Ok(all)
        }
    }

    deserializer.deserialize_seq(List(PhantomData))
}

/// Parses a map, counting each entry against the limit.
///
/// # Errors
/// Those of the entries, or that the [`limit`] is reached.
pub fn map<'de, D, K, V>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord,
    V: Deserialize<'de>,
{
    struct Map<K, V>(PhantomData<(K, V)>);

    impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Visitor<'de> for Map<K, V> {
        type Value = BTreeMap<K, V>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("a map")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<BTreeMap<K, V>, A::Error> {
            let mut all = BTreeMap::new();
            while let Some((key, value)) = from.next_entry()? {
                spend(of_entry::<K, V>()).map_err(A::Error::custom)?;
                all.insert(key, value);
            }
            Ok(all)
        }
    }

    deserializer.deserialize_map(Map(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HandlingTime, Profile, Timeline};

    /// Tests whether a limit of `bytes` makes parsing fail.
    fn is_refused<T: for<'de> Deserialize<'de>>(text: &str, bytes: u64) -> bool {
        let limit = limit(bytes);
        let refused = serde_json::from_str::<T>(text).is_err();
        assert_eq!(limit.was_reached(), refused);
        refused
    }

    #[test]
    fn a_few_bytes_that_make_much_are_counted_by_what_they_make() {
        let widest =
            r#"{"count":2,"total_ns":2,"min_ns":1,"max_ns":2,"histogram":[[1,1],[18446744073709551615,1]]}"#;
        assert!(is_refused::<HandlingTime>(widest, 15_000));
        assert!(!is_refused::<HandlingTime>(widest, 50_000));
        let narrow = widest.replace("18446744073709551615", "2");
        assert!(!is_refused::<HandlingTime>(&narrow, 15_000));
        let zeros = vec!["0"; 1000].join(",");
        let series = format!(r#"{{"vm":null,"reason":"HLT","count":[{zeros}],"handling_ns":[{zeros}]}}"#);
        let timeline = format!(r#"{{"start_ns":0,"width_ns":1,"slices":1,"series":[{series}]}}"#);
        assert!(is_refused::<Timeline>(&timeline, 15_000));
        assert!(!is_refused::<Timeline>(&timeline, 1 << 20));
        let names: Vec<String> = (0..1000).map(|number| format!("\"{number}\":\"\"")).collect();
        let mut profile = serde_json::to_string(&Profile::new()).unwrap();
        profile = profile.replace("\"names\":{}", &format!("\"names\":{{{}}}", names.join(",")));
        assert!(is_refused::<Profile>(&profile, 15_000));
        assert!(!is_refused::<Profile>(&profile, 1 << 20));
    }

    #[test]
    fn without_a_limit_nothing_is_refused() {
        drop(limit(1));
        spend(usize::MAX / 2).unwrap();
        LEFT.set(u64::MAX);
    }
}
