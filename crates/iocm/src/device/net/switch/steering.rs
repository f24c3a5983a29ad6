//! Automatic receive steering (VIRTIO 1.3, 5.1.6.5.6): a guest receives the packets of a connection on the queue pair
//! on which it sends its own, so that the program and the interrupts of its packets are on one vCPU.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// The number of connections of a guest that are remembered.
const ENTRIES: usize = 4096;
/// The low bits of the clock in nanoseconds that an entry leaves out: its unit is 0.27 s.
const UNIT_BITS: u32 = 28;
/// Units after which a connection on which the guest sends nothing is forgotten: 3.2 s. Linux has 3 s for taps
/// (drivers/net/tun.c, TUN_FLOW_EXPIRE).
const KEPT: u64 = 12;
/// The largest time of an entry.
const TIMES: u64 = 0xff_ffff;

/// The queue pairs by which a guest sends, by connection, and those by which it receives. A guest can only steer what it
/// receives itself.
///
/// An entry has the upper half of the connection's hash, the time of the guest's last packet in 24 bits, and in 8 bits the
/// pair plus one. Without one, the hash alone chooses.
#[derive(Debug)]
pub struct Steering {
    entries: Box<[AtomicU64]>,
    /// The number of pairs by which it receives at most.
    receives_by: AtomicU16,
}

impl Steering {
    /// The steering of a guest with this many queue pairs.
    pub(super) fn new(pairs: u16) -> Self {
        let entries = if pairs > 1 { ENTRIES } else { 0 };
        let entries = (0..entries).map(|_| AtomicU64::new(0)).collect();
        Self { entries, receives_by: AtomicU16::new(u16::MAX) }
    }

    /// Has it receive by its first so many pairs at most.
    pub(in crate::device::net) fn receive_by(&self, pairs: u16) {
        self.receives_by.store(pairs, Ordering::Relaxed);
    }

    /// The number of pairs by which it receives at most.
    #[inline]
    pub(super) fn receives_by(&self) -> usize {
        self.receives_by.load(Ordering::Relaxed).into()
    }

    /// Tests whether there are several pairs.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        !self.entries.is_empty()
    }

    fn entry(&self, flow: u64) -> Option<&AtomicU64> {
        self.entries.get((flow >> 20) as usize % ENTRIES)
    }

    /// Notes that the guest has sent a packet on this pair. `flow` is the hash of the packets that it receives in this
    /// connection.
    pub(super) fn note(&self, flow: u64, pair: u16, now: u64) {
        let Some(entry) = self.entry(flow) else { return };
        let old = entry.load(Ordering::Relaxed);
        let new = flow >> 32 << 32 | (now >> UNIT_BITS & TIMES) << 8 | u64::from(pair + 1) & 0xff;
        // Two active connections would take the entry from each other, and their packets would change queues.
        let may = old >> 32 == new >> 32 || !is_fresh(old, now);
        if may && old != new {
            entry.store(new, Ordering::Relaxed);
        }
    }

    /// The pair on which the guest sends in the connection of this hash; `None` if that is not known.
    pub(super) fn find(&self, flow: u64, now: u64) -> Option<usize> {
        let entry = self.entry(flow)?.load(Ordering::Relaxed);
        let is_it = entry >> 32 == flow >> 32 && is_fresh(entry, now);
        if is_it { (entry as u8 as usize).checked_sub(1) } else { None }
    }
}

fn is_fresh(entry: u64, now: u64) -> bool {
    // The entry may be newer than `now`, if it is from another worker.
    let age = (now >> UNIT_BITS).wrapping_sub(entry >> 8).wrapping_add(KEPT) & TIMES;
    entry != 0 && age < 2 * KEPT
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_connection_has_the_pair_that_sent_last() {
        let flow = 0x1234_5678_9abc_def0;
        for now in [0, 5 * SECOND, TIMES << UNIT_BITS, u64::MAX] {
            let steering = Steering::new(8);
            assert_eq!(steering.find(flow, now), None);
            for pair in [3, 0, 7] {
                steering.note(flow, pair, now);
                assert_eq!(steering.find(flow, now), Some(pair.into()));
                assert_eq!(steering.find(flow, now.wrapping_add(2 * SECOND)), Some(pair.into()));
                assert_eq!(
                    steering.find(flow, now.wrapping_sub(SECOND)),
                    Some(pair.into()),
                    "another's clock"
                );
                assert_eq!(steering.find(flow, now.wrapping_add(4 * SECOND)), None, "it is forgotten");
                assert_eq!(steering.find(flow ^ 1 << 63, now), None, "another of the same entry");
            }
        }
    }

    #[test]
    fn a_connection_in_use_keeps_its_entry() {
        let steering = Steering::new(2);
        let (one, other) = (7 << 32, 9 << 32);
        steering.note(one, 1, 0);
        steering.note(other, 0, 2 * SECOND);
        assert_eq!((steering.find(one, 2 * SECOND), steering.find(other, 2 * SECOND)), (Some(1), None));
        steering.note(other, 0, 4 * SECOND);
        assert_eq!((steering.find(one, 4 * SECOND), steering.find(other, 4 * SECOND)), (None, Some(0)));
    }

    #[test]
    fn one_pair_needs_no_entries() {
        let steering = Steering::new(1);
        steering.note(7, 0, 0);
        assert!(!steering.is_used());
        assert_eq!(steering.find(7, 0), None);
    }
}
