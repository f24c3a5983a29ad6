//! Behind which port an address is: learnt from what comes from there, and forgotten after a while.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// An Ethernet address.
pub type Address = [u8; 6];

/// So long an address is known from which nothing comes, nanoseconds: IEEE 802.1Q, 8.8.3, as all bridges have it.
const AGE_NS: u64 = 300 * 1_000_000_000;
/// Addresses that can be learnt behind one port: a guest that makes them up must not take the others' room.
const MOST_OF_A_PORT: usize = 1024;
/// So long a port whose room is full is not looked through again for addresses that grew old, nanoseconds.
const FULL_NS: u64 = 1_000_000_000;

#[derive(Debug)]
struct Entry {
    port: u32,
    /// When something last came from it, nanoseconds.
    seen: AtomicU64,
    /// Whether it was given to the port: it is neither forgotten nor learnt elsewhere.
    given: bool,
}

/// The addresses that a switch knows.
#[derive(Debug, Default)]
pub struct Table {
    entries: RwLock<Entries>,
    /// Changes whenever an address is somewhere else than before: what was looked up earlier does not hold then.
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct Entries {
    by_address: HashMap<Address, Entry>,
    /// What was learnt behind each port.
    learnt: HashMap<u32, Learnt>,
}

/// What was learnt behind a port.
#[derive(Debug, Default)]
struct Learnt {
    /// Addresses.
    count: usize,
    /// Until when there is no room for more, nanoseconds.
    full_until: u64,
}

impl Table {
    fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entries> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes whenever an address is somewhere else than before.
    #[inline]
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// What was looked up earlier does not hold any more.
    pub(super) fn change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Behind which port an address is at `now`.
    #[must_use]
    pub fn find(&self, address: Address, now: u64) -> Option<u32> {
        let entries = self.read();
        let entry = entries.by_address.get(&address)?;
        let is_old = now.saturating_sub(entry.seen.load(Ordering::Relaxed)) > AGE_NS;
        (entry.given || !is_old).then_some(entry.port)
    }

    /// Takes note that something came from an address by a port. An address that was given to a port stays there.
    pub fn learn(&self, address: Address, port: u32, now: u64) {
        {
            let entries = self.read();
            match entries.by_address.get(&address) {
                Some(entry) if entry.given => return,
                Some(entry) if entry.port == port => return entry.seen.store(now, Ordering::Relaxed),
                // One that makes up addresses costs the others nothing: no lock that they wait for, and no search.
                _ if entries.is_full(port, now) => return,
                _ => {}
            }
        }
        let mut entries = self.write();
        if entries.count(port) >= MOST_OF_A_PORT && !entries.forget_old(port, now) {
            entries.learnt.entry(port).or_default().full_until = now + FULL_NS;
            return;
        }
        entries.put(address, Entry { port, seen: AtomicU64::new(now), given: false });
        drop(entries);
        self.change();
    }

    /// Whether an address was given to another port.
    #[must_use]
    pub fn is_anothers(&self, address: Address, port: u32) -> bool {
        self.read().by_address.get(&address).is_some_and(|entry| entry.given && entry.port != port)
    }

    /// Gives an address to a port for good. Whether no other has it.
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

    /// Forgets a port.
    pub fn forget(&self, port: u32) {
        let mut entries = self.write();
        entries.by_address.retain(|_, entry| entry.port != port);
        entries.learnt.remove(&port);
        drop(entries);
        self.change();
    }

    /// Addresses that are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().by_address.len()
    }

    /// Whether none is known.
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
        self.learnt.get(&port).is_some_and(|learnt| learnt.count >= MOST_OF_A_PORT && now < learnt.full_until)
    }

    fn put(&mut self, address: Address, entry: Entry) {
        if !entry.given {
            self.learnt.entry(entry.port).or_default().count += 1;
        }
        let before = self.by_address.insert(address, entry);
        if let Some(before) = before.filter(|before| !before.given) {
            self.unlearn(before.port, 1);
        }
    }

    fn unlearn(&mut self, port: u32, count: usize) {
        if let Some(learnt) = self.learnt.get_mut(&port) {
            learnt.count = learnt.count.saturating_sub(count);
        }
    }

    /// Forgets the addresses of a port from which nothing came for long. Whether there were any.
    fn forget_old(&mut self, port: u32, now: u64) -> bool {
        let before = self.by_address.len();
        self.by_address.retain(|_, entry| {
            let is_old = now.saturating_sub(entry.seen.load(Ordering::Relaxed)) > AGE_NS;
            entry.port != port || entry.given || !is_old
        });
        let forgotten = before - self.by_address.len();
        self.unlearn(port, forgotten);
        forgotten > 0
    }
}

/// How long something that was looked up holds, nanoseconds: an address grows old no less exactly than that.
const HOLDS_NS: u64 = 1_000_000_000;

/// Addresses that were looked up.
#[derive(Debug)]
pub(super) struct LookupCache([Known; LookupCache::SIZE]);

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// The address, with a bit on top that says that there is one.
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
        assert_eq!(table.len(), MOST_OF_A_PORT);
        table.learn(address(6000), 2, 0);
        assert_eq!(table.find(address(6000), 0), Some(2));
        // One that has no room is found out without a search, and for a while.
        assert!(table.read().is_full(1, FULL_NS - 1) && !table.read().is_full(1, FULL_NS));
        // They are forgotten when there is need.
        table.learn(address(6001), 1, AGE_NS + 1);
        assert_eq!(table.find(address(6001), AGE_NS + 1), Some(1));
        assert_eq!(table.len(), 2);
        // One that moves is counted where it is.
        for number in 0..5000 {
            table.learn(address(number % 100), 1, 2 * AGE_NS);
            table.learn(address(number % 100), 3, 2 * AGE_NS);
        }
        table.learn(address(7000), 1, 2 * AGE_NS);
        assert_eq!(table.find(address(7000), 2 * AGE_NS), Some(1));
    }
}
