//! Files of tests: memory that a front-end shares, and what stat(2) says of a file system that is one file.

use fuser::{FileAttr, FileType, INodeNo};
use std::fs::File;
use std::time::SystemTime;

/// A file in memory of so many bytes, which can be made shorter.
///
/// # Panics
/// When the kernel gives none.
#[must_use]
pub fn memory_file(size: u64) -> File {
    if cfg!(miri) {
        // What is mapped there is no file's.
        return File::open("/dev/null").expect("a file");
    }
    let file = rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC);
    let file = File::from(file.expect("a file in memory"));
    file.set_len(size).expect("room");
    file
}

/// A regular file of root's with this many bytes.
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
