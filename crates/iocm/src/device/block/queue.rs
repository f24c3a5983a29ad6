//! The handler of a block device's queue.

use super::bounce::Bounces;
use super::request::{BlockRequest, HEADER, Status};
use super::slot::{Progress, RangeMethod, Slot, SlotKind, in_turn};
use super::{BlockDevice, SERIAL_BYTES, Storage};
use crate::clock::now_ns;
use crate::queue::{Handler, Submission, Submitter, Token, Virtqueue, WorkDone};
use crate::ring::{Chain, Side};
use std::collections::VecDeque;
use std::sync::Arc;

/// The most requests in flight on a queue. As each takes a bounded amount of memory, so do all.
const MAX_IN_FLIGHT: u16 = 256;
/// A queue that shares its worker stops submitting at this many bytes in flight. The others wait for that and one more
/// step: some hundred microseconds if the kernel copies the data.
const CROWDED_BYTES: u64 = 256 << 10;
/// The same for a disk that moves the data itself (O_DIRECT): it takes several requests to keep it busy.
const CROWDED_DIRECT_BYTES: u64 = 2 << 20;

/// The number of answers that are published together: a cache line of the used ring. A driver that submits as answers
/// arrive sees the first before the last are ready. So neither side waits for the other: the driver does not sleep, and
/// needs no call.
const PUBLISHED_TOGETHER: u32 = 8;

/// The handler of one queue of a block device.
pub struct BlockQueue {
    device: Arc<BlockDevice>,
    chain: Chain,
    slots: Vec<Slot>,
    /// The free slots.
    free: Vec<u32>,
    /// The slots whose next step is to be submitted.
    waiting: VecDeque<u32>,
    /// The slots whose next step waits for a bounce buffer.
    starved: VecDeque<u32>,
    bounces: Bounces,
    /// The bytes of all steps in flight.
    moving: u64,
    /// Other queues of the worker had work when it was last served.
    crowded: bool,
    /// The limit of bytes in flight if it is crowded.
    crowded_bytes: u64,
    /// Each write is on the disk before its answer.
    write_through: bool,
    /// The data is in memory in this turn. `None` until that matters.
    in_memory: Option<bool>,
    /// The file has no holes in this turn. `None` until that matters.
    allocated: Option<bool>,
}

impl BlockQueue {
    pub(super) fn new(device: Arc<BlockDevice>, size: u16, write_through: bool) -> Self {
        // A request takes a descriptor at least.
        let count = size.min(MAX_IN_FLIGHT);
        let slots = (0..count).map(|_| Slot::default()).collect();
        let bounces = Bounces::new(device.storage.alignment());
        let free = (0..u32::from(count)).rev().collect();
        let (waiting, starved) = (VecDeque::new(), VecDeque::new());
        let (moving, crowded) = (0, false);
        let is_direct = device.storage.alignment() > 1;
        let crowded_bytes = if is_direct { CROWDED_DIRECT_BYTES } else { CROWDED_BYTES };
        let chain = Chain::new();
        Self {
            device,
            chain,
            slots,
            free,
            waiting,
            starved,
            bounces,
            moving,
            crowded,
            crowded_bytes,
            write_through,
            in_memory: None,
            allocated: None,
        }
    }

    /// Completes a request without a step of I/O. `written` bytes of its data were written.
    fn answer(queue: &mut Virtqueue, chain: &Chain, status: Status, written: u64, bytes: u64) {
        if status != Status::Ok {
            queue.count_error();
        }
        let room = chain.bytes(Side::Writable);
        if room > 0 {
            chain.write(room - 1, &[status as u8]);
            if queue.memory().is_logged() {
                let status = chain.pieces(Side::Writable, room - 1, 1);
                for part in chain.pieces(Side::Writable, 0, written).chain(status) {
                    queue.memory().wrote(part.guest, u64::from(part.size));
                }
            }
        }
        let written = if room > 0 { written + 1 } else { 0 };
        queue.push(chain.id, u32::try_from(written).unwrap_or(u32::MAX), bytes);
    }

    /// Handles the request in `self.chain`. Returns the bytes that it moves at once.
    #[inline]
    fn start(&mut self, queue: &mut Virtqueue, submitter: &mut Submitter<'_>) -> u64 {
        // Malformed requests count as work too.
        self.device.requests.take(1);
        if queue.is_suspect() {
            let id = self.chain.id;
            queue
                .state
                .log
                .warn(|| format!("Request {id} ended two back-ends: it is answered with an error"));
            Self::answer(queue, &self.chain, Status::Failed, 0, 0);
            return 0;
        }
        let request = match BlockRequest::parse(&self.chain, &self.device) {
            Ok(request) => request,
            Err(status) => {
                Self::answer(queue, &self.chain, status, 0, 0);
                return 0;
            }
        };
        // The byte limit does not count a discard, because nothing needs to be written; zeroes may have to be.
        let (size, counted) = match &request {
            BlockRequest::Read(_, size) | BlockRequest::Write(_, size) => (*size, *size),
            BlockRequest::WriteZeroes(ranges) => (0, ranges.iter().map(|range| range.size).sum()),
            _ => (0, 0),
        };
        self.device.bytes.take(counted);
        if request == BlockRequest::Identify {
            self.identify(queue);
            return 0;
        }
        if matches!(self.device.storage, Storage::Null) {
            let written = if matches!(request, BlockRequest::Read(..)) { size } else { 0 };
            Self::answer(queue, &self.chain, Status::Ok, written, size);
            return size;
        }
        let granule = self.device.storage.granule();
        let kind = match request {
            BlockRequest::Read(..) | BlockRequest::Write(..) if size == 0 => {
                Self::answer(queue, &self.chain, Status::Ok, 0, 0);
                return 0;
            }
            // Nobody writes here, and a file system that is only read may have no fsync(2).
            BlockRequest::Flush if self.device.options.read_only => {
                Self::answer(queue, &self.chain, Status::Ok, 0, 0);
                return 0;
            }
            BlockRequest::Read(offset, _) => SlotKind::Read(offset),
            BlockRequest::Write(offset, _) => SlotKind::Write(offset),
            BlockRequest::Discard(ranges) => in_turn(ranges, RangeMethod::Discard, granule),
            BlockRequest::WriteZeroes(ranges) => in_turn(ranges, RangeMethod::Zero, granule),
            BlockRequest::Flush | BlockRequest::Identify => SlotKind::Flush,
        };
        if matches!(&kind, SlotKind::Ranges { left, .. } if left.is_empty()) {
            Self::answer(queue, &self.chain, Status::Ok, 0, 0);
            return 0;
        }
        self.begin(queue, submitter, kind, size)
    }

