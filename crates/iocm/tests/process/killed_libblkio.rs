//! A daemon that is killed while libblkio's front-end writes. It does not reconnect by itself. Its user connects again,
//! and must find everything that was reported as written.

use super::daemon::Daemon;
use crate::blkio_disk::{BLOCK, DISK, Disk};
use blkio::{Completion, ReqFlags};
use iocm::testing::connect_within;
use std::fs::File;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

const BLOCKS: usize = DISK as usize / BLOCK;
const KILLS: u8 = 6;
const AT_ONCE: usize = 8;

fn connect(socket: &Path) -> Disk {
    connect_within(Duration::from_secs(60), socket).unwrap();
    Disk::connect(socket)
}

/// The valid contents of a block: those of its last completed write, or of a later one whose completion was not reported.
#[derive(Clone, Copy, Default)]
struct Held {
    told: u8,
    perhaps: Option<u8>,
}

/// Writes blocks in turn until `count` writes have completed, and leaves others in flight.
fn write(disk: &mut Disk, held: &mut [Held], begin: usize, count: usize, byte: u8) -> usize {
    let mut slots = [None; AT_ONCE];
    let (mut next, mut ended) = (begin, 0);
    loop {
        for (slot, under_way) in slots.iter_mut().enumerate().filter(|(_, block)| block.is_none()) {
            let block = next % BLOCKS;
            disk.fill(slot, byte);
            disk.queue.write((block * BLOCK) as u64, disk.block(slot), BLOCK, slot, ReqFlags::empty());
            held[block].perhaps = Some(byte);
            *under_way = Some(block);
            next += 1;
        }
        if ended >= count {
            // Submits the last ones without waiting for them.
            disk.queue.do_io(&mut [], 0, None, None).unwrap();
            return next;
        }
        let mut ends = [const { MaybeUninit::<Completion>::uninit() }; AT_ONCE];
        let mut time = Duration::from_secs(20);
        let done = disk.queue.do_io(&mut ends, 1, Some(&mut time), None).unwrap();
        for end in &ends[..done] {
            // SAFETY: libblkio has initialized the first `done` completions.
            let end = unsafe { end.assume_init_read() };
            assert_eq!(end.ret, 0);
            let block = slots[end.user_data].take().unwrap();
            held[block] = Held { told: byte, perhaps: None };
            ended += 1;
        }
    }
}

fn check(disk: &mut Disk, held: &mut [Held]) {
    for (block, held) in held.iter_mut().enumerate() {
        disk.queue.read((block * BLOCK) as u64, disk.block(15), BLOCK, 15, ReqFlags::empty());
        assert_eq!(disk.wait(1), [0]);
        let found = [Some(held.told), held.perhaps].into_iter().flatten().find(|byte| disk.holds(15, *byte));
        held.told = found.unwrap_or_else(|| panic!("block {block} lost what was told to be written"));
        held.perhaps = None;
    }
}

pub(crate) fn finds_what_was_told() {
    let directory = tempfile::tempdir().unwrap();
    let (path, socket) = (directory.path().join("disk"), directory.path().join("disk.sock"));
    File::create(&path).unwrap().set_len(DISK).unwrap();
    let config = format!(
        "[[device]]\nname = \"disk\"\ntype = \"block\"\nsocket = {socket:?}\npath = {path:?}\n\
         [control]\nsocket = \"\"\nmount = \"\"\n"
    );
    let mut held = vec![Held::default(); BLOCKS];
    let mut next = 0;
    for turn in 1..=KILLS {
        let daemon = Daemon::start(&config);
        let mut disk = connect(&socket);
        check(&mut disk, &mut held);
        next = write(&mut disk, &mut held, next, 400 + 37 * usize::from(turn), turn);
        // Dropping it kills it, with requests in flight.
        drop(daemon);
    }
    let _daemon = Daemon::start(&config);
    check(&mut connect(&socket), &mut held);
    println!("killed {KILLS} times, {next} writes of libblkio's front-end");
}
