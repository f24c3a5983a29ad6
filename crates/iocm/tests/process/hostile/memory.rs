//! Memory that is not what it seems.

use super::stage::{Attacker, FAR, Neighbour, PLACE, Stage, disk, memory, wait_readable};
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// Data is written from memory whose file is truncated. It needs a bounce buffer, so the daemon touches the memory itself.
pub(crate) fn cut_while_it_is_used() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("disk"), vec![7; 1 << 20]).unwrap();
    let path = directory.path().join("disk");
    let mut stage = Stage::in_directory(directory, &["path = \"HERE/disk\"\ndirect = true", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    let far = memory(0x4000);
    let mut attacker = Attacker::new(&stage.socket(0), 64, Some((&far, 0x4000)));
    assert!(attacker.start(64));
    far.write_all_at(&[9; 0x4000], 0).unwrap();
    // The first page is there, the others are gone.
    far.set_len(0x1000).unwrap();
    attacker.request(1, 8, &[(FAR + 0x801, 0x1000, false)]);
    let told = wait_readable(&attacker.error, LIMIT);
    let status = attacker.ended(Duration::from_millis(200));
    assert!(stage.is_alive());
    let mut stored = [0; 4096];
    File::open(path).unwrap().read_exact_at(&mut stored, 4096).unwrap();
    assert!(stored.iter().all(|byte| *byte == 7), "what the guest did not write is on the disk");
    assert_eq!((told, status), (true, None), "the front-end is told, and the write is not acknowledged");
    assert!(neighbour.read(LIMIT).is_some());
    // Nor can the queue be started again in the same memory.
    attacker.front.stop(0).unwrap();
    assert!(!attacker.start(64), "a queue is begun in memory that is no longer the guest's");
}

/// Huge pages on a host that has none.
pub(crate) fn huge_pages_that_are_not_there() {
    const SIZE: u64 = 4 << 20;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("disk"), vec![7; 1 << 20]).unwrap();
    let mut stage = Stage::in_directory(directory, &["path = \"HERE/disk\"\ndirect = true", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    let Ok(far) = rustix::fs::memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB) else {
        println!("not tested: this kernel has no huge pages");
        return;
    };
    let far = File::from(far);
    far.set_len(SIZE).unwrap();
    let mut attacker = Attacker::new(&stage.socket(0), 64, Some((&far, SIZE)));
    assert!(attacker.start(64));
    attacker.request(1, 8, &[(FAR + 0x20_1801, 0x1000, false)]);
    let ended = attacker.ended(Duration::from_secs(1));
    assert!(stage.is_alive(), "the daemon has died of it");
    match ended {
        // The host has free huge pages.
        Some(0) => println!("not tested: there are huge pages"),
        ended => assert_eq!((ended, wait_readable(&attacker.error, LIMIT)), (None, true)),
    }
    assert!(neighbour.read(LIMIT).is_some());
}

/// A file whose pages come from a disk, as slowly as that likes.
pub(crate) fn no_memory() {
    let directory = tempfile::tempdir().unwrap();
    if rustix::fs::statfs(directory.path()).unwrap().f_type == 0x0102_1994 {
        println!("not tested: the directory for temporary files is in memory");
        return;
    }
    disk(directory.path(), "far", 0x10_0000);
    let far = File::options().read(true).write(true).open(directory.path().join("far")).unwrap();
    let stage = Stage::in_directory(directory, &[""]);
    let mut attacker = Attacker::new(&stage.socket(0), 64, None);
    assert!(!attacker.share(&far, 0x10_0000), "a file on a disk is taken as memory");
    let far = memory(0x10_0000);
    assert!(attacker.share(&far, 0x10_0000));
    assert!(attacker.start(64));
    attacker.request(0, 0, &[(PLACE, 512, true)]);
    assert_eq!(attacker.ended(LIMIT), Some(0));
}

/// A file that allows seals is sealed, so that nobody can truncate it.
pub(crate) fn sealed() {
    use rustix::fs::SealFlags;
    let stage = Stage::new(&[""]);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let far = File::from(rustix::fs::memfd_create("far", flags).unwrap());
    far.set_len(0x4000).unwrap();
    let _attacker = Attacker::new(&stage.socket(0), 64, Some((&far, 0x4000)));
    assert!(rustix::fs::fcntl_get_seals(&far).unwrap().contains(SealFlags::SHRINK));
    assert!(far.set_len(0).is_err());
}