    fn identify(&self, queue: &mut Virtqueue) {
        let mut name = [0; SERIAL_BYTES];
        let serial = self.device.options.serial.as_bytes();
        let length = serial.len().min(SERIAL_BYTES);
        name[..length].copy_from_slice(&serial[..length]);
        let room = self.chain.bytes(Side::Writable).saturating_sub(1);
        let fits = name.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.chain.write(0, &name[..fits]);
        Self::answer(queue, &self.chain, Status::Ok, fits as u64, 0);
    }

    fn begin(
        &mut self,
        queue: &mut Virtqueue,
        submitter: &mut Submitter<'_>,
        kind: SlotKind,
        size: u64,
    ) -> u64 {
        // `serve` has checked that a slot is free.
        let Some(token) = self.free.pop() else { return 0 };
        let slot = &mut self.slots[token as usize];
        let (side, skip) = match &kind {
            SlotKind::Write(_) => (Side::Readable, HEADER),
            _ => (Side::Writable, 0),
        };
        let room = self.chain.bytes(Side::Writable);
        slot.id = self.chain.id;
        slot.status = self.chain.pieces(Side::Writable, room.saturating_sub(1), 1).next();
        slot.parts.extend(self.chain.pieces(side, skip, size));
        slot.begin(kind, size, queue.memory());
        slot.write_through = self.write_through;
        if matches!(slot.kind, SlotKind::Ranges { .. }) {
            slot.discard = Some(self.device.discards.begin());
        }
        self.submit(queue, submitter, token)
    }

    /// Submits the next step of a request, or queues it. Returns the bytes that the step moves.
    fn submit(&mut self, queue: &mut Virtqueue, submitter: &mut Submitter<'_>, token: u32) -> u64 {
        let Some(file) = self.device.storage.file() else { return 0 };
        let slot = &mut self.slots[token as usize];
        let was_cut = slot.is_cut();
        let next = (!was_cut).then(|| slot.next(file, self.device.storage.alignment(), &mut self.bounces));
        // The data may come from a page that was lost and replaced, which the guest did not write.
        if was_cut || slot.is_cut() {
            queue.lose_memory();
            self.release(token);
            // Those that wait for a buffer end in the same way.
            self.feed();
            return 0;
        }
        let Some((submission, bytes)) = next.flatten() else {
            self.starved.push_back(token);
            return 0;
        };
        // SAFETY: the slot keeps its pieces and the guest's memory mapped, and the device keeps its file open.
        if let Some(result) = unsafe { self.execute(&submission) } {
            self.end_step(queue, token, result);
            return bytes;
        }
        if matches!(submission, Submission::Allocate { .. }) && self.device.discards.must_wait() {
            self.waiting.push_back(token);
            return 0;
        }
        // SAFETY: the slot keeps its pieces and the guest's memory mapped until the step has ended; the device keeps
        // its file.
        match unsafe { submitter.submit(submission, Token(token), self.device.storage.carrier()) } {
            Ok(()) => {
                self.moving += self.slots[token as usize].weight();
                bytes
            }
            Err(_) => {
                self.waiting.push_front(token);
                0
            }
        }
    }

    /// Executes a step in the worker's thread if that takes no longer than copying its data. Returns its result.
    ///
    /// # Safety
    ///
    /// That of [`Submission::execute`].
    unsafe fn execute(&mut self, submission: &Submission) -> Option<i32> {
        let Self { device, in_memory, allocated, .. } = self;
        if !*in_memory.get_or_insert_with(|| device.storage.is_in_memory()) {
            return None;
        }
        match submission {
            // SAFETY: the caller's.
            Submission::Read { .. } | Submission::Sync { .. } => Some(unsafe { submission.execute() }),
            // Those who share the file may discard, too.
            Submission::Write { .. }
                if !device.options.share_rw
                    && *allocated.get_or_insert_with(|| device.storage.is_allocated()) =>
            {
                // SAFETY: the caller's.
                device.discards.exclude(|| unsafe { submission.execute() })
            }
            Submission::Write { .. } | Submission::Allocate { .. } => None,
        }
    }

