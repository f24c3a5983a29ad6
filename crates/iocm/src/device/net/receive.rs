//! The handler of a receive queue.

use super::buffers::{Buffers, Delivery};
use super::header::{ECN, LEGACY_SIZE, NetHeader, SIZE};
use super::offload::Offloads;
use super::packet::LARGEST;
use super::switch::{Batch, PortBacklog};
use super::tap::TapQueue;
use super::{NetDevice, features};
use crate::clock::now_ns;
use crate::protocol::VirtioFeatures;
use crate::queue::{Handler, Submitter, Token, Virtqueue, WorkDone};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The source of a guest's packets.
pub(super) enum Source {
    /// No link.
    Nothing,
    /// A tap of the host.
    Tap(Arc<TapQueue>),
    /// The other ports of a switch.
    Switch(Arc<PortBacklog>),
}

/// The handler of a receive queue.
pub struct Receive {
    device: Arc<NetDevice>,
    source: Source,
    buffers: Buffers,
    offloads: Offloads,
    /// The guest was told an MTU.
    knows_mtu: bool,
    /// A packet of the tap with its header, and its size while it waits for buffers.
    packet: Box<[u8]>,
    waits: Option<usize>,
    /// The tap was empty at the last read.
    is_empty: bool,
    /// Packets of the switch, and the index of the next one.
    batch: Option<Batch>,
    next: usize,
    /// There were fewer buffers than the next packet needs.
    is_short: bool,
}

impl Receive {
    pub(super) fn new(device: Arc<NetDevice>, source: Source, negotiated: VirtioFeatures) -> Self {
        let merges = negotiated.has(features::MERGEABLE);
        let size = if matches!(source, Source::Tap(_)) { SIZE + LARGEST } else { 0 };
        Self {
            device,
            source,
            buffers: Buffers::new(merges, NetDevice::header(negotiated)),
            offloads: Offloads::of_guest(negotiated),
            knows_mtu: negotiated.has(features::MTU),
            packet: vec![0; size].into_boxed_slice(),
            waits: None,
            is_empty: false,
            batch: None,
            next: 0,
            is_short: false,
        }
    }

    /// Delivers packets of the switch together, as long as each fits in one buffer. Returns their number and their
    /// bytes.
    #[inline]
    fn several(&mut self, queue: &mut Virtqueue, most: u32) -> (u32, u64) {
        let Some(batch) = self.batch.as_ref().filter(|batch| batch.len() > self.next) else { return (0, 0) };
        let count = (batch.len() - self.next).min(most as usize);
        let packets = (self.next..self.next + count).map_while(|index| batch.get(index));
        let packets = packets.map(|(header, frame)| (header.bytes(), frame));
        let (given, bytes) = self.buffers.deliver_small(queue, count, packets);
        self.next += given;
        (given as u32, bytes)
    }

    /// Delivers the next packet. Returns its bytes, or `None` when there is no packet, or no buffer for it.
    #[inline]
    fn one(&mut self, queue: &mut Virtqueue) -> Option<u64> {
        match &self.source {
            Source::Nothing => None,
            Source::Tap(tap) => {
                let size = match self.waits.take() {
                    Some(size) => size,
                    // Read only if there is a buffer: packets that stay in the tap's queue are not lost.
                    None if !queue.has_more() => return None,
                    None => match tap.read(&mut self.packet) {
                        Some(size) => size,
                        None => {
                            self.is_empty = true;
                            return None;
                        }
                    },
                };
                self.is_empty = false;
                // The kernel always adds the header.
                let (head, frame) = self.packet.get(..size)?.split_first_chunk::<SIZE>()?;
                let head = *head.first_chunk::<LEGACY_SIZE>()?;
                let bytes = frame.len() as u64;
                // The guest may rely on the MTU it was told, except for packets to be segmented (VIRTIO 1.3, 5.1.4.1).
                if head[1] & !ECN == 0 && frame.len() > self.device.largest_received(self.knows_mtu) {
                    queue.count_too_large();
                    return Some(0);
                }
                match self.buffers.deliver(queue, &NetHeader::of_kernel(head, self.offloads), frame) {
                    Delivery::Done => {}
                    Delivery::Short => {
                        (self.waits, self.is_short) = (Some(size), true);
                        return None;
                    }
                    Delivery::TooLarge => {
                        queue.count_too_large();
                        return Some(0);
                    }
                }
                Some(bytes)
            }
            Source::Switch(backlog) => {
                let batch = match &mut self.batch {
                    Some(batch) if self.next < batch.len() => batch,
                    batch => {
                        *batch = backlog.take(batch.take());
                        self.next = 0;
                        batch.as_mut()?
                    }
                };
                let (header, frame) = batch.get(self.next)?;
                let bytes = frame.len() as u64;
                match self.buffers.deliver(queue, &header.bytes(), frame) {
                    Delivery::Done => self.next += 1,
                    Delivery::Short => {
                        self.is_short = true;
                        return None;
                    }
                    Delivery::TooLarge => {
                        self.next += 1;
                        queue.count_too_large();
                        return Some(0);
                    }
                }
                Some(bytes)
            }
        }
    }
}

