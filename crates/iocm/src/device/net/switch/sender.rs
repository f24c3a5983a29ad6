//! The transmit side of a switch port: forwarding of packets.

use super::backlog::PortBacklog;
use super::batch::Batch;
use super::table::LookupCache;
use super::{Plugged, Port};
use crate::device::net::header::{LEGACY_SIZE, Malformed, NetHeader, Segmentation};
use crate::device::net::offload::Offloads;
use crate::device::net::packet::{Address, ETHERNET, HEAD, HeaderOffsets, LARGEST, queue_of};
use crate::device::net::segmentation::{cut, make_checksum};
use crate::memory::Part;
use crate::queue::BYTES_A_UNIT;
use crate::ring::{Chain, Side};
use std::sync::Arc;

/// The result of sending a valid packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarded {
    /// It was forwarded to at least one port.
    Sent,
    /// It goes nowhere: it is not to be forwarded, or no port is open for it.
    Filtered,
    /// It was dropped: the receive queue is full, or closed.
    NoRoom,
    /// It was dropped: it is larger than the MTU of the sender or of the receiver.
    TooLarge,
}

/// The transmit side of a switch port, for one virtqueue.
#[derive(Debug)]
pub struct Sender {
    port: Arc<Port>,
    /// The queue pair.
    pair: u16,
    /// The guest has several pairs, and should receive on the one on which it sends.
    steers: bool,
    /// The other ports, as of the last change.
    ports: Arc<Vec<Plugged>>,
    /// The version of the table that the caches below belong to.
    changes: u64,
    /// The ports by address; and the addresses of this port that the table knows.
    ports_by_address: LookupCache,
    learnt: LookupCache,
    /// The size of the largest packet that the guest may send in this turn.
    largest: usize,
    /// The last packet of this turn, and those like it.
    run: Option<Run>,
    outbox: Outbox,
    /// A packet that goes to several ports.
    scratch: Batch,
    /// The units of work beyond one packet and its bytes for each request, since the last [`Self::take_copies`].
    copies: u32,
}

/// Packets between two addresses, one after the other.
#[derive(Debug, Clone, Copy)]
struct Run {
    addresses: [u8; 12],
    /// The destination: see [`Sender::route`].
    to: Option<u32>,
    /// The size of the largest packet that its sender and its receiver allow; 0 if the receive queue was closed.
    largest: usize,
}

/// Packets that are not delivered yet.
#[derive(Debug, Default)]
struct Outbox {
    /// The batches for each receive queue of each port. An empty one holds no memory: there is one for each pair of a
    /// transmit queue and a receive queue of the switch.
    batches: Vec<Vec<Batch>>,
    /// The batches that are not empty.
    filled: Vec<(usize, usize)>,
    /// Empty batches for the next packets, and the memory that they hold, bytes.
    spare: Vec<Batch>,
    held: usize,
}

/// The memory that the empty batches of a sender hold, bytes; they take one more while it is less.
const SPARE_BYTES: usize = 1 << 20;

impl Outbox {
    /// The batch for a receive queue, or the fate of a packet that the queue does not take.
    // The compiler does not inline this by itself, which costs 30 instructions a packet.
    #[inline(always)]
    fn place(&mut self, backlog: &PortBacklog, index: usize, pair: usize) -> Result<&mut Batch, Forwarded> {
        if !backlog.is_open() {
            return Err(Forwarded::NoRoom);
        }
        let batch = &mut self.batches[index][pair];
        if !backlog.has_room(batch) {
            backlog.drop_packets(1);
            return Err(Forwarded::NoRoom);
        }
        if batch.is_empty() {
            self.filled.push((index, pair));
            if let Some(spare) = self.spare.pop() {
                self.held -= spare.capacity();
                *batch = spare;
            }
        }
        Ok(batch)
    }