    /// Handles the end of a step.
    fn end_step(&mut self, queue: &mut Virtqueue, token: u32, result: i32) {
        let slot = &mut self.slots[token as usize];
        // Requests that were interrupted, and lost memory of the guest, lose nothing of the page cache.
        let is_harmless = [-libc::EINTR, -libc::EAGAIN, -libc::EFAULT].contains(&result);
        if result < 0 && !is_harmless && slot.is_durable() {
            self.device.storage.flush_failed();
        }
        match slot.advance(result, &mut self.bounces) {
            Progress::More => self.waiting.push_back(token),
            Progress::Ended(status) => self.finish(queue, token, status),
        }
        self.feed();
    }

    /// Resumes a request that waits for a bounce buffer, if there is one.
    fn feed(&mut self) {
        if self.bounces.available() > 0
            && let Some(token) = self.starved.pop_front()
        {
            self.waiting.push_back(token);
        }
    }

    fn release(&mut self, token: u32) {
        self.slots[token as usize].clear(&mut self.bounces);
        self.free.push(token);
    }

    /// Completes a request.
    fn finish(&mut self, queue: &mut Virtqueue, token: u32, status: Status) {
        let slot = &mut self.slots[token as usize];
        // Of several flushes in flight the kernel fails only one.
        let is_lost = slot.is_durable() && self.device.storage.is_inconsistent();
        let status = if is_lost { Status::Failed } else { status };
        let read = matches!(slot.kind, SlotKind::Read(_)) && status == Status::Ok;
        if let Some(part) = slot.status {
            // SAFETY: one mapped byte of the guest's memory.
            unsafe { part.pointer.write_volatile(status as u8) };
        }
        let written = u64::from(slot.status.is_some()) + if read { slot.size } else { 0 };
        if queue.memory().is_logged() {
            let parts = if matches!(slot.kind, SlotKind::Read(_)) { &slot.parts[..] } else { &[] };
            for part in parts.iter().chain(&slot.status) {
                queue.memory().wrote(part.guest, u64::from(part.size));
            }
        }
        if status != Status::Ok {
            queue.count_error();
        }
        queue.push(slot.id, u32::try_from(written).unwrap_or(u32::MAX), slot.size);
        self.release(token);
    }

    /// Tests whether the next step has to wait so that other queues need not.
    #[inline]
    const fn is_full(&self) -> bool {
        self.crowded && self.moving >= self.crowded_bytes
    }

