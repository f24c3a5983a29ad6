//! A vhost-user front-end whose guest is the kernel's TCP/IP in a network namespace. A thread for each queue pair moves
//! packets between it and a queue of a tap there, in batches and without offloads.

use crate::Outcome;
use iocm::device::net::TapQueue;
use iocm::ring::RingFeatures;
use iocm::testing::{DATA, Driver, FrontEnd, NEXT};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The features of Linux guests.
const FEATURES: RingFeatures = RingFeatures { packed: false, event_index: true, indirect: false };
/// `VIRTIO_NET_F_MQ`.
const MULTIQUEUE: u64 = 1 << 22;
/// QEMU's default.
const BUFFERS: u16 = 256;
/// Bytes of a buffer: room for a header and a packet with an MTU of 1500.
const ROOM: u32 = 2048;
/// The number of packets that are moved before the other side is notified.
const BATCH: usize = 64;

/// A queue whose buffers have one descriptor each.
struct Queue {
    driver: Driver,
    kick: OwnedFd,
    first: u64,
    /// The address of [`Self::first`] in this process.
    memory: *mut u8,
    free: Vec<u16>,
    /// The buffer of each descriptor.
    buffers: Vec<u16>,
    writable: bool,
}

// SAFETY: the buffers belong to this queue alone, and stay mapped as long as its driver exists.
unsafe impl Send for Queue {}

impl Queue {
    /// A queue that the back-end serves, with its own kick eventfd.
    fn start(number: u32, first: &Driver, front: &mut FrontEnd) -> Outcome<Self> {
        let driver = first.another(number.into());
        let (first, size) = (DATA + u64::from(number) * NEXT, ROOM * u32::from(BUFFERS));
        let mut memory = std::ptr::null_mut();
        if !driver.memory.parts(first, size, |part| memory = part.pointer) {
            return Err("the buffers are not in the guest's memory".into());
        }
        if !front.start(number, &driver.layout(), u32::from(BUFFERS), 0)? {
            return Err(format!("the back-end refuses virtqueue {number}").into());
        }
        let (free, buffers) = ((0..BUFFERS).collect(), vec![0; usize::from(BUFFERS)]);
        // A driver receives on even queues.
        let writable = number.is_multiple_of(2);
        Ok(Self { driver, kick: front.another_kick()?, first, memory, free, buffers, writable })
    }

    /// The memory of a buffer that is not available to the device.
    fn buffer(&mut self, number: u16) -> &mut [u8] {
        let room = ROOM as usize;
        // SAFETY: this much is mapped there in one piece, and nobody else writes to a buffer that is not available.
        unsafe { std::slice::from_raw_parts_mut(self.memory.wrapping_add(usize::from(number) * room), room) }
    }

    fn add(&mut self, number: u16, size: usize) -> Outcome<()> {
        let address = self.first + u64::from(number) * u64::from(ROOM);
        let added = self.driver.add(&[(address, size as u32, self.writable)]);
        self.buffers[usize::from(added.ok_or("a ring has fewer descriptors than buffers")?)] = number;
        Ok(())
    }

    /// The next used buffer, and the number of bytes that the device wrote to it.
    fn take(&mut self) -> Option<(u16, usize)> {
        let (id, written) = self.driver.take()?;
        Some((self.buffers[usize::from(id)], written as usize))
    }

    fn kick(&self, before: u16) -> Outcome<()> {
        if self.driver.offered() != before && self.driver.must_kick(before) {
            rustix::io::write(&self.kick, &1_u64.to_ne_bytes())?;
        }
        Ok(())
    }
}

/// A queue pair and the queue of a tap.
pub(crate) struct Pair {
    tap: Arc<TapQueue>,
    receive: Queue,
    transmit: Queue,
    call: OwnedFd,
    /// Keeps the connection, and with it the device.
    _front_end: Arc<FrontEnd>,
}

/// A device with a queue pair for each queue of a tap.
pub(crate) fn pairs(taps: Vec<Arc<TapQueue>>, back_end: UnixStream) -> Outcome<Vec<Pair>> {
    let first = Driver::of_several(2 * taps.len() as u64, BUFFERS, FEATURES);
    let mut front = FrontEnd::new(back_end)?;
    front.negotiate(&first, if taps.len() > 1 { MULTIQUEUE } else { 0 })?;
    let mut started = Vec::new();
    for (number, tap) in (0..).step_by(2).zip(taps) {
        let receive = Queue::start(number, &first, &mut front)?;
        let transmit = Queue::start(number + 1, &first, &mut front)?;
        tap.attach(true)?;
        started.push((tap, receive, transmit, front.another_call()?));
    }
    let front_end = Arc::new(front);
    let pair = |(tap, receive, transmit, call)| Pair {
        tap,
        receive,
        transmit,
        call,
        _front_end: Arc::clone(&front_end),
    };
    Ok(started.into_iter().map(pair).collect())
}

impl Pair {
    /// Moves packets until `ends` is set.
    pub(crate) fn pump(mut self, ends: &AtomicBool) -> Outcome<()> {
        let Self { tap, receive, transmit, call, .. } = &mut self;
        let before = receive.driver.offered();
        while let Some(number) = receive.free.pop() {
            receive.add(number, ROOM as usize)?;
        }
        receive.kick(before)?;
        let mut asks_for_calls = true;
        while !ends.load(Ordering::Relaxed) {
            let sent = send(tap, transmit)?;
            let moved = deliver(tap, receive)? | sent;
            let sleeps = !moved && asks_for_calls;
            if sleeps {
                wait(tap, call, transmit.free.is_empty())?;
            }
            // Look once more for what arrived before the call was asked for.
            asks_for_calls = !moved && !sleeps;
            receive.driver.enable_calls(asks_for_calls);
            transmit.driver.enable_calls(asks_for_calls && transmit.free.is_empty());
        }
        Ok(())
    }
}

/// Sends the namespace's packets. Returns whether there were any.
fn send(tap: &TapQueue, queue: &mut Queue) -> Outcome<bool> {
    while let Some((number, _)) = queue.take() {
        queue.free.push(number);
    }
    let before = queue.driver.offered();
    for _ in 0..BATCH {
        let Some(&number) = queue.free.last() else { break };
        let Some(size) = tap.read(queue.buffer(number)) else { break };
        queue.free.pop();
        queue.add(number, size)?;
    }
    queue.kick(before)?;
    Ok(queue.driver.offered() != before)
}

/// Passes received packets to the namespace. Returns whether there were any.
fn deliver(tap: &TapQueue, queue: &mut Queue) -> Outcome<bool> {
    let before = queue.driver.offered();
    for _ in 0..BATCH {
        let Some((number, written)) = queue.take() else { break };
        // Packets for which the kernel has no room are lost, as in any network card.
        let _ = rustix::io::write(tap.file(), &queue.buffer(number)[..written.min(ROOM as usize)]);
        queue.add(number, ROOM as usize)?;
    }
    queue.kick(before)?;
    Ok(queue.driver.offered() != before)
}

/// Sleeps until there may be something to move, but only for a short time, to notice that it is to end.
fn wait(tap: &TapQueue, call: &OwnedFd, is_full: bool) -> Outcome<()> {
    let moment = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let mut files = vec![PollFd::new(call, PollFlags::IN)];
    if !is_full {
        files.push(PollFd::from_borrowed_fd(tap.file(), PollFlags::IN));
    }
    match poll(&mut files, Some(&moment)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let _ = rustix::io::read(call, &mut [0; 8]);
    Ok(())
}
