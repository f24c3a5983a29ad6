//! Disks of the host with a bad block, for which the kernel returns EIO, and disks that do not answer.

use super::*;
use crate::testing::{MountedFile, attributes_of_one_file};
use fuser::{
    Errno, FileHandle, Filesystem, FopenFlags, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData,
    ReplyEmpty, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};

const SIZE: u64 = 1 << 20;
/// The block that cannot be read or written, as large as a page.
const BAD: u64 = 5 * 4096;

/// A file system with a single file.
struct Disk;

fn is_bad(offset: u64, size: usize) -> bool {
    offset < BAD + 4096 && BAD < offset + size as u64
}

impl Filesystem for Disk {
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::ZERO, &attributes_of_one_file(ino, SIZE));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match is_bad(offset, size as usize) {
            true => reply.error(Errno::EIO),
            false => reply.data(&vec![9; size as usize]),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match is_bad(offset, data.len()) {
            true => reply.error(Errno::EIO),
            false => reply.written(data.len() as u32),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.error(Errno::EIO);
    }
}

#[test]
fn a_bad_block_is_an_error_for_the_guest_and_the_others_are_not() {
    let Some(disk) = MountedFile::new(Disk) else {
        println!("not tested: only root can mount a disk with a bad block");
        return;
    };
    let path = Some(disk.path().to_owned());
    let device = BlockDevice::open(BlockOptions { path, ..BlockOptions::default() }).unwrap();
    let routes = Routes::new();
    let worker = worker(&routes, Polling::default());
    let (mut guest, queue) = Guest::new(&device, FEATURES);
    worker.add(queue);
    let status = |guest: &mut Guest, kind, offset: u64, data: &[u8], read| {
        guest.submit(kind, offset / 512, data, read).unwrap();
        guest.ended().1
    };
    for _ in 0..3 {
        assert_eq!(status(&mut guest, 0, BAD, &[], 4096), 1, "a read of it");
        assert_eq!(status(&mut guest, 0, BAD - 4096, &[], 3 * 4096), 1, "a read across it");
        assert_eq!(status(&mut guest, 1, BAD, &[5; 4096], 0), 1, "a write to it");
        assert_eq!(status(&mut guest, 4, 0, &[], 0), 1, "a flush");
        guest.submit(0, 0, &[], 4096).unwrap();
        let (_, good, data) = guest.ended();
        assert!(good == 0 && data.iter().all(|byte| *byte == 9), "a read of another block");
        assert_eq!(status(&mut guest, 1, BAD + 4096, &[5; 4096], 0), 0, "a write to another block");
    }
    assert_eq!(guest.state.counters.read().errors, 12);
}

/// A file system with a single file, whose server answers no read and no flush until the channel closes.
struct Silent(Arc<Mutex<Receiver<()>>>);

impl Filesystem for Silent {
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::from_secs(3600), &attributes_of_one_file(ino, SIZE));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let answers = Arc::clone(&self.0);
        std::thread::spawn(move || {
            // Opening the disk reads its first bytes.
            if offset > 0 {
                let _ = answers.lock().unwrap().recv();
            }
            reply.data(&vec![9; size as usize]);
        });
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let answers = Arc::clone(&self.0);
        std::thread::spawn(move || {
            let _ = answers.lock().unwrap().recv();
            reply.ok();
        });
    }
}

#[test]
fn a_disk_that_does_not_answer_holds_no_other() {
    // Reads, and flushes.
    for (kind, size) in [(0, 4096), (4, 0)] {
        holds_no_other(kind, size);
    }
}

fn holds_no_other(kind: u32, size: u32) {
    let (answers, waiting) = channel();
    let Some(disk) = MountedFile::new(Silent(Arc::new(Mutex::new(waiting)))) else {
        println!("not tested: only root can mount a disk that does not answer");
        return;
    };
    let path = Some(disk.path().to_owned());
    let device = BlockDevice::open(BlockOptions { path, ..BlockOptions::default() }).unwrap();
    let (_file, other) = super::disk(1 << 20);
    let routes = Routes::new();
    let worker = worker(&routes, Polling::default());
    let (mut waits, first) = Guest::new(&device, FEATURES);
    let (mut guest, second) = Guest::new(&other, FEATURES);
    worker.add(first);
    worker.add(second);
    // Dropped before the worker if the test fails.
    let answers = answers;
    for sector in 1..60 {
        waits.submit(kind, if size > 0 { sector * 8 } else { 0 }, &[], size).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    guest.submit(0, 0, &[], 4096).unwrap();
    assert_eq!(guest.ended().1, 0);
    guest.submit(1, 0, &[5; 4096], 0).unwrap();
    assert_eq!(guest.ended().1, 0);
    guest.submit(4, 0, &[], 0).unwrap();
    assert_eq!(guest.ended().1, 0, "a flush");
    assert!(waits.driver.ended().is_none());
    drop(answers);
    for _ in 1..60 {
        assert_eq!(waits.ended().1, 0);
    }
}