    /// The time until the device's limits allow another request; `None` when they allow one now.
    #[inline]
    fn throttled(&self) -> Option<u64> {
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
    fn serve(&mut self, queue: &mut Virtqueue, submitter: &mut Submitter<'_>, budget: u32) -> WorkDone {
        (self.crowded, self.in_memory, self.allocated) = (submitter.is_crowded(), None, None);
        let mut work = match self.has_waiting() {
            true => self.resume(queue, submitter, budget),
            false => WorkDone::default(),
        };
        while work.units() < budget {
            work.throttled_ns = self.throttled();
            let waits = work.throttled_ns.is_some() || self.free.is_empty() || self.is_full();
            if waits || !queue.pop(&mut self.chain) {
                return work;
            }
            if work.requests % PUBLISHED_TOGETHER == 1 {
                queue.publish_early();
            }
            work.requests += 1;
            work.extra += self.chain.extra_units(queue.memory()) as u32;
            work.bytes += self.start(queue, submitter);
        }
        work.more = true;
        work
    }

    #[inline]
    fn has_work(&self, queue: &Virtqueue) -> Option<bool> {
        match queue.has_more() {
            false if self.waiting.is_empty() => Some(false),
            true if !self.free.is_empty() && !self.is_full() => Some(true),
            // Only a turn shows whether other queues still have work, and with that whether this one is full.
            _ => None,
        }
    }

    fn complete(&mut self, queue: &mut Virtqueue, token: Token, result: i32) {
        let Token(token) = token;
        let Some(slot) = self.slots.get(token as usize) else { return };
        queue.handle(slot.id);
        self.moving = self.moving.saturating_sub(slot.weight());
        self.end_step(queue, token, result);
        queue.settle();
    }

    #[inline]
    fn has_waiting(&self) -> bool {
        !self.waiting.is_empty() && !self.is_full()
    }

    fn resume(&mut self, queue: &mut Virtqueue, submitter: &mut Submitter<'_>, budget: u32) -> WorkDone {
        (self.crowded, self.in_memory, self.allocated) = (submitter.is_crowded(), None, None);
        let mut work = WorkDone::default();
        // Steps for which there is no room wait for the next turn.
        for _ in 0..self.waiting.len() {
            if work.units() >= budget || self.is_full() {
                break;
            }
            let Some(token) = self.waiting.pop_front() else { break };
            work.bytes += self.submit(queue, submitter, token);
        }
        work.more = self.has_waiting();
        work
    }

    fn drain(&mut self, queue: &mut Virtqueue, submitter: &mut Submitter<'_>, budget: u32) -> WorkDone {
        let mut work = self.resume(queue, submitter, budget);
        while work.units() < budget && !self.free.is_empty() && !self.is_full() {
            if !queue.pop_again(&mut self.chain) {
                break;
            }
            work.requests += 1;
            work.extra += self.chain.extra_units(queue.memory()) as u32;
            work.bytes += self.start(queue, submitter);
        }
        work
    }

    fn needs_no_thread(&self) -> bool {
        self.device.storage.is_in_memory()
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn enable_wakeups(&mut self, queue: &mut Virtqueue) -> bool {
        // If all slots are in use, or enough bytes are in flight, only a completion can help, not a kick.
        queue.enable_kicks() && !self.free.is_empty() && !self.is_full()
    }
}

#[cfg(test)]
mod tests {
    use super::super::BlockOptions;
    use super::super::storage::tests::{disk, disk_over};
    use super::*;
    use crate::device::Device;
    use crate::protocol::VirtioFeatures;
    use crate::queue::{Carrier, Notifiers, Queue, QueueState, completed, is_by_thread};
    use crate::ring::RingFeatures;
    use crate::testing::{BlockDriver, DATA, Driver};

    const SIZE: u32 = 32 << 10;

    /// A queue of so many descriptors with nothing available, and its driver.
    fn empty(size: u16, handler: Box<dyn Handler>) -> (BlockDriver, Queue) {
        let features = RingFeatures { packed: false, event_index: false, indirect: true };
        let driver = BlockDriver::new(size, features);
        let ring = driver.driver.ring().unwrap();
        let mut queue = Queue::new(ring, Notifiers::default(), handler, Arc::<QueueState>::default());
        queue.set_enabled(true);
        (driver, queue)
    }

    /// A queue of 256 descriptors with many reads of 32 KiB available, and its driver. `None` if `direct` is set and
    /// the file system does not support that.
    fn reads(direct: bool) -> Option<(BlockDriver, Queue)> {
        let disk = tempfile::NamedTempFile::new().unwrap();
        disk.as_file().set_len(16 << 20).unwrap();
        let options = BlockOptions { path: Some(disk.path().to_owned()), direct, ..BlockOptions::default() };
        match BlockDevice::open(options) {
            Err(error) if direct => {
                println!("not tested: {error}");
                None
            }
            device => Some(reads_of(&device.unwrap())),
        }
    }

    /// The same for this device.
    fn reads_of(device: &Arc<BlockDevice>) -> (BlockDriver, Queue) {
        let (mut driver, queue) = empty(256, Box::new(device.queue(256)));
        for number in 0..200 {
            driver.submit(0, number, &[], SIZE).unwrap();
        }
        (driver, queue)
    }

    fn serve(queue: &mut Queue, made: &mut VecDeque<(Submission, u64)>, crowded: bool) -> WorkDone {
        let key = queue.key;
        queue.serve(&mut Submitter::new(made, key).crowded(crowded), 1000)
    }

    /// Executes all steps, one after another. Returns their results.
    fn end_all(queue: &mut Queue, made: &mut VecDeque<(Submission, u64)>) -> Vec<i32> {
        let mut results = Vec::new();
        while let Some((submission, user_data)) = made.pop_front() {
            // SAFETY: the queue keeps the memory until it is told of the completion.
            let result = unsafe { submission.execute() };
            queue.complete(completed(user_data).1, result);
            results.push(result);
            serve(queue, made, false);
        }
        results
    }

    #[test]
    fn beside_others_a_queue_has_few_bytes_in_flight_and_goes_on_when_some_have_completed() {
        for (direct, most) in [(false, CROWDED_BYTES), (true, CROWDED_DIRECT_BYTES)] {
            let Some((driver, queue)) = reads(direct) else { continue };
            goes_on(driver, queue, most / u64::from(SIZE));
        }
    }

    #[test]
    fn what_a_turn_would_find_is_known_without_it_unless_the_queue_is_full() {
        let Some((mut driver, mut queue)) = reads(false) else { return };
        let has_work = |queue: &Queue| queue.handler.has_work(&queue.virtqueue);
        assert_eq!(has_work(&queue), Some(true));
        let mut made = VecDeque::new();
        serve(&mut queue, &mut made, true);
        if !made.is_empty() {
            assert_eq!(has_work(&queue), None, "there are more, and room for them once it is alone");
        }
        serve(&mut queue, &mut made, false);
        end_all(&mut queue, &mut made);
        assert_eq!(has_work(&queue), Some(false));
        queue.publish();
        while driver.ended().is_some() {}
        driver.submit(0, 0, &[], SIZE).unwrap();
        assert_eq!(has_work(&queue), Some(true));
    }

    fn goes_on(mut driver: BlockDriver, mut queue: Queue, most: u64) {
        let mut made = VecDeque::new();
        let work = serve(&mut queue, &mut made, true);
        assert_eq!(u64::from(work.requests), most);
        assert!(!work.more && !queue.has_waiting(), "the worker may sleep until one completes");
        assert!(!queue.enable_wakeups());
        let mut ended = 0;
        while let Some((submission, user_data)) = made.pop_front() {
            // SAFETY: the queue keeps the memory until it is told of the completion.
            let result = unsafe { submission.execute() };
            queue.complete(completed(user_data).1, result);
            assert_eq!(serve(&mut queue, &mut made, true).requests, u32::from(ended + most < 200));
            ended += 1;
        }
        queue.publish();
        assert_eq!(ended, 200);
        assert_eq!(
            (0..200).filter_map(|_| driver.ended()).filter(|(_, status, _)| *status == 0).count(),
            200
        );
    }

    #[test]
    fn a_disk_that_moves_the_data_itself_needs_threads_only_to_flush_and_to_discard() {
        for direct in [false, true] {
            let disk = tempfile::NamedTempFile::new().unwrap();
            disk.as_file().set_len(1 << 20).unwrap();
            let path = Some(disk.path().to_owned());
            let device = match BlockDevice::open(BlockOptions { path, direct, ..BlockOptions::default() }) {
                Err(error) if direct => return println!("not tested: {error}"),
                device => device.unwrap(),
            };
            if direct && device.storage.carrier() != Carrier::Disk {
                return println!("not tested: {} is on no disk", disk.path().display());
            }
            let (mut driver, mut queue) = empty(64, Box::new(device.queue(64)));
            let range: Vec<u8> = [8_u64.to_le_bytes(), 8_u64.to_le_bytes()].concat();
            let (none, block): (&[u8], &[u8]) = (&[], &[1; 4096]);
            for (kind, data, read) in [(0, none, 4096), (1, block, 0), (4, none, 0), (11, &range[..], 0)] {
                let mut made = VecDeque::new();
                driver.submit(kind, 0, data, read).unwrap();
                serve(&mut queue, &mut made, false);
                let moves_data = kind < 2;
                for (_, user_data) in &made {
                    assert_eq!(is_by_thread(*user_data), !(direct && moves_data), "{direct}, {kind}");
                }
                end_all(&mut queue, &mut made);
            }
        }
    }

    #[test]
    fn a_turn_is_charged_for_long_chains_of_descriptors() {
        let device = BlockDevice::open(BlockOptions::default()).unwrap();
        let features = RingFeatures { packed: false, event_index: false, indirect: true };
        let mut driver = Driver::new(64, features);
        let handler = Box::new(device.queue(64));
        let state = Arc::<QueueState>::default();
        let mut queue = Queue::new(driver.ring().unwrap(), Notifiers::default(), handler, state);
        for _ in 0..40 {
            driver.add_indirect(&[(DATA, 1, false); 1000]).unwrap();
        }
        let key = queue.key;
        let work = queue.serve(&mut Submitter::new(&mut VecDeque::new(), key), 32);
        assert!(work.requests <= 2 && work.units() >= 32 && work.more, "{work:?}");

        // A chain takes longer to translate, the more regions the memory has.
        let memory = |regions: u64| {
            let region = |number: u64| {
                let guest = number << 13;
                let region = crate::memory::RegionDescription { guest, size: 0x1000, user: guest, offset: 0 };
                (region, crate::testing::memory_file(0x1000))
            };
            crate::memory::GuestMemory::map((0..regions).map(region)).unwrap()
        };
        let mut chain = Chain::default();
        assert!(queue.virtqueue.pop(&mut chain));
        assert_eq!([1, 8, 9, 80].map(|regions| chain.extra_units(&memory(regions))), [15, 15, 31, 156]);
    }

    #[test]
    fn zeroes_that_are_written_count_against_the_limit_of_bytes_and_discards_do_not() {
        let disk = tempfile::NamedTempFile::new().unwrap();
        disk.as_file().set_len(16 << 20).unwrap();
        for (kind, waits) in [(11, false), (13, true)] {
            let path = Some(disk.path().to_owned());
            let options = BlockOptions { path, bytes_a_second: 1 << 20, ..BlockOptions::default() };
            let device = BlockDevice::open(options).unwrap();
            let (mut driver, mut queue) = empty(64, Box::new(device.queue(64)));
            let range = |from: u64| [&from.to_le_bytes()[..], &(2_u32 << 11).to_le_bytes(), &[0; 4]].concat();
            driver.submit(kind, 0, &[range(0), range(1 << 13)].concat(), 0).unwrap();
            driver.submit(0, 0, &[], 4096).unwrap();
            let mut made = VecDeque::new();
            let throttled = serve(&mut queue, &mut made, false).throttled_ns;
            end_all(&mut queue, &mut made);
            let seconds = throttled.map(|ns| (ns + 500_000_000) / 1_000_000_000);
            assert_eq!(seconds, waits.then_some(4), "{kind}");
        }
    }

    #[test]
    fn answers_are_published_while_others_are_made_and_called_for_once() {
        let (mut driver, mut queue) = reads_of(&BlockDevice::open(BlockOptions::default()).unwrap());
        let seen = |driver: &mut BlockDriver| std::iter::from_fn(|| driver.ended()).count();
        let key = queue.key;
        let mut made = VecDeque::new();
        assert_eq!(queue.serve(&mut Submitter::new(&mut made, key), 60).requests, 20);
        assert_eq!(seen(&mut driver), 17);
        queue.publish();
        assert_eq!(seen(&mut driver), 3);
        assert_eq!(queue.state().counters.calls_saved.get(), 1);
    }

    #[test]
    fn the_worker_reads_tmpfs_itself_where_the_host_has_no_swap_space() {
        let disk = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        disk.as_file().set_len(16 << 20).unwrap();
        rustix::io::pwrite(disk.as_file(), &[7; 1024], 512).unwrap();
        let options = BlockOptions { path: Some(disk.path().to_owned()), ..BlockOptions::default() };
        let (mut driver, mut queue) = reads_of(&BlockDevice::open(options).unwrap());
        let mut made = VecDeque::new();
        assert_eq!(serve(&mut queue, &mut made, false).requests, 200);
        queue.publish();
        let is_swapping = rustix::system::sysinfo().totalswap > 0;
        assert_eq!(queue.handler.needs_no_thread(), !is_swapping);
        assert_eq!((made.len(), queue.in_flight()), if is_swapping { (200, 200) } else { (0, 0) });
        end_all(&mut queue, &mut made);
        queue.publish();
        let ends: Vec<_> = std::iter::from_fn(|| driver.ended()).collect();
        assert!(ends.len() == 200 && ends.iter().all(|(_, status, _)| *status == 0), "{ends:?}");
        // A write into a hole needs memory, so it goes to the kernel's threads, and so does what comes after it.
        driver.submit(1, 0, &[1; 512], 0).unwrap();
        assert_eq!(serve(&mut queue, &mut made, false).requests, 1);
        assert_eq!((made.len(), end_all(&mut queue, &mut made)), (1, vec![512]));
    }

    #[test]
    fn the_worker_writes_tmpfs_itself_where_there_is_no_hole_and_no_discard() {
        if rustix::system::sysinfo().totalswap > 0 {
            return println!("not tested: this host has swap space, so that io_uring writes tmpfs");
        }
        let disk = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        rustix::io::pwrite(disk.as_file(), &[7; 64 << 10], 0).unwrap();
        let device =
            BlockDevice::open(BlockOptions { path: Some(disk.path().to_owned()), ..BlockOptions::default() })
                .unwrap();
        let (mut driver, mut queue) = empty(64, Box::new(device.queue(64)));
        let mut made = VecDeque::new();
        // A write and a flush.
        driver.submit(1, 1, &[1; 512], 0).unwrap();
        driver.submit(4, 0, &[], 0).unwrap();
        assert_eq!((serve(&mut queue, &mut made, false).requests, made.len()), (2, 0));
        let mut sectors = [0; 1024];
        rustix::io::pread(disk.as_file(), &mut sectors, 0).unwrap();
        assert_eq!((sectors[511], sectors[512], sectors[1023]), (7, 1, 1));
        // Another worker writes: a discard waits for that, and new writes for the discard.
        let range: Vec<u8> = [8_u64.to_le_bytes(), 8_u64.to_le_bytes()].concat();
        driver.submit(11, 0, &range, 0).unwrap();
        device.discards.exclude(|| {
            serve(&mut queue, &mut made, false);
            assert!(made.is_empty() && queue.has_waiting());
        });
        driver.submit(1, 1, &[2; 512], 0).unwrap();
        serve(&mut queue, &mut made, false);
        let kinds: Vec<_> =
            made.iter().map(|(step, _)| matches!(step, Submission::Allocate { .. })).collect();
        assert_eq!(kinds, [true, false]);
        assert_eq!(end_all(&mut queue, &mut made), [0, 512]);
        queue.publish();
        let ends: Vec<_> = std::iter::from_fn(|| driver.ended()).collect();
        assert!(ends.len() == 4 && ends.iter().all(|(_, status, _)| *status == 0), "{ends:?}");
        assert_eq!(device.discards.exclude(|| ()), Some(()), "the discard has ended");
    }

    #[test]
    fn after_a_flush_that_failed_none_succeeds_if_the_data_was_in_the_page_cache() {
        const FLUSH: u64 = 1 << 9;
        // Two flushes are in flight at once; then comes a write, and another flush. Without `FLUSH` each write is one.
        for (alignment, features, kinds, wanted) in [
            (1, FLUSH, [4, 4, 1, 4], [1, 1, 0, 1]),
            (512, FLUSH, [4, 4, 1, 4], [1, 0, 0, 0]),
            (1, FLUSH, [1, 1, 1, 4], [1, 0, 0, 0]),
            (1, 0, [1, 1, 1, 1], [1, 1, 1, 1]),
            (512, 0, [1, 1, 1, 1], [1, 0, 0, 0]),
        ] {
            let device = disk(alignment, 512).unwrap();
            let handler = Device::handler(&device, 0, 64, VirtioFeatures(features));
            let (mut driver, mut queue) = empty(64, handler);
            let mut made = VecDeque::new();
            for kind in kinds {
                let data: &[u8] = if kind == 1 { &[1; 512] } else { &[] };
                driver.submit(kind, 0, data, 0).unwrap();
            }
            serve(&mut queue, &mut made, false);
            let mut results = kinds.map(|kind| if kind == 1 { 512 } else { 0 });
            results[0] = -libc::EIO;
            let statuses = results.map(|result| {
                let (_, user_data) = made.pop_front().unwrap();
                queue.complete(completed(user_data).1, result);
                queue.publish();
                driver.ended().unwrap().1
            });
            assert_eq!(statuses, wanted, "{alignment}, {features:#x}, {kinds:?}");
        }
    }

    #[test]
    fn a_flush_of_a_read_only_disk_needs_no_disk_of_the_host() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(rustix::fs::fdatasync(&file).is_err(), "as on a file system that is only read");
        let device =
            disk_over(file.into(), 1, BlockOptions { read_only: true, ..BlockOptions::default() }).unwrap();
        let (mut driver, mut queue) = empty(64, Box::new(device.queue(64)));
        driver.submit(4, 0, &[], 0).unwrap();
        let mut made = VecDeque::new();
        serve(&mut queue, &mut made, false);
        assert!(made.is_empty(), "no thread is needed");
        queue.publish();
        assert_eq!(driver.ended().unwrap().1, 0);
        assert!(!device.storage.is_inconsistent());
    }

    #[test]
    fn a_step_that_was_interrupted_is_made_again_and_loses_nothing() {
        let device = disk(1, 512).unwrap();
        let (mut driver, mut queue) = empty(64, Box::new(device.queue(64)));
        let mut made = VecDeque::new();
        let again = [-libc::EAGAIN; 16];
        // A request's type and the bytes that it reads, the results of its steps, and its status.
        for (kind, read, results, wanted) in [
            (4, 0, vec![-libc::EINTR, -libc::EAGAIN, 0], 0),
            (4, 0, [&again[..], &[0]].concat(), 0),
            (0, 1024, [&again[..], &[512], &again[..], &[512]].concat(), 0),
            (4, 0, [&again[..], &[-libc::EINTR]].concat(), 1),
            (4, 0, vec![-libc::EFAULT], 1),
            (4, 0, vec![0], 0),
        ] {
            driver.submit(kind, 0, &[], read).unwrap();
            serve(&mut queue, &mut made, false);
            for result in &results {
                assert_eq!(driver.ended(), None, "not before {result} of {results:?}");
                let (_, user_data) = made.pop_front().expect("another step");
                queue.complete(completed(user_data).1, *result);
                serve(&mut queue, &mut made, false);
                queue.publish();
            }
            assert_eq!((driver.ended().unwrap().1, made.len()), (wanted, 0), "{results:?}");
        }
        assert!(!device.storage.is_inconsistent());
    }

    #[test]
    fn without_flush_what_is_written_is_on_the_disk_before_the_answer() {
        const FLUSH: u64 = 1 << 9;
        let disk = tempfile::NamedTempFile::new().unwrap();
        disk.as_file().set_len(1 << 20).unwrap();
        let device =
            BlockDevice::open(BlockOptions { path: Some(disk.path().to_owned()), ..BlockOptions::default() })
                .unwrap();
        let range: Vec<u8> = [8_u64.to_le_bytes(), 8_u64.to_le_bytes()].concat();
        for (features, syncs) in [(0, true), (FLUSH, false)] {
            let handler = Device::handler(&device, 0, 64, VirtioFeatures(features));
            let (mut driver, mut queue) = empty(64, handler);
            for (kind, data) in [(1, &[1; 512][..]), (11, &range[..]), (13, &range[..])] {
                driver.submit(kind, 0, data, 0).unwrap();
                let mut made = VecDeque::new();
                serve(&mut queue, &mut made, false);
                let mut last_syncs = false;
                while let Some((submission, user_data)) = made.pop_front() {
                    assert_eq!(driver.ended(), None, "{kind} has not ended");
                    last_syncs =
                        matches!(submission, Submission::Sync { .. } | Submission::Write { sync: true, .. });
                    // SAFETY: the queue keeps the memory until it is told of the completion.
                    let result = unsafe { submission.execute() };
                    queue.complete(completed(user_data).1, result);
                    serve(&mut queue, &mut made, false);
                    queue.publish();
                }
                assert_eq!((driver.ended().unwrap().1, last_syncs), (0, syncs), "{kind}");
            }
        }
    }

    /// The path of a loop device, which is detached when dropped.
    struct LoopDevice(String);

    impl LoopDevice {
        fn over(file: &std::path::Path, sector_size: &str) -> Option<Self> {
            let mut losetup = std::process::Command::new("losetup");
            losetup.args(["--find", "--show", "--sector-size", sector_size]).arg(file);
            let made = losetup.output().ok().filter(|output| output.status.success())?;
            Some(Self(String::from_utf8(made.stdout).unwrap().trim().to_owned()))
        }
    }

    impl Drop for LoopDevice {
        fn drop(&mut self) {
            // The kernel detaches it when the last user has closed it.
            let detached = std::process::Command::new("losetup").args(["--detach", &self.0]).status();
            assert!(std::thread::panicking() || detached.is_ok_and(|status| status.success()));
        }
    }

    #[test]
    fn a_disk_with_large_blocks_discards_and_zeroes_ranges_of_any_sectors() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let Some(disk) = LoopDevice::over(file.path(), "4096") else {
            return println!("not tested: no loop device of such blocks can be made");
        };
        let path = disk.0.clone();
        let options = BlockOptions { path: Some(path.clone().into()), ..BlockOptions::default() };
        let device = BlockDevice::open(options).unwrap();
        // `blk_size` and `discard_sector_alignment`.
        let word = |at| u32::from_le_bytes(device.read_config(at, 4).try_into().unwrap());
        assert_eq!((word(20), word(44)), (512, 8));
        let (mut driver, mut queue) = reads_of(&device);
        let mut made = VecDeque::new();
        serve(&mut queue, &mut made, false);
        end_all(&mut queue, &mut made);
        queue.publish();
        while driver.ended().is_some() {}
        let range: Vec<u8> = [1_u64.to_le_bytes(), 30_u64.to_le_bytes()].concat();
        for (kind, data) in [(1, vec![7; 32 << 10]), (13, range.clone()), (11, range)] {
            driver.submit(kind, 0, &data, 0).unwrap();
            serve(&mut queue, &mut made, false);
            end_all(&mut queue, &mut made);
            queue.publish();
            assert_eq!(driver.ended().unwrap().1, 0, "{kind}");
        }
        let mut read = vec![9; 33 * 512];
        rustix::io::pread(std::fs::File::open(&path).unwrap(), &mut read, 0).unwrap();
        let zeroed: Vec<bool> = read.chunks(512).map(|sector| sector == [0; 512]).collect();
        assert_eq!(zeroed, (0..33).map(|sector| (1..31).contains(&sector)).collect::<Vec<_>>());
    }