    /// The same as [`Self::place`] for a packet that may be larger than the receiver's MTU: `size` is that of its largest piece.
    fn place_piece(
        &mut self,
        backlog: &PortBacklog,
        index: usize,
        pair: usize,
        size: usize,
    ) -> Result<&mut Batch, Forwarded> {
        if backlog.is_open() && size > backlog.largest() {
            backlog.drop_packets(1);
            return Err(Forwarded::TooLarge);
        }
        self.place(backlog, index, pair)
    }
}

/// The index that stands for all ports: the packet is flooded.
const ALL: u32 = u32::MAX;
/// The index that stands for an error: the packet is from an address that the guest may not send from.
const FORGED: u32 = u32::MAX - 1;

impl Sender {
    /// The transmit side of a port, for a queue pair.
    #[must_use]
    pub fn new(port: Arc<Port>, pair: u16) -> Self {
        Self {
            steers: port.steering.is_used(),
            port,
            pair,
            ports: Arc::default(),
            changes: u64::MAX,
            ports_by_address: LookupCache::new(),
            learnt: LookupCache::new(),
            largest: LARGEST,
            run: None,
            outbox: Outbox::default(),
            scratch: Batch::default(),
            copies: 0,
        }
    }

    /// The units of work since the last call, besides requests and their bytes: copies for other ports, and segments.
    #[inline]
    pub fn take_copies(&mut self) -> u32 {
        std::mem::take(&mut self.copies)
    }

    /// Drops the caches if the table or the ports have changed. Called at the start of a turn, with empty batches, and with
    /// the size of the largest packet that the guest may send.
    #[inline]
    pub fn begin(&mut self, largest: usize) {
        (self.largest, self.run) = (largest, None);
        let changes = self.port.switch.table.changes();
        if changes != self.changes {
            self.renew(changes);
        }
    }

    fn renew(&mut self, changes: u64) {
        self.changes = changes;
        (self.ports_by_address, self.learnt) = (LookupCache::new(), LookupCache::new());
        let ports = self.port.switch.ports();
        if !Arc::ptr_eq(&ports, &self.ports) {
            let batches = |port: &Plugged| port.backlogs.iter().map(|_| Batch::default()).collect();
            self.outbox.batches = ports.iter().map(batches).collect();
            self.ports = ports;
        }
    }

    /// Sends a guest's packet: `size` bytes of `chain` from byte `skip` on, with the header before it.
    ///
    /// # Errors
    /// [`Malformed`].
    #[inline]
    pub fn send(
        &mut self,
        chain: &Chain,
        skip: u64,
        size: usize,
        header: [u8; LEGACY_SIZE],
        negotiated: Offloads,
        now: u64,
    ) -> Result<Forwarded, Malformed> {
        let mut head = [0; HEAD];
        // A packet that needs no offload is not parsed.
        let is_plain = NetHeader::asks_for_nothing([header[0], header[1]]);
        let count = chain.read(skip, &mut head[..if is_plain { ETHERNET } else { HEAD }]);
        let head = &head[..count];
        // Checked before the packet is copied: a malformed one is little work.
        let header = NetHeader::check(header, head, size, negotiated)?;
        let piece = header.largest_piece(size);
        if piece > self.largest {
            return Ok(Forwarded::TooLarge);
        }
        let parts = chain.pieces(Side::Readable, skip, size as u64);
        let addresses = head.first_chunk().ok_or(Malformed::Short(size as u64))?;
        let index = match self.run(addresses, now).0 {
            Some(ALL) => {
                self.scratch.clear();
                self.scratch.begin(head, parts);
                return Ok(self.flood(&header, now));
            }
            Some(FORGED) => return Err(Malformed::Source),
            Some(index) => index as usize,
            None => return Ok(Forwarded::Filtered),
        };
        let port = &self.ports[index];
        let pair = match (self.steers, port.open()) {
            (false, 0 | 1) => 0,
            (_, open) => {
                let mut head = [0; HEAD];
                let count = chain.read(skip, &mut head);
                let head = &head[..count];
                let offsets = HeaderOffsets::of(head);
                note(&self.port, self.pair, offsets, head, now);
                choose(port, open, offsets, head, now)
            }
        };
        let backlog = &*port.backlogs[pair];
        let batch = match self.outbox.place_piece(backlog, index, pair, piece) {
            Ok(batch) => batch,
            Err(dropped) => return Ok(dropped),
        };
        let start = batch.bytes();
        let whole = batch.begin(head, parts);
        if header.checksum.is_none() || backlog.offloads().takes(&header, whole) {
            batch.end(start, header);
        } else {
            let scratch = &mut self.scratch;
            scratch.clear();
            scratch.add(header, whole, &[]);
            batch.cut(start);
            let before = batch.len();
            adapt(backlog, batch, &header, scratch.from(0));
            self.copies += (batch.len() - before).saturating_sub(1) as u32;
        }
        Ok(Forwarded::Sent)
    }

