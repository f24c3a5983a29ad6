//! A ring in use: taking requests and giving them back, with everything counted.

use super::QueueState;
use crate::ring::{Chain, Ring, RingError};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A ring in use.
#[derive(Debug)]
pub struct Lane {
    pub(super) ring: Ring,
    pub(super) state: Arc<QueueState>,
    pub(super) broken: Option<RingError>,
    told: bool,
    call: Option<OwnedFd>,
    /// Whether buffers were given back that the driver does not see yet.
    unpublished: bool,
}

impl Lane {
    pub(super) fn new(ring: Ring, call: Option<OwnedFd>, state: Arc<QueueState>) -> Self {
        Self { ring, state, broken: None, told: false, call, unpublished: false }
    }

    /// Takes the next request into `chain`. Whether there was one; never from a ring that broke the rules.
    #[inline]
    pub fn pop(&mut self, chain: &mut Chain) -> bool {
        if self.broken.is_some() {
            return false;
        }
        match self.ring.pop(chain) {
            Ok(found) => found,
            Err(error) => {
                self.broken = Some(error);
                false
            }
        }
    }

    /// Gives a request back of which `written` bytes were written, `bytes` of them data (either way).
    #[inline]
    pub fn push(&mut self, id: u16, written: u32, bytes: u64) {
        self.ring.push(id, written);
        self.unpublished = true;
        self.state.counters.requests.add(1);
        self.state.counters.bytes.add(bytes);
    }

    /// Counts a request that was answered with an error.
    pub fn count_error(&self) {
        self.state.counters.errors.add(1);
    }

    /// Lets the driver see what was given back, and calls it if it wants to be.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if !std::mem::take(&mut self.unpublished) {
            return;
        }
        let counters = &self.state.counters;
        match (self.ring.publish(), &self.call) {
            (true, Some(call)) => {
                counters.calls.add(1);
                // It fails only when 2^64 - 2 calls were not looked at: the driver has been called then.
                let _ = rustix::io::write(call, &1_u64.to_ne_bytes());
            }
            _ => counters.calls_saved.add(1),
        }
    }

    /// What others may know of the queue.
    #[inline]
    pub(crate) const fn state(&self) -> &Arc<QueueState> {
        &self.state
    }

    /// Asks for kicks. Whether there is something already.
    #[inline]
    pub(crate) fn want_kicks(&mut self) -> bool {
        self.broken.is_none() && self.ring.want_kicks()
    }

    #[inline]
    pub(crate) fn spare_kicks(&mut self) {
        if self.broken.is_none() {
            self.ring.spare_kicks();
        }
    }

    /// The memory that requests lie in.
    #[must_use]
    pub fn memory(&self) -> &crate::memory::GuestMemory {
        self.ring.memory()
    }

    /// How the ring broke the rules, the first time that it is asked for.
    pub(super) fn newly_broken(&mut self) -> Option<RingError> {
        if std::mem::replace(&mut self.told, self.broken.is_some()) { None } else { self.broken }
    }

    /// Sets the file by which the driver is called.
    pub fn set_call(&mut self, call: Option<OwnedFd>) {
        self.call = call;
        if let Some(call) = &self.call {
            let _ = rustix::io::write(call, &1_u64.to_ne_bytes());
        }
    }
}
