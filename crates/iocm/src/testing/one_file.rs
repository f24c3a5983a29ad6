//! Of a made-up file system that is one file: what stat(2) says of it.

use std::time::SystemTime;

use fuser::{FileAttr, FileType, INodeNo};

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
