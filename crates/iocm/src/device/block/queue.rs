//! One queue of a block device at work.

use super::request::{HEADER, Request, Status};
use super::slot::{Bounce, Slot, Work, in_turn};
use super::{BlockDevice, SERIAL_BYTES, Storage};
use crate::clock::now_ns;
use crate::memory::Part;
use crate::queue::{Handler, Lane, Served, Submitter, Token};
use crate::ring::{Chain, Side};
use std::sync::Arc;

/// What is done with the requests of one queue of a block device.
pub struct BlockQueue {
    device: Arc<BlockDevice>,
    chain: Chain,
    slots: Vec<Slot>,
    /// Slots that no request is in.
    free: Vec<u32>,
}

impl BlockQueue {
    pub(super) fn new(device: Arc<BlockDevice>, size: u16) -> Self {
        // A request takes a descriptor at least, so there are never more.
        let slots = (0..size).map(|_| Slot::default()).collect();
        Self { device, chain: Chain::new(), slots, free: (0..u32::from(size)).rev().collect() }
    }

    /// Ends a request that the kernel was not needed for, or never came to.
    fn answer(lane: &mut Lane, chain: &Chain, status: Status, written: u64, bytes: u64) {
        if status != Status::Ok {
            lane.count_error();
        }
        let room = chain.bytes(Side::Writable);
        if room > 0 {
            chain.write(room - 1, &[status as u8]);
            log(lane, chain);
        }
        let written = if room > 0 { written + 1 } else { 0 };
        lane.push(chain.id, u32::try_from(written).unwrap_or(u32::MAX), bytes);
    }

    /// Does what was asked for in `self.chain`.
    #[inline]
    fn start(&mut self, lane: &mut Lane, submitter: &mut Submitter<'_>) {
        let request = match Request::parse(&self.chain, &self.device) {
            Ok(request) => request,
            Err(status) => return Self::answer(lane, &self.chain, status, 0, 0),
        };
        let size = match request {
            Request::Read(_, size) | Request::Write(_, size) => size,
            _ => 0,
        };
        self.device.requests.take(1);
        self.device.bytes.take(size);
        if request == Request::Identify {
            return self.identify(lane);
        }
        if matches!(self.device.storage, Storage::Null) {
            let written = if matches!(request, Request::Read(..)) { size } else { 0 };
            return Self::answer(lane, &self.chain, Status::Ok, written, size);
        }
        let work = match request {
            Request::Read(offset, _) => Work::Read(offset),
            Request::Write(offset, _) => Work::Write(offset),
            Request::Discard(ranges) => in_turn(ranges, true),
            Request::WriteZeroes(ranges) => in_turn(ranges, false),
            Request::Flush | Request::Identify => Work::Flush,
        };
        self.submit_new(lane, submitter, work, size);
    }

    fn identify(&self, lane: &mut Lane) {
        let mut name = [0; SERIAL_BYTES];
        let serial = self.device.options.serial.as_bytes();
        let length = serial.len().min(SERIAL_BYTES);
        name[..length].copy_from_slice(&serial[..length]);
        let room = self.chain.bytes(Side::Writable).saturating_sub(1);
        let fits = name.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.chain.write(0, &name[..fits]);
        Self::answer(lane, &self.chain, Status::Ok, fits as u64, 0);
    }