    /// Does the same as [`Self::send`] for the usual packet: one piece of memory, no offload, and a sender and a known
    /// receiver with one queue each. `None` for others, which are not sent yet.
    #[inline]
    pub fn send_usual(&mut self, part: &Part, skip: u64, now: u64) -> Option<Forwarded> {
        let size = u64::from(part.size).checked_sub(skip)?;
        if size < ETHERNET as u64 || self.steers {
            return None;
        }
        let packet = part.pointer.wrapping_add(skip as usize);
        // SAFETY: the piece is mapped guest memory with room for the header and an Ethernet header.
        let header = unsafe { part.pointer.cast::<[u8; 2]>().read_unaligned() };
        // SAFETY: as before.
        let first = unsafe { packet.cast::<[u8; ETHERNET]>().read_unaligned() };
        if !NetHeader::asks_for_nothing(header) {
            return None;
        }
        let (to, largest) = self.run(first.first_chunk()?, now);
        if size > largest as u64 {
            return None;
        }
        let Some(index) = to.map(|index| index as usize) else { return Some(Forwarded::Filtered) };
        let [backlog] = &self.ports.get(index)?.backlogs[..] else { return None };
        match self.outbox.place(backlog, index, 0) {
            Ok(batch) => {
                batch
                    .add_plain(&first, Part { pointer: packet, guest: part.guest + skip, size: size as u32 });
                Some(Forwarded::Sent)
            }
            Err(dropped) => Some(dropped),
        }
    }

    /// Does the same as [`Self::route`], with one look-up for a run of packets between two addresses.
    #[inline]
    fn run(&mut self, addresses: &[u8; 12], now: u64) -> (Option<u32>, usize) {
        match &self.run {
            Some(run) if run.addresses == *addresses => (run.to, run.largest),
            _ => self.new_run(addresses, now),
        }
    }

    #[inline(never)]
    fn new_run(&mut self, addresses: &[u8; 12], now: u64) -> (Option<u32>, usize) {
        let to = self.route(addresses, now);
        let largest = match to.and_then(|index| self.ports.get(index as usize)?.backlogs.first()) {
            Some(backlog) if backlog.is_open() => self.largest.min(backlog.largest()),
            // It may be opened later in this turn, for a guest with another MTU.
            Some(_) => 0,
            None => self.largest,
        };
        self.run = Some(Run { addresses: *addresses, to, largest });
        (to, largest)
    }

    /// The index of the port that a packet goes to, [`ALL`] or [`FORGED`]; `None` when the packet goes nowhere.
    #[inline]
    fn route(&mut self, addresses: &[u8; 12], now: u64) -> Option<u32> {
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = *addresses;
        let (to, from) = ([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5]);
        // A group address is never a source.
        let is_wrong = s0 & 1 != 0 || self.port.checks_source && self.port.address != Some(from);
        if is_wrong {
            return Some(FORGED);
        }
        if self.learnt.find(from, now).is_none() {
            self.port.switch.table.learn(from, self.port.number, now);
            self.learnt.put(from, 0, now);
        }
        if d0 & 1 != 0 {
            // Link-local control frames are not forwarded (IEEE 802.1Q, 8.6.3).
            let stays = matches!(to, [0x01, 0x80, 0xc2, 0, 0, last] if last < 0x10);
            return if stays { None } else { Some(ALL) };
        }
        let index = match self.ports_by_address.find(to, now) {
            Some(index) => index,
            None => self.look_up(to, now),
        };
        // A packet is never sent back to its own port.
        (index == ALL || self.ports.get(index as usize)?.number != self.port.number).then_some(index)
    }