    #[test]
    fn alone_a_queue_has_all_of_its_requests_in_flight() {
        let (_driver, mut queue) = reads(false).unwrap();
        let mut made = VecDeque::new();
        assert_eq!(serve(&mut queue, &mut made, false).requests, 200);
        assert_eq!(end_all(&mut queue, &mut made), [SIZE as i32; 200]);
        assert_eq!(queue.in_flight(), 0);
    }

    #[test]
    fn misaligned_data_is_written_to_the_disk_and_read_from_it_unchanged() {
        // More than a bounce buffer has room for, in two pieces.
        const SIZE: usize = 300 * 512;
        const FIRST: usize = 100 * 512 + 7;
        const SECTOR: u64 = 3;
        let device = disk(512, 512).unwrap();
        let features = RingFeatures { packed: false, event_index: false, indirect: true };
        let mut driver = Driver::new(64, features);
        let handler = Box::new(device.queue(64));
        let state = Arc::<QueueState>::default();
        let mut queue = Queue::new(driver.ring().unwrap(), Notifiers::default(), handler, state);
        let data: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
        let pieces = [(DATA + 0x1001, FIRST), (DATA + 0x8_0003, SIZE - FIRST)];
        let mut end = |driver: &mut Driver, kind: u32| {
            let header = [&kind.to_le_bytes()[..], &[0; 4], &SECTOR.to_le_bytes()].concat();
            driver.write(DATA, &header);
            driver.write(DATA + 0x100, &[0xff]);
            let [first, second] = pieces.map(|(at, size)| (at, size as u32, kind == 0));
            driver.add(&[(DATA, 16, false), first, second, (DATA + 0x100, 1, true)]).unwrap();
            let mut made = VecDeque::new();
            serve(&mut queue, &mut made, false);
            assert_eq!(end_all(&mut queue, &mut made).iter().sum::<i32>(), SIZE as i32);
            queue.publish();
            driver.take().unwrap();
            assert_eq!(driver.read(DATA + 0x100, 1), [0], "{kind}");
        };
        driver.write(pieces[0].0, &data[..FIRST]);
        driver.write(pieces[1].0, &data[FIRST..]);
        end(&mut driver, 1);
        let Storage::File { file, .. } = &device.storage else { unreachable!() };
        let (mut stored, begin) = (vec![9_u8; 1 << 20], SECTOR as usize * 512);
        assert_eq!(rustix::io::pread(file, &mut stored, 0), Ok(stored.len()));
        assert!(stored[begin..begin + SIZE] == data, "the data");
        stored[begin..begin + SIZE].fill(0);
        assert!(stored.iter().all(|byte| *byte == 0), "nothing else is changed");
        for (at, size) in pieces {
            driver.write(at, &vec![0xee; size]);
        }
        end(&mut driver, 0);
        assert!(pieces.map(|(at, size)| driver.read(at, size)).concat() == data, "what is read");
    }

