//! A virtqueue: a ring with its inflight records, its call eventfd and its counters.

use super::inflight::Inflight;
use super::{Eventfd, QueueState};
use crate::memory::GuestMemory;
use crate::ring::{Chain, RawDescriptor, Ring, RingError};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A virtqueue.
#[derive(Debug)]
pub struct Virtqueue {
    pub(super) ring: Ring,
    /// Counters and state that other threads may read.
    pub(crate) state: Arc<QueueState>,
    /// Set once the driver violated the ring's format: the ring is no longer read or written.
    pub(super) broken: Option<RingError>,
    /// `broken` was reported.
    told: bool,
    /// The count of lost pages of all guests when this guest's memory was last checked for one.
    pub(super) lost_pages: u32,
    call: Option<Arc<Eventfd>>,
    /// Used buffers were added that the driver does not see yet.
    unpublished: bool,
    /// The driver wants a call for buffers that it sees already.
    call_due: bool,
    /// The call eventfd is to be signalled.
    to_call: bool,
    inflight: Option<Inflight>,
    /// Requests that an earlier back-end took and did not complete, the first one last.
    again: Vec<Again>,
    /// The request that is marked as being handled, and whether it must only be answered.
    handled: Option<u16>,
    suspect: bool,
}

/// A request that this many back-ends were handling when they ended is answered with an error; after one more it is not
/// even read, and its queue is broken.
const SUSPECT: u8 = 2;

/// A request that an earlier back-end took.
#[derive(Debug)]
struct Again {
    id: u16,
    /// The descriptors, for a packed ring.
    descriptors: Vec<RawDescriptor>,
}

impl Virtqueue {
    pub(crate) fn new(ring: Ring, call: Option<OwnedFd>, state: Arc<QueueState>) -> Self {
        let call = call.map(|file| Eventfd::new(file, &state));
        Self {
            ring,
            state,
            broken: None,
            told: false,
            lost_pages: 0,
            // The previous back-end may have ended after it published its last buffers, and before it called the driver.
            to_call: call.is_some(),
            call,
            unpublished: false,
            call_due: false,
            inflight: None,
            again: Vec::new(),
            handled: None,
            suspect: false,
        }
    }

    /// The violation of the ring's format for which the queue is no longer served; `None` while there was none.
    #[must_use]
    pub fn broken(&self) -> Option<RingError> {
        self.broken
    }

    /// Takes the next request into `chain`. `false` when there is none, or the ring is broken.
    #[inline]
    pub fn pop(&mut self, chain: &mut Chain) -> bool {
        if self.broken.is_some() {
            return false;
        }
        if let (Ring::Split(ring), None) = (&mut self.ring, &self.inflight)
            && let Some(is_taken) = ring.pop_usual(chain)
        {
            return is_taken && !self.loses_page();
        }
        self.pop_any(chain)
    }

    /// Does the same as [`Self::pop`] for all other chains and queues.
    fn pop_any(&mut self, chain: &mut Chain) -> bool {
        let popped = match self.inflight.is_some() {
            false => self.ring.pop(chain),
            true => self.pop_and_record(chain),
        };
        self.is_taken(popped)
    }

    /// Takes the next request that an earlier back-end took into `chain`. `false` when there is none, or the ring is broken.
    pub(crate) fn pop_again(&mut self, chain: &mut Chain) -> bool {
        if !self.has_again() {
            return false;
        }
        let popped = self.resubmit(chain);
        self.is_taken(popped)
    }

    fn is_taken(&mut self, popped: Result<bool, RingError>) -> bool {
        match popped {
            Ok(popped) => popped && !self.loses_page(),
            Err(error) => {
                self.broken = Some(error);
                false
            }
        }
    }

    /// Tests whether a page that the queue uses was lost since the last test. If so, the queue is given up, and the driver is
    /// told nothing more.
    #[inline]
    pub(crate) fn loses_page(&mut self) -> bool {
        crate::memory::lost_pages() != self.lost_pages && self.is_cut()
    }

    #[cold]
    fn is_cut(&mut self) -> bool {
        self.lost_pages = crate::memory::lost_pages();
        let is_cut = self.memory().is_cut() || self.inflight.as_ref().is_some_and(Inflight::is_lost);
        if is_cut {
            self.lose_memory();
        }
        is_cut
    }

    /// Marks the queue as broken because a page that it uses was lost.
    pub(crate) fn lose_memory(&mut self) {
        self.give_up(RingError::Lost);
    }

