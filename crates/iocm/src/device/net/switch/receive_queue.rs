//! Where packets wait for the queue of a guest that gets them.
//!
//! Any worker brings packets; the one that serves the queue takes them. So nobody else touches the guest's ring, and the
//! queue can move from worker to worker. What waits is bounded, and what finds no room is dropped: a guest that takes
//! nothing harms nobody but itself.

use super::batch::Batch;
use crate::device::net::offload::Offloads;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Packets that may wait: as many as a tap's queue has by default.
const MOST_PACKETS: usize = 1000;
/// Bytes of them.
const MOST_BYTES: usize = 4 << 20;
/// Empty batches that are kept.
const SPARE: usize = 8;

/// Where packets wait for a guest's queue.
#[derive(Debug)]
pub struct ReceiveQueue {
    waiting: Mutex<Waiting>,
    /// What waits, to be looked at without a lock.
    packets: AtomicUsize,
    bytes: AtomicUsize,
    /// Whether a queue takes them.
    open: AtomicBool,
    /// Whether that queue's worker must be woken.
    asleep: AtomicBool,
    wake: OwnedFd,
    /// Packets that found no room.
    dropped: AtomicU64,
    /// What the guest does to packets itself.
    offloads: AtomicU8,
}

#[derive(Debug, Default)]
struct Waiting {
    full: VecDeque<Batch>,
    spare: Vec<Batch>,
}

impl ReceiveQueue {
    /// One that no queue takes packets from.
    ///
    /// # Errors
    /// When the kernel gives no file.
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
        })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a queue takes packets from it.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Lets a queue of a guest that does this take packets from it.
    pub fn open(&self, offloads: Offloads) {
        self.offloads.store(offloads.bits(), Ordering::Relaxed);
        self.open.store(true, Ordering::Release);
    }

    /// Takes no more packets, and forgets those that wait.
    pub fn close(&self) {
        let mut waiting = self.waiting();
        self.open.store(false, Ordering::Release);
        waiting.full.clear();
        self.packets.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// What the guest does to packets itself.
    #[must_use]
    pub fn offloads(&self) -> Offloads {
        Offloads::of_bits(self.offloads.load(Ordering::Relaxed))
    }

    /// Whether there is room for a packet beside those of a batch that is still to be brought.
    #[inline]
    #[must_use]
    pub fn has_room(&self, batch: &Batch) -> bool {
        self.packets.load(Ordering::Relaxed) + batch.len() < MOST_PACKETS
            && self.bytes.load(Ordering::Relaxed) + batch.bytes() < MOST_BYTES
    }

    /// Counts a packet that was dropped.
    pub fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Packets dropped since this was last asked for.
    #[inline]
    pub fn take_dropped(&self) -> u64 {
        match self.dropped.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.dropped.swap(0, Ordering::Relaxed),
        }
    }

    /// Brings packets. An empty batch for the next ones.
    pub fn bring(&self, batch: Batch) -> Batch {
        let spare = {
            let mut waiting = self.waiting();
            if !self.is_open() {
                drop(waiting);
                let mut batch = batch;
                batch.clear();
                return batch;
            }
            self.packets.fetch_add(batch.len(), Ordering::Relaxed);
            self.bytes.fetch_add(batch.bytes(), Ordering::Relaxed);
            waiting.full.push_back(batch);
            waiting.spare.pop().unwrap_or_default()
        };
        // The other side says that it sleeps before it looks for the last time.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
        spare
    }

    /// Takes packets, and gives an empty batch back.
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

    /// Says that the queue's worker is to be woken for the next packet. Whether there is one already.
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

    /// Becomes readable when a packet came for a worker that sleeps.
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
        let receive_queue = ReceiveQueue::new().unwrap();
        receive_queue.bring(batch(3, 60));
        assert!(receive_queue.take(None).is_none(), "nobody takes them");
        receive_queue.open(Offloads::default());
        let mut count = [0; 8];
        let mut wakes =
            || rustix::io::read(receive_queue.wake(), &mut count).map_or(0, |_| u64::from_ne_bytes(count));
        assert!(!receive_queue.sleep());
        receive_queue.bring(batch(3, 60));
        receive_queue.bring(batch(4, 60));
        assert_eq!(wakes(), 1);
        assert!(receive_queue.sleep(), "there is something");
        receive_queue.bring(batch(1, 60));
        assert_eq!(wakes(), 0, "it was not asleep");
        let first = receive_queue.take(None).unwrap();
        assert_eq!(first.len(), 3);
        assert_eq!(receive_queue.take(Some(first)).unwrap().len(), 4);
        assert!(receive_queue.has_room(&batch(MOST_PACKETS - 2, 0)));
        assert!(!receive_queue.has_room(&batch(MOST_PACKETS - 1, 0)));
        assert!(!receive_queue.has_room(&batch(1, MOST_BYTES)));
        receive_queue.close();
        assert!(receive_queue.take(None).is_none());
        assert!(receive_queue.has_room(&batch(MOST_PACKETS - 1, 0)), "nothing waits any more");
    }

    #[test]
    fn what_was_dropped_is_told_once() {
        let receive_queue = ReceiveQueue::new().unwrap();
        receive_queue.drop_one();
        receive_queue.drop_one();
        assert_eq!((receive_queue.take_dropped(), receive_queue.take_dropped()), (2, 0));
    }
}
