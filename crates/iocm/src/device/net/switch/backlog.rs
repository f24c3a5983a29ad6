//! The receive queue of a switch port: packets that wait for one of its guest's virtqueues.
//!
//! Any worker adds packets; the worker that serves the virtqueue takes them. So only one worker touches the guest's
//! ring, and the virtqueue can move between workers. The queue is bounded and drops packets when it is full: a guest
//! that does not receive harms only itself.

use super::batch::Batch;
use crate::device::net::offload::Offloads;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most packets that wait, as in a tap's queue by default.
const MAX_PACKETS: usize = 1000;
/// The most bytes that wait.
const MAX_BYTES: usize = 4 << 20;
/// The number of empty batches that are kept, and of batches that may wait in buffers larger than they need.
const SPARE: usize = 8;

/// Packets that wait for a guest's virtqueue.
#[derive(Debug)]
pub struct PortBacklog {
    waiting: Mutex<Waiting>,
    /// The number of waiting packets and their bytes, readable without the lock.
    packets: AtomicUsize,
    bytes: AtomicUsize,
    /// A virtqueue takes packets.
    open: AtomicBool,
    /// The worker of that virtqueue sleeps and must be woken.
    asleep: AtomicBool,
    wake: OwnedFd,
    /// Packets that were dropped because the queue was full or closed, or because they are larger than the MTU allows.
    dropped: AtomicU64,
    /// The offloads of the guest, and the size of the largest packet that its MTU allows.
    offloads: AtomicU8,
    largest: AtomicUsize,
}

#[derive(Debug, Default)]
struct Waiting {
    full: VecDeque<Batch>,
    spare: Vec<Batch>,
}