    #[test]
    fn requests_that_wait_for_a_bounce_buffer_end_with_the_guests_memory() {
        let disk = tempfile::NamedTempFile::new().unwrap();
        disk.as_file().set_len(1 << 20).unwrap();
        let path = Some(disk.path().to_owned());
        let options = BlockOptions { path, direct: true, ..BlockOptions::default() };
        let device = match BlockDevice::open(options) {
            Ok(device) => device,
            Err(error) => return println!("not tested: {error}"),
        };
        let features = RingFeatures { packed: false, event_index: false, indirect: true };
        let mut driver = Driver::new(64, features);
        let handler = Box::new(device.queue(64));
        let state = Arc::<QueueState>::default();
        let mut queue = Queue::new(driver.ring().unwrap(), Notifiers::default(), handler, state);
        driver.write(DATA, &[0; 16]);
        for _ in 0..16 {
            // Misaligned, so the read needs a bounce buffer.
            driver.add(&[(DATA, 16, false), (DATA + 0x1001, 4096, true), (DATA + 0x100, 1, true)]).unwrap();
        }
        let mut made = VecDeque::new();
        assert_eq!(serve(&mut queue, &mut made, false).requests, 16);
        assert!(made.len() < 8, "most wait for the buffers of others");
        let last = crate::testing::SIZE - 1;
        driver.file.set_len(last & !0xfff).unwrap();
        assert_eq!(driver.read(last, 1), [0]);
        assert!(driver.memory.is_cut());
        end_all(&mut queue, &mut made);
        while queue.has_waiting() {
            serve(&mut queue, &mut made, false);
        }
        assert_eq!((queue.in_flight(), made.len()), (0, 0), "it can be stopped");
    }

    #[test]
    fn what_a_disk_moves_itself_goes_to_it_in_one_step_and_what_the_kernel_copies_in_two() {
        for (direct, steps) in [(false, vec![512 << 10, 512 << 10]), (true, vec![1 << 20])] {
            let Some((mut driver, mut queue)) = reads(direct) else { continue };
            let mut made = VecDeque::new();
            serve(&mut queue, &mut made, false);
            end_all(&mut queue, &mut made);
            // A read at sector 0; all earlier requests have ended.
            driver.driver.write(DATA, &[0; 16]);
            driver
                .driver
                .add(&[(DATA, 16, false), (DATA + 0x1000, 1 << 20, true), (DATA + 0x100, 1, true)])
                .unwrap();
            serve(&mut queue, &mut made, false);
            assert_eq!((end_all(&mut queue, &mut made), queue.in_flight()), (steps, 0), "direct: {direct}");
        }
    }
}