    fn look_up(&mut self, to: Address, now: u64) -> u32 {
        let number = self.port.switch.table.find(to, now);
        let index =
            number.and_then(|number| self.ports.binary_search_by_key(&number, |port| port.number).ok());
        match index {
            Some(index) => {
                self.ports_by_address.put(to, index as u32, now);
                index as u32
            }
            // Flooded until the address is learnt.
            None => ALL,
        }
    }

    /// Floods the packet in the scratch batch.
    fn flood(&mut self, header: &NetHeader, now: u64) -> Forwarded {
        let (mut verdict, mut copies) = (Forwarded::Filtered, 0);
        let piece = header.largest_piece(self.scratch.bytes());
        let count = self.scratch.bytes().min(HEAD);
        let head = &self.scratch.from(0)[..count];
        let offsets = HeaderOffsets::of(head);
        note(&self.port, self.pair, offsets, head, now);
        for (index, port) in self.ports.iter().enumerate() {
            if port.number == self.port.number {
                continue;
            }
            let pair = choose(port, port.open(), offsets, &self.scratch.from(0)[..count], now);
            let backlog = &*port.backlogs[pair];
            // Nobody is there to hear it, and it is not for that port alone.
            if !backlog.is_open() {
                continue;
            }
            let batch = match self.outbox.place_piece(backlog, index, pair, piece) {
                Ok(batch) => batch,
                Err(dropped) => {
                    verdict = if verdict == Forwarded::Filtered { dropped } else { verdict };
                    continue;
                }
            };
            let frame = self.scratch.from(0);
            let before = batch.len();
            match backlog.offloads().takes(header, frame) {
                true => batch.add(*header, frame, &[]),
                false => adapt_copy(backlog, batch, header, frame),
            }
            copies += batch.len() - before + frame.len() / BYTES_A_UNIT as usize;
            verdict = Forwarded::Sent;
        }
        let held = self.scratch.bytes() / BYTES_A_UNIT as usize;
        self.copies += match verdict {
            // The request and its bytes are counted elsewhere.
            Forwarded::Sent => copies.saturating_sub(1 + held) as u32,
            _ => held as u32,
        };
        verdict
    }

    /// Floods a packet of this process, which needs no offload, and learns its source. `false` if the port may not send
    /// from that address.
    pub fn announce(&mut self, frame: &[u8], from: Address, now: u64) -> bool {
        let table = &self.port.switch.table;
        let is_wrong = from[0] & 1 != 0
            || self.port.checks_source && self.port.address != Some(from)
            || table.is_anothers(from, self.port.number);
        if is_wrong {
            return false;
        }
        table.learn(from, self.port.number, now);
        self.begin(LARGEST);
        self.scratch.clear();
        self.scratch.add(NetHeader::NOTHING, frame, &[]);
        self.flood(&NetHeader::NOTHING, now);
        self.flush();
        true
    }

    /// Drops all packets that are not delivered yet.
    #[cold]
    pub fn discard(&mut self) {
        for (index, pair) in self.outbox.filled.drain(..) {
            self.outbox.batches[index][pair] = Batch::default();
        }
    }

