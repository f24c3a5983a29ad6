//! libblkio's driver of vhost-user block devices against the daemon: an independent implementation of the protocol and
//! of rings.

use crate::blkio_disk::{BLOCK, DISK, Disk};
use blkio::{Blkio, ReqFlags};
use iocm::config::Config;
use iocm::daemon::Daemon;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

fn daemon(directory: &Path, devices: &str, workers: u32) -> Daemon {
    let path = directory.join("disk");
    File::create(&path).unwrap().set_len(DISK).unwrap();
    let socket = directory.join("socket");
    let text = format!(
        "[workers]\ncount = {workers}\n[[device]]\nname = \"disk\"\ntype = \"block\"\nsocket = {socket:?}\npath = {path:?}\n{devices}"
    );
    Daemon::start(&Config::parse(&text).unwrap()).unwrap()
}

#[test]
fn what_is_written_is_on_the_disk_and_is_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = daemon(directory.path(), "", 1);
    for turn in 0..3_u8 {
        let mut disk = Disk::connect(&daemon.endpoints()[0].config.socket);
        for slot in 0..8 {
            disk.fill(slot, 10 * turn + slot as u8 + 1);
            disk.queue.write((slot * BLOCK) as u64, disk.block(slot), BLOCK, slot, ReqFlags::empty());
        }
        assert_eq!(disk.wait(8), [0; 8]);
        disk.queue.flush(0, ReqFlags::empty());
        assert_eq!(disk.wait(1), [0]);
        let file = File::open(directory.path().join("disk")).unwrap();
        for slot in 0..8 {
            let mut byte = [0];
            file.read_exact_at(&mut byte, (slot * BLOCK) as u64 + 7).unwrap();
            assert_eq!(byte[0], 10 * turn + slot as u8 + 1);
            disk.queue.read((slot * BLOCK) as u64, disk.block(slot + 8), BLOCK, slot, ReqFlags::empty());
        }
        assert_eq!(disk.wait(8), [0; 8]);
        assert!((0..8).all(|slot| disk.holds(slot + 8, 10 * turn + slot as u8 + 1)));
        disk.queue.write_zeroes(0, BLOCK as u64, 0, ReqFlags::empty());
        disk.queue.discard(BLOCK as u64, BLOCK as u64, 1, ReqFlags::empty());
        assert_eq!(disk.wait(2), [0; 2]);
        disk.queue.read(0, disk.block(0), 2 * BLOCK, 0, ReqFlags::empty());
        assert_eq!(disk.wait(1), [0]);
        assert!(disk.holds(0, 0));
    }
}

#[test]
fn a_queue_moves_between_workers_under_load() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = daemon(directory.path(), "", 2);
    let mut disk = Disk::connect(&daemon.endpoints()[0].config.socket);
    let mut places = Vec::new();
    for turn in 0..200_usize {
        for slot in 0..8 {
            let offset = ((turn * 8 + slot) * BLOCK) as u64 % DISK;
            disk.queue.read(offset, disk.block(slot), BLOCK, slot, ReqFlags::empty());
        }
        disk.queue.do_io(&mut [], 0, None, None).unwrap();
        let key = daemon.endpoints()[0].backend.queues[0].key.lock().unwrap().unwrap();
        let to = (turn % 2) as u32;
        daemon.pool().move_queue(key, to).unwrap();
        places.push(daemon.pool().worker_of(key).unwrap());
        assert_eq!(disk.wait(8), [0; 8]);
    }
    assert!(places.contains(&0) && places.contains(&1));
    let key = daemon.endpoints()[0].backend.queues[0].key.lock().unwrap().unwrap();
    daemon.pool().remove_worker(daemon.pool().worker_of(key).unwrap()).unwrap();
    disk.queue.read(0, disk.block(0), BLOCK, 0, ReqFlags::empty());
    assert_eq!(disk.wait(1), [0], "the other worker has it now");
}

#[test]
fn a_guest_that_may_only_read_can_read() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = daemon(directory.path(), "read-only = true\n", 1);
    let mut blkio = Blkio::new("virtio-blk-vhost-user").unwrap();
    blkio.set_str("path", daemon.endpoints()[0].config.socket.to_str().unwrap()).unwrap();
    blkio.set_bool("read-only", true).unwrap();
    blkio.connect().unwrap();
    let mut queue = blkio.start().unwrap().queues.remove(0);
    let memory = blkio.alloc_mem_region(BLOCK).unwrap();
    blkio.map_mem_region(&memory).unwrap();
    let buffer = std::ptr::with_exposed_provenance_mut(memory.addr);
    queue.read(0, buffer, BLOCK, 0, ReqFlags::empty());
    let mut ended = [const { MaybeUninit::uninit() }];
    let mut time = Duration::from_secs(20);
    assert_eq!(queue.do_io(&mut ended, 1, Some(&mut time), None).unwrap(), 1);
}