    /// Marks the queue as broken.
    pub(crate) fn give_up(&mut self, why: RingError) {
        self.broken = Some(why);
    }

    #[inline]
    fn resubmit(&mut self, chain: &mut Chain) -> Result<bool, RingError> {
        self.settle();
        self.suspect = false;
        let Some(Again { id, descriptors }) = self.again.pop() else { return Ok(false) };
        let tries = self.handle(id);
        if tries > SUSPECT {
            // Given back without a status, it would have the one that was there before: most likely that of a success. Its
            // mark stays for the next back-end.
            self.handled = None;
            return Err(RingError::Fatal(id));
        }
        self.suspect = tries == SUSPECT;
        match &self.ring {
            Ring::Split(ring) => ring.collect(id, chain)?,
            Ring::Packed(ring) => ring.collect_again(id, &descriptors, chain)?,
        }
        Ok(true)
    }

    fn pop_and_record(&mut self, chain: &mut Chain) -> Result<bool, RingError> {
        if self.resubmit(chain)? {
            return Ok(true);
        }
        // The entries of a packed ring's inflight memory become free only when the driver sees the used buffers.
        if matches!(self.ring, Ring::Packed(_)) {
            self.publish_early();
        }
        if !self.ring.pop(chain)? {
            return Ok(false);
        }
        match (&mut self.inflight, &self.ring) {
            (Some(Inflight::Split(inflight)), _) => inflight.taken(chain.id),
            (Some(Inflight::Packed(inflight)), Ring::Packed(ring)) => {
                inflight.taken(&ring.last_taken(chain.id))
            }
            _ => {}
        }
        self.handled = Some(chain.id);
        Ok(true)
    }

    /// Marks a request as being handled until [`Self::settle`]. Returns the number of earlier back-ends that ended
    /// while they handled it.
    #[inline]
    pub fn handle(&mut self, id: u16) -> u8 {
        let Some(inflight) = &mut self.inflight else { return 0 };
        let tries = inflight.tries(id);
        inflight.set_tries(id, tries.saturating_add(1));
        self.handled = Some(id);
        tries
    }

    /// Clears the mark of [`Self::handle`]: the process has survived the request.
    #[inline]
    pub fn settle(&mut self) {
        if let (Some(id), Some(inflight)) = (self.handled.take(), &mut self.inflight) {
            inflight.set_tries(id, 0);
        }
    }

    /// Tests whether the request that was taken last ended two back-ends, and must only be answered.
    #[inline]
    #[must_use]
    pub(crate) const fn is_suspect(&self) -> bool {
        self.suspect
    }

    /// Resubmits the requests that `inflight` records as taken and not used, and records requests in it from now on.
    ///
    /// # Errors
    /// [`RingError`] when the records do not fit the ring.
    pub(super) fn track_inflight(&mut self, mut inflight: Inflight) -> Result<(), RingError> {
        match (&mut inflight, &mut self.ring) {
            (Inflight::Split(inflight), Ring::Split(ring)) => {
                let used = ring.used_index();
                let left = inflight.left(used);
                ring.go_back_to(used.wrapping_add(left.len() as u16));
                let again = left.into_iter().rev().map(|id| Again { id, descriptors: Vec::new() });
                self.again = again.collect();
            }
            (Inflight::Packed(inflight), Ring::Packed(ring)) if inflight.is_fresh() => {
                inflight.begin(ring.given());
            }
            (Inflight::Packed(inflight), Ring::Packed(ring)) => {
                let left = inflight.left(ring)?;
                let counts: Vec<_> = left.iter().map(|one| (one.id, one.descriptors.len() as u16)).collect();
                ring.resume(inflight.used(), &counts)?;
                let again =
                    left.into_iter().rev().map(|one| Again { id: one.id, descriptors: one.descriptors });
                self.again = again.collect();
            }
            _ => return Ok(()),
        }
        self.inflight = Some(inflight);
        Ok(())
    }

    /// Completes a request of which `written` bytes were written; `bytes` is its data in either direction.
    #[inline]
    pub fn push(&mut self, id: u16, written: u32, bytes: u64) {
        self.give(id, written);
        self.count(1, bytes);
    }

    /// Counts completed requests and their data.
    #[inline]
    pub fn count(&self, requests: u64, bytes: u64) {
        self.state.counters.requests.add(requests);
        self.state.counters.bytes.add(bytes);
    }

    /// Adds a used buffer of which `written` bytes were written, without counting a request: it is part of one, or
    /// counted with others.
    #[inline]
    pub fn give(&mut self, id: u16, written: u32) {
        self.unpublished = true;
        match (&mut self.ring, &self.inflight) {
            (Ring::Split(ring), None) => ring.push(id, written),
            _ => self.give_and_record(id, written),
        }
    }

