//! The handler of a transmit queue.

use super::NetDevice;
use super::header::{LEGACY_SIZE, Malformed, NetHeader};
use super::offload::Offloads;
use super::packet::{ETHERNET, HEAD, LARGEST};
use super::switch::{Forwarded, Sender};
use super::tap::TapQueue;
use crate::clock::now_ns;
use crate::queue::{BYTES_A_UNIT, Handler, Submitter, Token, Virtqueue, WorkDone};
use crate::ring::{Chain, RingError, Side};
use std::sync::Arc;

/// The destination of a guest's packets.
pub(super) enum Target {
    /// No link: packets are parsed and dropped.
    Nothing,
    /// A tap of the host.
    Tap(Arc<TapQueue>),
    /// The other ports of a switch.
    Switch(Box<Sender>),
}

/// The handler of a transmit queue.
pub struct Transmit {
    device: Arc<NetDevice>,
    target: Target,
    /// Buffers that are taken ahead of the one that is sent, so that they arrive from the guest's CPU meanwhile.
    chains: Box<[Chain]>,
    /// The size of the guest's header.
    header: u64,
    /// The offloads that the guest negotiated.
    negotiated: Offloads,
    /// The units of work of this turn, besides its packets and their bytes.
    extra: usize,
}

/// The number of buffers that are taken ahead: as many cache misses as a CPU can have at a time.
const AHEAD: usize = 16;

/// The number of segments of a tap's packet that count as one unit of work: the kernel may have to cut it, in the worker's
/// time. A packet of 64 KiB has fewer, unless its segments are smaller than usual.
const SEGMENTS_A_UNIT: usize = 64;

/// The result of transmitting a packet.
enum Transmitted {
    Sent(u64),
    Filtered,
    NoRoom,
    TooLarge,
}

impl Transmitted {
    /// The result for a packet of this size that was sent to a switch.
    const fn of(sent: Forwarded, size: u64) -> Self {
        match sent {
            Forwarded::Sent => Self::Sent(size),
            Forwarded::Filtered => Self::Filtered,
            Forwarded::NoRoom => Self::NoRoom,
            Forwarded::TooLarge => Self::TooLarge,
        }
    }
}

impl Transmit {
    pub(super) fn new(device: Arc<NetDevice>, target: Target, header: usize, negotiated: Offloads) -> Self {
        let chains = (0..AHEAD).map(|_| Chain::default()).collect();
        Self { device, target, chains, header: header as u64, negotiated, extra: 0 }
    }

    /// Sends the packet in a buffer.
    #[inline]
    fn send(&mut self, chain: &Chain, now: u64) -> Result<Transmitted, Malformed> {
        if let (Target::Switch(sender), [part]) = (&mut self.target, chain.parts(Side::Readable))
            && let Some(sent) = sender.send_usual(part, self.header, now)
        {
            return Ok(Transmitted::of(sent, u64::from(part.size) - self.header));
        }
        self.send_any(chain, now)
    }

    /// Does the same as [`Self::send`] for all other packets.
    fn send_any(&mut self, chain: &Chain, now: u64) -> Result<Transmitted, Malformed> {
        let all = chain.bytes(Side::Readable);
        let size = all.saturating_sub(self.header);
        if size < ETHERNET as u64 {
            return Err(Malformed::Short(all));
        }
        if size > LARGEST as u64 {
            return Err(Malformed::Large(all));
        }
        let bytes = chain.array::<LEGACY_SIZE>(0);
        match &mut self.target {
            Target::Switch(sender) => {
                let sent = sender.send(chain, self.header, size as usize, bytes, self.negotiated, now)?;
                self.extra += sender.take_copies() as usize;
                Ok(Transmitted::of(sent, size))
            }
            target => {
                let mut head = [0; HEAD];
                let count = match bytes {
                    // The header asks for nothing, so the packet need not be parsed.
                    [0, 0, ..] => 0,
                    _ => chain.read(self.header, &mut head),
                };
                let header = NetHeader::check(bytes, &head[..count], size as usize, self.negotiated)?;
                if header.largest_piece(size as usize) > self.device.largest() {
                    return Ok(Transmitted::TooLarge);
                }
                match target {
                    Target::Tap(tap) => {
                        let parts = chain.pieces(Side::Readable, self.header, size);
                        if tap.write(&header, parts, || !chain.is_lost()) {
                            self.extra += header.segments(size as usize) / SEGMENTS_A_UNIT;
                            return Ok(Transmitted::Sent(size));
                        }
                        // The kernel copies a packet before it looks whether the interface is up.
                        self.extra += (size / BYTES_A_UNIT) as usize;
                        Ok(Transmitted::NoRoom)
                    }
                    _ => Ok(Transmitted::Sent(size)),
                }
            }
        }
    }
}