impl Handler for Receive {
    fn serve(&mut self, queue: &mut Virtqueue, _submitter: &mut Submitter<'_>, budget: u32) -> WorkDone {
        let mut work = WorkDone::default();
        let limits = &self.device.received;
        work.throttled_ns = limits.wait(now_ns);
        if work.throttled_ns.is_some() {
            return work;
        }
        if let Source::Switch(backlog) = &self.source {
            let dropped = backlog.take_dropped();
            if dropped > 0 {
                queue.count_dropped(dropped);
            }
        }
        self.is_short = false;
        if budget == 0 {
            // The tap's event may be the reason for this turn. It is edge-triggered, so it does not come again.
            self.is_empty = false;
        }
        let (mut done, mut bytes) = (0, 0);
        while work.requests + self.buffers.extra() < budget {
            let Some(size) = self.one(queue) else { break };
            work.requests += 1;
            done += u64::from(size > 0);
            bytes += size;
            let (count, size) = self.several(queue, budget - work.requests);
            work.requests += count;
            done += u64::from(count);
            bytes += size;
        }
        queue.count(done, bytes);
        (work.bytes, work.extra) = (bytes, self.buffers.take_extra());
        // Packets without a buffer were work, too.
        self.device.received.take(u64::from(work.requests), bytes);
        work.more = work.requests + work.extra >= budget;
        work
    }

    fn complete(&mut self, _queue: &mut Virtqueue, _token: Token, _result: i32) {}

    fn in_flight(&self) -> usize {
        0
    }

    fn source(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            Source::Nothing => None,
            Source::Tap(tap) => Some(tap.file()),
            Source::Switch(backlog) => Some(backlog.wake()),
        }
    }

    fn enable(&mut self, enabled: bool) {
        match &self.source {
            // A tap's queue is attached by the device.
            Source::Nothing | Source::Tap(_) => {}
            Source::Switch(backlog) if enabled => {
                backlog.open(self.offloads, self.device.largest_received(self.knows_mtu));
            }
            Source::Switch(backlog) => {
                close(backlog, self.batch.take(), self.next);
            }
        }
    }

    fn enable_wakeups(&mut self, queue: &mut Virtqueue) -> bool {
        let waits = match &self.source {
            // There are no packets that would need buffers.
            Source::Nothing => return false,
            Source::Tap(_) => self.waits.is_some() || !self.is_empty,
            Source::Switch(backlog) => {
                self.batch.as_ref().is_some_and(|batch| self.next < batch.len()) || backlog.sleep()
            }
        };
        match waits {
            true if self.is_short => self.buffers.enable_kicks(queue),
            true => queue.enable_kicks(),
            // The sender of the next packet wakes the worker, so kicks for buffers are not needed.
            false => {
                queue.disable_kicks();
                false
            }
        }
    }
}

impl Drop for Receive {
    fn drop(&mut self) {
        if let Source::Switch(backlog) = &self.source {
            close(backlog, self.batch.take(), self.next);
        }
    }
}

/// Closes the queue of a port. The packets from `next` on were taken from it and are dropped, too.
fn close(backlog: &PortBacklog, batch: Option<Batch>, next: usize) {
    backlog.close();
    let left = batch.map_or(0, |batch| batch.len() - next);
    backlog.drop_packets(left as u64);
}
