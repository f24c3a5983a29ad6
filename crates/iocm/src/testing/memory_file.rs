//! Files for tests: memory and dirty logs that a front-end shares, and the attributes of a file system with a single
//! file.

use fuser::{FileAttr, FileType, INodeNo};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::SystemTime;

/// A file in memory of this many bytes, which can be truncated.
///
/// # Panics
/// When the kernel refuses it.
#[must_use]
pub fn memory_file(size: u64) -> File {
    if cfg!(miri) {
        // Under Miri no file is mapped, so any file will do.
        return File::open("/dev/null").expect("a file");
    }
    let file = rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC);
    let file = File::from(file.expect("a file in memory"));
    file.set_len(size).expect("room");
    file
}

/// The guest addresses of the pages that are marked in a dirty log.
///
/// # Panics
/// When the file cannot be read.
#[must_use]
pub fn marked_pages(log: &File) -> Vec<u64> {
    let mut bits = vec![0; log.metadata().expect("its size").len() as usize];
    log.read_exact_at(&mut bits, 0).expect("its bits");
    let pages = (0..8 * bits.len()).filter(|page| bits[page / 8] >> (page % 8) & 1 != 0);
    pages.map(|page| (page as u64) << 12).collect()
}

/// The attributes of root's regular file with this many bytes.
pub fn attributes_of_one_file(ino: INodeNo, size: u64) -> FileAttr {
    let never = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino,
        size,
        blocks: size / 512,
        atime: never,
        mtime: never,
        ctime: never,
        crtime: never,
        kind: FileType::RegularFile,
        perm: 0o600,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
