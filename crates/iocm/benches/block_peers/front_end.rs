//! A disk's front-end by libblkio, with a load of its own.

use crate::{Outcome, SECONDS};
use blkio::{Blkio, Completion, ReqFlags};
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;

/// Connects as soon as the back-end listens: its socket is there a moment before.
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

/// Reads at random places; how long each request took, microseconds.
pub(crate) fn drive(socket: &Path, depth: usize, rate: f64) -> Outcome<Vec<u32>> {
    let mut blkio = connect(socket)?;
    let blocks = blkio.get_u64("capacity")? / BLOCK as u64;
    let mut queue = blkio.start()?.queues.remove(0);
    let memory = blkio.alloc_mem_region(depth * BLOCK)?;
    blkio.map_mem_region(&memory)?;
    let begin = Instant::now();
    let end = begin + Duration::from_secs(SECONDS);
    let (mut due, mut free) = (vec![begin; depth], (0..depth).collect::<Vec<_>>());
    let (mut latencies, mut issued, mut random) =
        (Vec::with_capacity(1 << 20), 0_u64, 0x9e37_79b9_7f4a_7c15_u64);
    let mut ended: Vec<MaybeUninit<Completion>> = (0..depth).map(|_| MaybeUninit::uninit()).collect();
    loop {
        let now = Instant::now();
        if now >= end {
            return Ok(latencies);
        }
        while let Some(&slot) = free.last() {
            let moment = match rate {
                0.0 => now,
                rate => begin + Duration::from_secs_f64(issued as f64 / rate),
            };
            if moment > now {
                break;
            }
            (due[slot], issued) = (moment, issued + 1);
            free.pop();
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let buffer = std::ptr::with_exposed_provenance_mut(memory.addr + slot * BLOCK);
            queue.read(random % blocks * BLOCK as u64, buffer, BLOCK, slot, ReqFlags::empty());
        }
        let wanted = usize::from(rate == 0.0 && free.len() < depth);
        let count = queue.do_io(&mut ended, wanted, None, None)?;
        let now = Instant::now();
        for one in &ended[..count] {
            // SAFETY: so many were written.
            let one = unsafe { one.assume_init_read() };
            if one.ret != 0 {
                return Err(format!("a request failed: {}", one.ret).into());
            }
            latencies.push(u32::try_from((now - due[one.user_data]).as_micros()).unwrap_or(u32::MAX));
            free.push(one.user_data);
        }
        if rate > 0.0 && count == 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}