    fn submit_new(&mut self, lane: &mut Lane, submitter: &mut Submitter<'_>, work: Work, size: u64) {
        // `serve` looked that there is one.
        let Some(token) = self.free.pop() else { return };
        let slot = &mut self.slots[token as usize];
        let (side, skip) = match &work {
            Work::Write(_) => (Side::Readable, HEADER),
            _ => (Side::Writable, 0),
        };
        let room = self.chain.bytes(Side::Writable);
        slot.id = self.chain.id;
        slot.status = self.chain.pieces(Side::Writable, room.saturating_sub(1), 1).next();
        slot.parts.clear();
        slot.parts.extend(self.chain.pieces(side, skip, size));
        slot.pieces.clear();
        let alignment = self.device.storage.alignment();
        let is_aligned = |part: &Part| {
            (part.pointer.addr() as u64).is_multiple_of(alignment)
                && u64::from(part.size).is_multiple_of(alignment)
        };
        slot.bounce = None;
        if slot.parts.iter().all(is_aligned) {
            slot.pieces.extend(
                slot.parts
                    .iter()
                    .map(|part| libc::iovec { iov_base: part.pointer.cast(), iov_len: part.size as usize }),
            );
        } else {
            let mut bounce = Bounce::new(size, alignment);
            let data = bounce.data(size);
            if matches!(work, Work::Write(_)) {
                self.chain.read(skip, data);
            }
            slot.pieces.push(libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() });
            slot.bounce = Some(bounce);
        }
        (slot.work, slot.size, slot.done) = (work, size, 0);
        self.submit(lane, submitter, Token(token));
    }

    /// Gives what is left of a request to the kernel; where there is no io_uring, waits for it here.
    fn submit(&mut self, lane: &mut Lane, submitter: &mut Submitter<'_>, token: Token) {
        let Some(file) = self.device.storage.file() else { return };
        let slot = &self.slots[token.0 as usize];
        let entry = slot.entry(file);
        // SAFETY: the slot keeps its pieces until the request has ended, and the ring of this queue keeps the guest's
        // memory mapped, which the queue's owner does not let go before.
        if unsafe { submitter.submit(entry, token) }.is_err() {
            let result = slot.now(file);
            self.complete(lane, token, result);
        }
    }

    /// Ends a request.
    fn finish(&mut self, lane: &mut Lane, token: Token, status: Status) {
        let slot = &mut self.slots[token.0 as usize];
        let read = matches!(slot.work, Work::Read(_)) && status == Status::Ok;
        if read && let Some(mut bounce) = slot.bounce.take() {
            let mut from = bounce.data(slot.size);
            for part in &slot.parts {
                let (now, later) = from.split_at_mut(part.size as usize);
                // SAFETY: the part is mapped guest memory of as many bytes.
                unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), part.pointer, now.len()) };
                from = later;
            }
        }
        if let Some(part) = slot.status {
            // SAFETY: one mapped byte of the guest's memory.
            unsafe { part.pointer.write_volatile(status as u8) };
        }
        let written = u64::from(slot.status.is_some()) + if read { slot.size } else { 0 };
        if lane.memory().is_logged() {
            let parts = if read { &slot.parts[..] } else { &[] };
            for part in parts.iter().chain(&slot.status) {
                lane.memory().wrote(part.guest, u64::from(part.size));
            }
        }
        if status != Status::Ok {
            lane.count_error();
        }
        let (id, bytes) = (slot.id, slot.size);
        slot.bounce = None;
        self.free.push(token.0);
        lane.push(id, u32::try_from(written).unwrap_or(u32::MAX), bytes);
    }

    /// How long a limit of the device holds its queues back.
    #[inline]
    fn held_back(&self) -> Option<u64> {
        let (requests, bytes) = (&self.device.requests, &self.device.bytes);
        if requests.rate() == 0 && bytes.rate() == 0 {
            return None;
        }
        let now = now_ns();
        requests.wait(now).max(bytes.wait(now))
    }
}

impl Handler for BlockQueue {
    #[inline]
    fn serve(&mut self, lane: &mut Lane, submitter: &mut Submitter<'_>, budget: u32) -> Served {
        let mut served = Served::default();
        while served.requests < budget {
            served.held_back_ns = self.held_back();
            if served.held_back_ns.is_some() || self.free.is_empty() || !lane.pop(&mut self.chain) {
                return served;
            }
            served.requests += 1;
            self.start(lane, submitter);
        }
        served.more = true;
        served
    }

    fn complete(&mut self, lane: &mut Lane, token: Token, result: i32) {
        let Some(slot) = self.slots.get_mut(token.0 as usize) else { return };
        let Some(file) = self.device.storage.file() else { return };
        let mut result = result;
        loop {
            if result == -libc::EOPNOTSUPP {
                result = slot.without_fallocate(file);
            }
            if result < 0 && result != -libc::EINTR && result != -libc::EAGAIN {
                return self.finish(lane, token, Status::Failed);
            }
            if !slot.advance(result) {
                // Nothing was done, and nothing more will be: the file ends before the disk does.
                let status = if slot.is_done() { Status::Ok } else { Status::Failed };
                return self.finish(lane, token, status);
            }
            // What the kernel did in part is rare, so that the rest need not be quick.
            result = slot.now(file);
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// Marks the bytes that the device wrote.
fn log(lane: &Lane, chain: &Chain) {
    if lane.memory().is_logged() {
        for part in chain.parts(Side::Writable) {
            lane.memory().wrote(part.guest, u64::from(part.size));
        }
    }
}
