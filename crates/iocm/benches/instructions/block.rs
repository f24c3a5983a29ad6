//! Disks that are read and written.

use crate::{BATCH, Outcome, Turn};
use iocm::device::block::{BlockDevice, BlockOptions};
use iocm::queue::{Notifiers, Queue, QueueState};
use iocm::ring::{RingError, RingFeatures};
use iocm::testing::{ByHand, DATA, Driver, OneWorker, Piece, memory_file};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

pub(crate) const SPLIT: RingFeatures = RingFeatures { packed: false, event_index: true, indirect: false };
pub(crate) const PACKED: RingFeatures = RingFeatures { packed: true, ..SPLIT };
pub(crate) const INDIRECT: RingFeatures = RingFeatures { indirect: true, ..SPLIT };

/// Descriptors of a ring.
const SIZE: u16 = 512;
/// The room of a request in the guest's memory, and the offsets of status and data in it.
const ROOM: u64 = 0x1_0000;
const STATUS: u64 = 0x100;
const PIECES: u64 = 0x1000;

/// A worker, or a queue without one.
enum Server {
    Worker(Box<OneWorker>),
    Queue(Box<ByHand>),
}

struct Disk {
    driver: Driver,
    server: Server,
    /// The pieces of each request.
    requests: Vec<Vec<Piece>>,
}

impl Disk {
    /// Requests of this type (0 reads, 1 writes), with this many pieces of `size` bytes. Each has its own place.
    fn new(driver: Driver, server: Server, kind: u32, pieces: u64, size: u32) -> Self {
        let request = |number: u64| {
            let address = DATA + number * ROOM;
            let header = [&kind.to_le_bytes()[..], &[0; 4], &(number * 64).to_le_bytes()].concat();
            driver.write(address, &header);
            let piece = |piece: u64| (address + PIECES + piece * u64::from(size), size, kind == 0);
            let data = (0..pieces).map(piece);
            [(address, 16, false)].into_iter().chain(data).chain([(address + STATUS, 1, true)]).collect()
        };
        let requests = (0..BATCH as u64).map(request).collect();
        Self { driver, server, requests }
    }
}

impl Turn for Disk {
    fn submit(&mut self) {
        for pieces in &self.requests {
            let added = match self.driver.features.indirect {
                true => self.driver.add_indirect(pieces),
                false => self.driver.add(pieces),
            };
            assert!(added.is_some(), "the ring has room");
        }
    }

    fn serve(&mut self) {
        match &mut self.server {
            Server::Worker(worker) => drop(worker.round()),
            Server::Queue(queue) => drop(queue.serve(2 * BATCH as u32)),
        }
    }

    fn finish(&mut self) -> usize {
        let ended = std::iter::from_fn(|| self.driver.take()).count();
        let all_well =
            (0..BATCH as u64).all(|number| self.driver.read(DATA + number * ROOM + STATUS, 1) == [0]);
        if all_well { ended } else { 0 }
    }
}

/// A null disk at a worker that also looks at `idle` other queues.
pub(crate) fn null(pieces: u64, features: RingFeatures, idle: usize) -> Outcome<Box<dyn Turn>> {
    let device = BlockDevice::open(BlockOptions::default())?;
    let mut worker = OneWorker::new()?;
    let mut serve = || {
        let driver = Driver::new(SIZE, features);
        let handler = Box::new(device.queue(SIZE));
        worker.add(Queue::new(driver.ring()?, Notifiers::default(), handler, Arc::<QueueState>::default()));
        Ok::<_, RingError>(driver)
    };
    let driver = serve()?;
    for _ in 0..idle {
        // The worker keeps the queue, and the queue its memory.
        serve()?;
    }
    Ok(Box::new(Disk::new(driver, Server::Worker(Box::new(worker)), 0, pieces, 512)))
}

/// A disk in memory whose queue is served without a worker: the device's part, with system calls instead of `io_uring`.
pub(crate) fn file(kind: u32, size: u32) -> Outcome<Box<dyn Turn>> {
    let file = memory_file(1 << 20);
    let path = Some(format!("/proc/self/fd/{}", file.as_raw_fd()).into());
    let device = BlockDevice::open(BlockOptions { path, ..BlockOptions::default() })?;
    let driver = Driver::new(SIZE, SPLIT);
    let queue = ByHand::new(&driver, Box::new(device.queue(SIZE)));
    Ok(Box::new(Disk::new(driver, Server::Queue(Box::new(queue)), kind, 1, size)))
}
