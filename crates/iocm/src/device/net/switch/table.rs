//! The forwarding table: the port of each address, learnt from its packets, and forgotten after a while.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::device::net::packet::Address;

/// The ageing time of an address without packets, nanoseconds: IEEE 802.1Q, 8.8.3, as in other bridges.
const AGE_NS: u64 = 300 * 1_000_000_000;
/// The most addresses that are learnt on one port: a guest that makes up addresses must not take the others' room.
const MAX_OF_A_PORT: usize = 1024;
/// The time after which a full port is searched again for aged addresses, nanoseconds.
const FULL_NS: u64 = 1_000_000_000;

#[derive(Debug)]
struct Entry {
    port: u32,
    /// The time of the last packet from it, nanoseconds.
    seen: AtomicU64,
    /// The address was assigned to the port by configuration: it does not age and is not learnt elsewhere.
    given: bool,
}

/// The forwarding table.
#[derive(Debug, Default)]
pub struct Table {
    entries: RwLock<Entries>,
    /// Changes whenever an address moves, which invalidates cached lookups.
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct Entries {
    by_address: HashMap<Address, Entry>,
    /// The addresses that were learnt, by port.
    learnt: HashMap<u32, Learnt>,
}

/// The addresses that were learnt on one port.
#[derive(Debug, Default)]
struct Learnt {
    /// The number of addresses.
    count: usize,
    /// The time until which there is no room for more, nanoseconds.
    full_until: u64,
}

impl Table {
    fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entries> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that changes whenever an address moves.
    #[inline]
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Invalidates all cached lookups.
    pub(super) fn change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// The port of an address at `now`.
    #[must_use]
    pub fn find(&self, address: Address, now: u64) -> Option<u32> {
        let entries = self.read();
        let entry = entries.by_address.get(&address)?;
        let is_old = now.saturating_sub(entry.seen.load(Ordering::Relaxed)) > AGE_NS;
        (entry.given || !is_old).then_some(entry.port)
    }

    /// Learns the port of a source address. An address that is assigned to a port is not learnt.
    pub fn learn(&self, address: Address, port: u32, now: u64) {
        {
            let entries = self.read();
            match entries.by_address.get(&address) {
                Some(entry) if entry.given => return,
                Some(entry) if entry.port == port => return entry.seen.store(now, Ordering::Relaxed),
                // A guest that makes up addresses must not cost the others anything: no lock that they wait for, and no
                // search.
                _ if entries.is_full(port, now) => return,
                _ => {}
            }
        }
        let mut entries = self.write();
        // It may have been assigned between the two locks.
        if entries.by_address.get(&address).is_some_and(|entry| entry.given) {
            return;
        }
        if entries.count(port) >= MAX_OF_A_PORT && !entries.forget_old(port, now) {
            entries.learnt.entry(port).or_default().full_until = now + FULL_NS;
            return;
        }
        entries.put(address, Entry { port, seen: AtomicU64::new(now), given: false });
        drop(entries);
        self.change();
    }

    /// Tests whether an address is assigned to another port.
    #[must_use]
    pub(crate) fn is_anothers(&self, address: Address, port: u32) -> bool {
        self.read().by_address.get(&address).is_some_and(|entry| entry.given && entry.port != port)
    }

    /// Assigns an address to a port. `false` if another port has it.
    pub fn give(&self, address: Address, port: u32) -> bool {
        let mut entries = self.write();
        let is_free = entries.by_address.get(&address).is_none_or(|entry| !entry.given);
        if is_free {
            entries.put(address, Entry { port, seen: AtomicU64::new(0), given: true });
        }
        drop(entries);
        self.change();
        is_free
    }

    /// Forgets all addresses of a port.
    pub fn forget(&self, port: u32) {
        let mut entries = self.write();
        entries.by_address.retain(|_, entry| entry.port != port);
        entries.learnt.remove(&port);
        drop(entries);
        self.change();
    }

    /// The number of addresses.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().by_address.len()
    }

    /// Tests whether the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Entries {
    fn count(&self, port: u32) -> usize {
        self.learnt.get(&port).map_or(0, |learnt| learnt.count)
    }

    fn is_full(&self, port: u32, now: u64) -> bool {
        self.learnt.get(&port).is_some_and(|learnt| learnt.count >= MAX_OF_A_PORT && now < learnt.full_until)
    }

    fn put(&mut self, address: Address, entry: Entry) {
        if !entry.given {
            self.learnt.entry(entry.port).or_default().count += 1;
        }
        let before = self.by_address.insert(address, entry);
        if let Some(before) = before.filter(|before| !before.given) {
            self.age_out(before.port, 1);
        }
    }