impl PortBacklog {
    /// A closed queue.
    ///
    /// # Errors
    ///
    /// When the kernel refuses an eventfd.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            waiting: Mutex::default(),
            packets: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            open: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            dropped: AtomicU64::new(0),
            offloads: AtomicU8::new(0),
            largest: AtomicUsize::new(usize::MAX),
        })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tests whether a virtqueue takes packets from it.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Opens it for a virtqueue with these offloads, which takes packets of up to `largest` bytes.
    pub fn open(&self, offloads: Offloads, largest: usize) {
        self.offloads.store(offloads.bits(), Ordering::Relaxed);
        self.largest.store(largest, Ordering::Relaxed);
        self.open.store(true, Ordering::Release);
    }

    /// Closes it, and drops the packets that wait. Whoever opens it again counts them.
    pub fn close(&self) {
        let mut waiting = self.waiting();
        self.open.store(false, Ordering::Release);
        *waiting = Waiting::default();
        self.drop_packets(self.packets.swap(0, Ordering::Relaxed) as u64);
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// The offloads of the guest.
    #[must_use]
    pub(crate) fn offloads(&self) -> Offloads {
        Offloads::of_bits(self.offloads.load(Ordering::Relaxed))
    }

    /// The size of the largest packet that the guest's MTU allows. It holds while the queue is open.
    #[inline]
    pub(crate) fn largest(&self) -> usize {
        self.largest.load(Ordering::Relaxed)
    }

    /// Tests whether there is room for one more packet, besides those of a batch that has not been added yet.
    #[inline]
    #[must_use]
    pub fn has_room(&self, batch: &Batch) -> bool {
        self.packets.load(Ordering::Relaxed) + batch.len() < MAX_PACKETS
            && self.bytes.load(Ordering::Relaxed) + batch.bytes() < MAX_BYTES
    }

    /// Counts packets that were dropped.
    pub(crate) fn drop_packets(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// The number of packets that were dropped since the last call.
    #[inline]
    pub(crate) fn take_dropped(&self) -> u64 {
        match self.dropped.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.dropped.swap(0, Ordering::Relaxed),
        }
    }

    /// Adds packets. Returns an empty batch for other packets, if there is one and the sender wants it.
    pub fn add(&self, mut batch: Batch, wants_spare: bool) -> Option<Batch> {
        let spare = {
            let mut waiting = self.waiting();
            if !self.is_open() {
                drop(waiting);
                self.drop_packets(batch.len() as u64);
                batch.clear();
                return wants_spare.then_some(batch);
            }
            self.packets.fetch_add(batch.len(), Ordering::Relaxed);
            self.bytes.fetch_add(batch.bytes(), Ordering::Relaxed);
            // Otherwise a thousand small packets could wait, each in a buffer that bulk data once needed.
            if waiting.full.len() >= SPARE {
                batch.trim();
            }
            waiting.full.push_back(batch);
            if wants_spare { waiting.spare.pop() } else { None }
        };
        // Pairs with the fence in `sleep`: the receiver announces its sleep before its last check.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
        spare
    }

    /// Takes packets, and returns an empty batch to the pool.
    #[must_use]
    pub fn take(&self, empty: Option<Batch>) -> Option<Batch> {
        if self.packets.load(Ordering::Acquire) == 0 && empty.is_none() {
            return None;
        }
        let mut waiting = self.waiting();
        if let Some(mut empty) = empty.filter(|_| waiting.spare.len() < SPARE) {
            empty.clear();
            waiting.spare.push(empty);
        }
        let batch = waiting.full.pop_front()?;
        self.packets.fetch_sub(batch.len(), Ordering::Relaxed);
        self.bytes.fetch_sub(batch.bytes(), Ordering::Relaxed);
        Some(batch)
    }

    /// Announces that the worker must be woken for the next packet. `true` if there is one already.
    #[must_use]
    pub fn sleep(&self) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_there = self.packets.load(Ordering::Relaxed) > 0;
        if is_there {
            self.asleep.store(false, Ordering::Relaxed);
        }
        is_there
    }

    /// Readable when a packet has arrived for a worker that sleeps.
    #[must_use]
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::header::NetHeader;
    use super::*;

    fn batch(packets: usize, size: usize) -> Batch {
        let mut batch = Batch::default();
        (0..packets).for_each(|_| batch.add(NetHeader::NOTHING, &vec![1; size], &[]));
        batch
    }

    #[test]
    fn packets_wait_within_bounds_and_wake_once() {
        let backlog = PortBacklog::new().unwrap();
        backlog.add(batch(3, 60), true);
        assert!(backlog.take(None).is_none(), "nobody takes them");
        assert_eq!(backlog.take_dropped(), 3);
        backlog.open(Offloads::default(), 2000);
        let mut count = [0; 8];
        let mut wakes =
            || rustix::io::read(backlog.wake(), &mut count).map_or(0, |_| u64::from_ne_bytes(count));
        assert!(!backlog.sleep());
        backlog.add(batch(3, 60), true);
        backlog.add(batch(4, 60), true);
        assert_eq!(wakes(), 1);
        assert!(backlog.sleep(), "there is something");
        backlog.add(batch(1, 60), true);
        assert_eq!(wakes(), 0, "it was not asleep");
        let first = backlog.take(None).unwrap();
        assert_eq!(first.len(), 3);
        assert_eq!(backlog.take(Some(first)).unwrap().len(), 4);
        assert!(backlog.has_room(&batch(MAX_PACKETS - 2, 0)));
        assert!(!backlog.has_room(&batch(MAX_PACKETS - 1, 0)));
        assert!(!backlog.has_room(&batch(1, MAX_BYTES)));
        backlog.close();
        assert!(backlog.take(None).is_none());
        assert_eq!(backlog.take_dropped(), 1);
        assert!(backlog.has_room(&batch(MAX_PACKETS - 1, 0)), "nothing waits any more");
    }

    #[test]
    fn packets_that_wait_hold_little_more_memory_than_they_need() {
        const LARGE: usize = 200_000;
        let backlog = PortBacklog::new().unwrap();
        backlog.open(Offloads::default(), 2000);
        for _ in 0..100 {
            let mut large = batch(1, LARGE);
            large.clear();
            large.add(NetHeader::NOTHING, &[1; 60], &[]);
            assert!(large.capacity() >= LARGE);
            backlog.add(large, false);
        }
        let held = backlog.waiting().full.iter().map(Batch::capacity).sum::<usize>();
        assert!(held < (SPARE + 1) * LARGE, "{held} bytes");
        let first = backlog.take(None);
        let second = backlog.take(first);
        assert_eq!(second.unwrap().len(), 1);
        assert_eq!(backlog.waiting().spare.len(), 1);
        backlog.close();
        assert_eq!(backlog.waiting().spare.len(), 0, "a guest that is gone needs none");
    }

    #[test]
    fn what_was_dropped_is_told_once() {
        let backlog = PortBacklog::new().unwrap();
        backlog.drop_packets(1);
        backlog.drop_packets(2);
        assert_eq!((backlog.take_dropped(), backlog.take_dropped()), (3, 0));
    }
}