    /// Delivers all batches.
    #[inline]
    pub fn flush(&mut self) {
        for (index, pair) in self.outbox.filled.drain(..) {
            let batch = std::mem::take(&mut self.outbox.batches[index][pair]);
            let wants_spare = self.outbox.held < SPARE_BYTES;
            // A batch is empty if its only packet was dropped.
            let empty = match batch.is_empty() {
                true => wants_spare.then_some(batch),
                false => self.ports[index].backlogs[pair].add(batch, wants_spare),
            };
            if let Some(empty) = empty {
                self.outbox.held += empty.capacity();
                self.outbox.spare.push(empty);
            }
        }
    }
}

/// Has a guest with several queue pairs receive the answers to this packet on the pair on which it sends it.
fn note(port: &Port, pair: u16, offsets: Option<HeaderOffsets>, head: &[u8], now: u64) {
    if let Some(offsets) = offsets.filter(|_| port.steering.is_used()) {
        port.steering.note(offsets.flow_back(head), pair, now);
    }
}

/// Chooses one of the open receive queues for a packet: that of the pair on which the guest sends in this connection,
/// or else one by the hash of the connection.
fn choose(port: &Plugged, open: usize, offsets: Option<HeaderOffsets>, head: &[u8], now: u64) -> usize {
    let Some(offsets) = offsets.filter(|_| open > 1) else { return 0 };
    let flow = offsets.flow(head);
    let steered = port.steering.find(flow, now).filter(|pair| *pair < open);
    steered.unwrap_or_else(|| queue_of(flow, open))
}

/// Adds a packet to a batch, after carrying out the offloads that its receiver lacks, in place.
fn adapt(backlog: &PortBacklog, batch: &mut Batch, header: &NetHeader, frame: &mut [u8]) {
    let Some((start, offset)) = header.checksum else { return batch.add(*header, frame, &[]) };
    if header.segmentation == Segmentation::None {
        make_checksum(frame, start, offset);
        return batch.add(NetHeader::NOTHING, frame, &[]);
    }
    let left = cut(header, frame, |head, data| {
        let has_room = backlog.has_room(batch);
        if has_room {
            batch.add(NetHeader::NOTHING, head, data);
        }
        has_room
    });
    backlog.drop_packets(left as u64);
}

/// The same on a copy of the packet, for flooding.
fn adapt_copy(backlog: &PortBacklog, batch: &mut Batch, header: &NetHeader, frame: &[u8]) {
    adapt(backlog, batch, header, &mut frame.to_vec());
}

#[cfg(test)]
mod tests {
    use super::super::Switch;
    use super::*;

    #[test]
    fn the_memory_of_a_sender_does_not_grow_with_the_number_of_receivers() {
        const PACKETS: usize = 4;
        const SIZE: usize = 60_000;
        let switch = Arc::<Switch>::default();
        let ports: Vec<_> = (0..16).map(|_| switch.plug(1, None, false).unwrap()).collect();
        ports.iter().for_each(|port| port.backlogs[0].open(Offloads::default(), LARGEST));
        let mut senders: Vec<_> = ports.iter().map(|port| Sender::new(Arc::clone(port), 0)).collect();
        for _ in 0..3 {
            for sender in &mut senders {
                sender.begin(LARGEST);
                for _ in 0..PACKETS {
                    sender.scratch.clear();
                    sender.scratch.add(NetHeader::NOTHING, &[0xff; SIZE], &[]);
                    assert_eq!(sender.flood(&NetHeader::NOTHING, 0), Forwarded::Sent);
                }
                sender.flush();
                for port in &ports {
                    let mut taken = port.backlogs[0].take(None);
                    while taken.is_some() {
                        taken = port.backlogs[0].take(taken);
                    }
                }
            }
        }
        for Sender { outbox, .. } in &senders {
            let slots = outbox.batches.iter().flatten().map(Batch::capacity).sum::<usize>();
            let spare = outbox.spare.iter().map(Batch::capacity).sum::<usize>();
            assert_eq!((slots, spare), (0, outbox.held));
            // 15 receivers would hold 3.6 MB.
            assert!((1..SPARE_BYTES + 2 * PACKETS * SIZE).contains(&spare), "{spare} bytes");
        }
    }
}