    fn age_out(&mut self, port: u32, count: usize) {
        if let Some(learnt) = self.learnt.get_mut(&port) {
            learnt.count = learnt.count.saturating_sub(count);
        }
    }

    /// Forgets the aged addresses of a port. `false` if there were none.
    fn forget_old(&mut self, port: u32, now: u64) -> bool {
        let before = self.by_address.len();
        self.by_address.retain(|_, entry| {
            let is_old = now.saturating_sub(entry.seen.load(Ordering::Relaxed)) > AGE_NS;
            entry.port != port || entry.given || !is_old
        });
        let forgotten = before - self.by_address.len();
        self.age_out(port, forgotten);
        forgotten > 0
    }
}

/// The time for which a cached lookup is valid, nanoseconds. So addresses may age this much later.
const HOLDS_NS: u64 = 1_000_000_000;

/// A cache of lookups, for one sender: most packets go where the one before went.
#[derive(Debug)]
pub(super) struct LookupCache([Known; LookupCache::SIZE]);

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// The address, with a bit above it that marks a valid entry.
    address: u64,
    until: u64,
    index: u32,
}

impl LookupCache {
    const SIZE: usize = 64;

    pub(super) const fn new() -> Self {
        Self([Known { address: 0, until: 0, index: 0 }; Self::SIZE])
    }

    fn key(address: Address) -> u64 {
        let [a, b, c, d, e, f] = address;
        u64::from_be_bytes([1, 0, a, b, c, d, e, f])
    }

    #[inline]
    fn slot(&mut self, key: u64) -> &mut Known {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        &mut self.0[hash as usize % Self::SIZE]
    }

    #[inline]
    pub(super) fn find(&mut self, address: Address, now: u64) -> Option<u32> {
        let key = Self::key(address);
        let known = self.slot(key);
        (known.address == key && now < known.until).then_some(known.index)
    }

    pub(super) fn put(&mut self, address: Address, index: u32, now: u64) {
        let key = Self::key(address);
        *self.slot(key) = Known { address: key, until: now + HOLDS_NS, index };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u16) -> Address {
        let [a, b] = number.to_be_bytes();
        [2, 0, 0, 0, a, b]
    }

    #[test]
    fn addresses_are_learnt_move_and_are_forgotten() {
        let table = Table::default();
        table.learn(address(1), 3, 0);
        assert_eq!(table.find(address(1), AGE_NS), Some(3));
        let before = table.changes();
        table.learn(address(1), 3, 10);
        assert_eq!(table.changes(), before, "nothing is elsewhere");
        assert_eq!(table.find(address(1), AGE_NS + 10), Some(3));
        assert_eq!(table.find(address(1), AGE_NS + 11), None);
        table.learn(address(1), 4, 20);
        assert_eq!(table.find(address(1), 20), Some(4));
        assert_ne!(table.changes(), before);
        table.forget(4);
        assert!(table.is_empty());
    }

    #[test]
    fn what_was_given_to_a_port_is_learnt_nowhere_else() {
        let table = Table::default();
        table.learn(address(1), 2, 0);
        assert!(table.give(address(1), 1));
        assert!(!table.give(address(1), 2));
        table.learn(address(1), 2, 5);
        assert_eq!(table.find(address(1), 10 * AGE_NS), Some(1));
    }

    #[test]
    fn a_guest_that_makes_up_addresses_takes_nobody_elses_room() {
        let table = Table::default();
        for number in 0..5000 {
            table.learn(address(number), 1, 0);
        }
        assert_eq!(table.len(), MAX_OF_A_PORT);
        table.learn(address(6000), 2, 0);
        assert_eq!(table.find(address(6000), 0), Some(2));
        // A full port is noticed without a search, for a while.
        assert!(table.read().is_full(1, FULL_NS - 1) && !table.read().is_full(1, FULL_NS));
        // Aged addresses are forgotten when room is needed.
        table.learn(address(6001), 1, AGE_NS + 1);
        assert_eq!(table.find(address(6001), AGE_NS + 1), Some(1));
        assert_eq!(table.len(), 2);
        // An address that moves counts for its present port.
        for number in 0..5000 {
            table.learn(address(number % 100), 1, 2 * AGE_NS);
            table.learn(address(number % 100), 3, 2 * AGE_NS);
        }
        table.learn(address(7000), 1, 2 * AGE_NS);
        assert_eq!(table.find(address(7000), 2 * AGE_NS), Some(1));
    }
}
