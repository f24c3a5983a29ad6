//! Disks of the host that fail while guests use them.

use super::*;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
};
use std::os::fd::AsRawFd as _;

fn device(path: std::path::PathBuf) -> Arc<BlockDevice> {
    BlockDevice::open(BlockOptions { path: Some(path), ..BlockOptions::default() }).unwrap()
}

/// A file system of 64 KiB that is not mounted anywhere; `None` if this user may not make one.
fn small() -> Option<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    fsconfig_set_string(&context, "size", "64k").ok()?;
    fsconfig_create(&context).ok()?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).ok()
}

#[test]
fn a_full_disk_is_an_error_for_the_guest_until_there_is_room() {
    let Some(mount) = small() else {
        println!("not tested: only root can make a file system that is small");
        return;
    };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&mount, "disk", flags, Mode::RUSR | Mode::WUSR).unwrap();
    rustix::fs::ftruncate(&file, 1 << 20).unwrap();
    let device = device(format!("/proc/self/fd/{}", file.as_raw_fd()).into());
    let routes = Routes::new();
    let worker = worker(&routes, Polling::default());
    let (mut guest, queue) = Guest::new(&device, FEATURES);
    worker.add(queue);
    let mut write = |sector: u64| {
        guest.submit(1, sector, &[5; 4096], 0).unwrap();
        guest.ended().1
    };
    let fits = (0..64).take_while(|block| write(block * 8) == 0).count() as u64;
    assert!((1..=16).contains(&fits), "{fits} blocks found room in 64 KiB");
    assert_eq!(write(63 * 8), 1, "still full");
    assert_eq!(write(0), 0, "a block that has its room");
    let range = [&0_u64.to_le_bytes()[..], &8_u32.to_le_bytes(), &0_u32.to_le_bytes()].concat();
    guest.submit(11, 0, &range, 0).unwrap();
    assert_eq!(guest.ended().1, 0);
    guest.submit(1, 63 * 8, &[5; 4096], 0).unwrap();
    assert_eq!(guest.ended().1, 0, "what was discarded left room");
    assert!(guest.state.counters.read().errors >= 2);
}

#[test]
fn a_disk_that_takes_no_writes_any_more_is_an_error_for_the_guest() {
    let file = rustix::fs::memfd_create("disk", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&file, 1 << 20).unwrap();
    let device = device(format!("/proc/self/fd/{}", file.as_raw_fd()).into());
    let routes = Routes::new();
    let worker = worker(&routes, Polling::default());
    let (mut guest, queue) = Guest::new(&device, FEATURES);
    worker.add(queue);
    let mut write = || {
        guest.submit(1, 0, &[5; 4096], 0).unwrap();
        guest.ended().1
    };
    assert_eq!(write(), 0);
    rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE).unwrap();
    assert_eq!(write(), 1);
    guest.submit(0, 0, &[], 4096).unwrap();
    assert_eq!(guest.ended().1, 0, "it can still be read");
    assert_eq!(guest.state.counters.read().errors, 1);
}