/// Takes a buffer, and prefetches the bytes that will be read first. `false` if there is none.
#[inline]
fn take(queue: &mut Virtqueue, chain: &mut Chain, reads: usize) -> bool {
    let is_taken = queue.pop(chain);
    if is_taken {
        chain.prefetch(reads);
    }
    is_taken
}

impl Handler for Transmit {
    fn serve(&mut self, queue: &mut Virtqueue, _submitter: &mut Submitter<'_>, budget: u32) -> WorkDone {
        let mut work = WorkDone { throttled_ns: self.device.sent.wait(now_ns), ..WorkDone::default() };
        if work.throttled_ns.is_some() {
            return work;
        }
        let is_limited = self.device.sent.are_set();
        let reads = match &self.target {
            // A packet that is dropped is not read.
            Target::Nothing => LEGACY_SIZE,
            _ => 64,
        };
        let ahead = if is_limited { 1 } else { AHEAD };
        let mut chains = std::mem::take(&mut self.chains);
        let (mut done, mut bytes) = (0, 0);
        let budget = budget as usize;
        self.extra = 0;
        let (mut taken, mut sent, mut is_dry) = (0, 0, false);
        while taken + self.extra < budget.min(ahead) && take(queue, &mut chains[taken], reads) {
            self.extra += chains[taken].extra_units(queue.memory());
            taken += 1;
        }
        // Without packets, neither the caches nor the time are needed. Asking the ring first would be wrong: a packet
        // may arrive after that.
        let now = match &mut self.target {
            Target::Switch(sender) if taken > 0 => {
                sender.begin(self.device.largest());
                now_ns()
            }
            _ => 0,
        };
        while sent < taken {
            let chain = &mut chains[sent % AHEAD];
            match self.send(chain, now) {
                Ok(Transmitted::Sent(size)) => (done, bytes) = (done + 1, bytes + size),
                Ok(Transmitted::Filtered) => done += 1,
                Ok(Transmitted::NoRoom) => queue.count_dropped(1),
                Ok(Transmitted::TooLarge) => queue.count_too_large(),
                Err(error) => {
                    tracing::debug!("A guest's packet is dropped: {error}");
                    queue.count_error();
                }
            }
            // The buffer is returned in any case.
            queue.give(chain.id, 0);
            sent += 1;
            // The other buffers are probably lost, too. The queue is given up, so the driver gets none of them back.
            if queue.loses_page() {
                break;
            }
            if is_limited {
                self.device.sent.take(1, chain.bytes(Side::Readable));
                work.throttled_ns = self.device.sent.wait(now_ns);
            }
            // Look at an empty ring again only when all is sent: the driver's CPU writes to the cache line of its index.
            if taken + self.extra < budget && (!is_dry || sent == taken) && work.throttled_ns.is_none() {
                let next = &mut chains[taken % AHEAD];
                is_dry = !take(queue, next, reads);
                if !is_dry {
                    self.extra += next.extra_units(queue.memory());
                    taken += 1;
                }
            } else if sent + self.extra >= budget {
                // Copies for many ports have used up the turn: the other buffers go back to the ring.
                (sent..taken).rev().for_each(|index| queue.put_back(chains[index % AHEAD].id));
                break;
            }
        }
        work.requests = sent as u32;
        work.extra = self.extra as u32;
        self.chains = chains;
        if let Target::Switch(sender) = &mut self.target {
            match queue.broken() {
                // A lost page is empty, and the receiver would take the checksum that is made for that.
                Some(RingError::Lost) => {
                    sender.discard();
                    queue.count_dropped(std::mem::take(&mut done));
                    bytes = 0;
                }
                _ => sender.flush(),
            }
        }
        queue.count(done, bytes);
        work.bytes = bytes;
        work.more = sent + self.extra >= budget;
        work
    }

    fn complete(&mut self, _queue: &mut Virtqueue, _token: Token, _result: i32) {}

    fn in_flight(&self) -> usize {
        0
    }

    fn discard(&mut self, queue: &mut Virtqueue, budget: u32) -> Option<WorkDone> {
        let mut work = WorkDone::default();
        let chain = &mut self.chains[0];
        while work.units() < budget && queue.pop(chain) {
            work.requests += 1;
            work.extra += chain.extra_units(queue.memory()) as u32;
            queue.give(chain.id, 0);
        }
        queue.count_dropped(u64::from(work.requests));
        work.more = budget > 0 && work.units() >= budget;
        Some(work)
    }
}