    fn give_and_record(&mut self, id: u16, written: u32) {
        self.ring.push(id, written);
        match (&mut self.inflight, &self.ring) {
            (None, _) => {}
            (Some(Inflight::Packed(inflight)), Ring::Packed(ring)) => inflight.given(id, ring.given()),
            (Some(Inflight::Split(inflight)), _) => inflight.given(id),
            _ => {}
        }
    }

    /// Puts the buffer that was taken last back. Not for queues with inflight records.
    #[inline]
    pub(crate) fn put_back(&mut self, id: u16) {
        debug_assert!(self.inflight.is_none());
        self.ring.put_back(id);
    }

    /// Tests whether a buffer is available.
    #[inline]
    #[must_use]
    pub(crate) fn has_more(&self) -> bool {
        self.broken.is_none() && (self.ring.has_more() || !self.again.is_empty())
    }

    /// Tests whether requests that an earlier back-end took are still to be resubmitted.
    pub(crate) fn has_again(&self) -> bool {
        self.broken.is_none() && !self.again.is_empty()
    }

    /// The number of descriptors of the ring.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.ring.size()
    }

    /// Counts packets that were dropped for lack of room.
    pub(crate) fn count_dropped(&self, packets: u64) {
        self.state.counters.dropped.add(packets);
    }

    /// Counts a packet that was dropped because no buffer was large enough.
    pub(crate) fn count_too_large(&self) {
        self.state.counters.too_large.add(1);
    }

    /// Counts a request that was answered with an error.
    pub(crate) fn count_error(&self) {
        self.state.counters.errors.add(1);
    }

    /// Publishes used buffers to the driver. If it wants a call, [`Self::call`] returns its eventfd.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.settle();
        let shown = self.unpublished;
        self.publish_early();
        let due = std::mem::take(&mut self.call_due);
        if !due && !shown {
            return;
        }
        let counters = &self.state.counters;
        match (due, &self.call) {
            (true, Some(_)) => {
                counters.calls.add(1);
                self.to_call = true;
            }
            _ => counters.calls_saved.add(1),
        }
    }

    /// Publishes used buffers, if there are some. A call that is due for them waits for [`Self::publish`].
    #[inline]
    pub(crate) fn publish_early(&mut self) {
        if !std::mem::take(&mut self.unpublished) {
            return;
        }
        if self.loses_page() || matches!(self.broken, Some(RingError::Lost)) {
            return;
        }
        self.call_due |= self.ring.publish();
        match (&mut self.inflight, &self.ring) {
            (None, _) => {}
            (Some(Inflight::Split(inflight)), Ring::Split(ring)) => inflight.published(ring.used_index()),
            (Some(Inflight::Packed(inflight)), _) => inflight.published(),
            _ => {}
        }
    }

    /// Enables kicks. `true` if a request is available already.
    #[inline]
    pub(crate) fn enable_kicks(&mut self) -> bool {
        if self.broken.is_some() {
            return false;
        }
        self.state.counters.kicks_asked.add(1);
        self.ring.enable_kicks() || !self.again.is_empty()
    }

    #[inline]
    pub(crate) fn disable_kicks(&mut self) {
        if self.broken.is_none() {
            self.ring.disable_kicks();
        }
    }

    /// The guest's memory.
    #[must_use]
    pub const fn memory(&self) -> &Arc<GuestMemory> {
        self.ring.memory()
    }

    /// The violation that broke the ring, once.
    pub(super) fn newly_broken(&mut self) -> Option<RingError> {
        if std::mem::replace(&mut self.told, self.broken.is_some()) { None } else { self.broken }
    }

    /// The index at which the ring continues, in the form of `VHOST_USER_GET_VRING_BASE`.
    #[must_use]
    pub fn base(&self) -> u32 {
        self.ring.base()
    }

    /// Replaces the call eventfd. The new one is signalled at once, because the driver may wait for a signal that went to the
    /// old one.
    pub(crate) fn set_call(&mut self, call: Option<OwnedFd>) {
        self.to_call = call.is_some();
        self.call = call.map(|file| Eventfd::new(file, &self.state));
    }

    /// The call eventfd, if it is to be signalled now.
    #[inline]
    pub(super) fn call(&mut self) -> Option<&Arc<Eventfd>> {
        std::mem::take(&mut self.to_call).then_some(self.call.as_ref()).flatten()
    }
}
