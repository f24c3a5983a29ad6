//! The numbers by which the policy knows queues.

use std::collections::BTreeMap;

/// The numbers of the present queues. None is used again: the policy compares a queue's throughput before and after a change.
#[derive(Debug)]
pub(super) struct Numbers<K> {
    pub(super) of: BTreeMap<K, u32>,
    /// The same by number: there may be 10,000, and all are named in each period.
    pub(super) keys: BTreeMap<u32, K>,
    next: u32,
}

impl<K: Ord + Clone> Numbers<K> {
    pub(super) fn new() -> Self {
        Self { of: BTreeMap::new(), keys: BTreeMap::new(), next: 0 }
    }

    /// The number of a queue, which is a new one if the queue has none.
    pub(super) fn number(&mut self, key: &K) -> u32 {
        if let Some(&number) = self.of.get(key) {
            return number;
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.of.insert(key.clone(), number);
        self.keys.insert(number, key.clone());
        number
    }

    /// The queue with this number.
    pub(super) fn key(&self, number: u32) -> Option<&K> {
        self.keys.get(&number)
    }

    /// Forgets a queue, and returns the number that it had.
    pub(super) fn remove(&mut self, key: &K) -> Option<u32> {
        let number = self.of.remove(key)?;
        self.keys.remove(&number);
        Some(number)
    }

    /// Forgets all queues but those that are there.
    pub(super) fn retain(&mut self, is_there: impl Fn(&K) -> bool) {
        self.of.retain(|key, _| is_there(key));
        self.keys.retain(|_, key| is_there(key));
    }
}
