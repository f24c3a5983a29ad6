//! A front-end of a disk, by libblkio, with its load.

use crate::block_peers::load::{Load, Pace};
use crate::{Outcome, SECONDS};
use blkio::{Blkio, Completion, Errno, ReqFlags};
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::path::Path;
use std::time::{Duration, Instant};

/// Connects as soon as the back-end listens, which is a moment after the socket exists.
fn connect(socket: &Path) -> Outcome<Blkio> {
    let begin = Instant::now();
    loop {
        let mut blkio = Blkio::new("virtio-blk-vhost-user")?;
        blkio.set_str("path", socket.to_str().ok_or("a strange path")?)?;
        match blkio.connect() {
            Ok(()) => return Ok(blkio),
            Err(error) if begin.elapsed() > Duration::from_secs(20) => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Gives this thread the highest priority, and a short slice if it sleeps between its requests, as far as the kernel
/// allows. So, on a busy machine, the latencies are those of the back-end, and not the time that a front-end waits for a
/// CPU.
fn take_precedence(pace: Pace) {
    // SAFETY: the structure is valid when zeroed.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of_val(&attributes) as u32;
    attributes.sched_nice = -20;
    if pace != Pace::Closed {
        attributes.sched_runtime = 100_000;
    }
    // SAFETY: the call reads as many bytes as `attributes` says that it has.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// The time at which a device begins. The bursts of all devices follow each other at equal distances: otherwise the time
/// that each back-end takes to connect would decide how many of them come together.
fn begin(load: Load, number: usize) -> Instant {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let wait = match load.pace {
        Pace::Bursts(_, every) => {
            let every = every.as_nanos() as u64;
            let own = every * number as u64 / load.devices as u64;
            let clock = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
            every - (clock - own) % every
        }
        _ => 0,
    };
    Instant::now() + Duration::from_nanos(wait)
}

/// Sends requests to random offsets, as the device with this number. Returns the latencies, microseconds, and the
/// connection, which is still open.
pub(crate) fn drive(socket: &Path, load: Load, number: usize) -> Outcome<(Vec<u32>, Blkio)> {
    let Load { depth, pace, requests, .. } = load;
    take_precedence(pace);
    // With the default timer slack of 50 us, requests that are due one after another would come in bursts.
    if !matches!(pace, Pace::Rate(_)) {
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    }
    let mut blkio = connect(socket)?;
    let capacity = blkio.get_u64("capacity")?;
    let mut queue = blkio.start()?.queues.remove(0);
    let memory = blkio.alloc_mem_region(depth * requests.room())?;
    // Populate the memory, as a guest does before its I/O. Otherwise the back-end populates it, page by page or, with
    // SPDK, all at once, and large requests to a disk were up to 1.6 times as many with the one as with the other.
    // SAFETY: the region has this size, is mapped for writing, and nobody else uses it yet.
    unsafe { std::ptr::with_exposed_provenance_mut::<u8>(memory.addr).write_bytes(1, memory.len) };
    blkio.map_mem_region(&memory)?;
    let begin = begin(load, number);
    let end = begin + Duration::from_secs(SECONDS);
    // For each slot of the queue: when its request was due, or when its next one will be.
    let (mut due, mut free) = (vec![begin; depth], (0..depth).collect::<Vec<_>>());
    let (mut latencies, mut issued) = (Vec::with_capacity(1 << 20), 0_u32);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut ended: Vec<MaybeUninit<Completion>> = (0..depth).map(|_| MaybeUninit::uninit()).collect();
    loop {
        let now = Instant::now();
        if now >= end {
            return Ok((latencies, blkio));
        }
        let mut next = end;
        while let Some(&slot) = free.last() {
            let moment = match pace {
                Pace::Closed => now,
                Pace::Rate(rate) => begin + Duration::from_secs_f64(f64::from(issued) / rate),
                Pace::Bursts(count, every) => begin + every * (issued / count),
                Pace::Think => due[slot],
            };
            if moment > now {
                next = next.min(moment);
                break;
            }
            (due[slot], issued) = (moment, issued + 1);
            free.pop();
            let buffer = std::ptr::with_exposed_provenance_mut(memory.addr + slot * requests.room());
            let (bytes, reads) = requests.next(random.next());
            let place = random.next() % (capacity / bytes as u64) * bytes as u64;
            match reads {
                true => queue.read(place, buffer, bytes, slot, ReqFlags::empty()),
                false => queue.write(place, buffer, bytes, slot, ReqFlags::empty()),
            }
        }
        let count = match pace {
            Pace::Rate(_) => queue.do_io(&mut ended, 0, None, None)?,
            // Nothing is in flight, so wait for the time of the next request.
            _ if free.len() == depth => {
                std::thread::sleep(next - now);
                0
            }
            _ => match queue.do_io(&mut ended, 1, Some(&mut (next - now)), None) {
                Err(error) if error.errno() == Errno::TIME => 0,
                count => count?,
            },
        };
        let now = Instant::now();
        for one in &ended[..count] {
            // SAFETY: libblkio has initialized the first `count` completions.
            let one = unsafe { one.assume_init_read() };
            if one.ret != 0 {
                return Err(format!("a request failed: {}", one.ret).into());
            }
            latencies.push(u32::try_from((now - due[one.user_data]).as_micros()).unwrap_or(u32::MAX));
            if pace == Pace::Think {
                due[one.user_data] = now + random.think();
            }
            free.push(one.user_data);
        }
        if pace == Pace::Think {
            // The slot that is due first comes last.
            free.sort_by_key(|&slot| std::cmp::Reverse(due[slot]));
        }
        if matches!(pace, Pace::Rate(_)) && count == 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A time from 1 us to 10 ms, with each factor of ten equally likely.
    fn think(&mut self) -> Duration {
        let share = self.next() as f64 / u64::MAX as f64;
        Duration::from_secs_f64(1e-6 * 1e4_f64.powf(share))
    }
}
