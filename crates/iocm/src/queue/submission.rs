//! I/O for the host's kernel.

use io_uring::{opcode, squeue, types};
use std::os::fd::RawFd;

/// One I/O operation for the host's kernel.
#[derive(Debug, Clone, Copy)]
pub enum Submission {
    /// Reads into pieces of memory.
    Read {
        /// The file.
        file: RawFd,
        /// The pieces.
        pieces: *const libc::iovec,
        /// The number of pieces, at most 1024.
        count: u32,
        /// The offset in the file, bytes.
        offset: u64,
    },
    /// Writes pieces of memory.
    Write {
        /// The file.
        file: RawFd,
        /// The pieces.
        pieces: *const libc::iovec,
        /// The number of pieces, at most 1024.
        count: u32,
        /// The offset in the file, bytes.
        offset: u64,
        /// Complete it only when the data is on stable storage (`RWF_DSYNC`).
        sync: bool,
    },
    /// Flushes the file to its disk (fdatasync(2)).
    Sync {
        /// The file.
        file: RawFd,
    },
    /// Deallocates or zeroes a range of the file (fallocate(2)).
    Allocate {
        /// The file.
        file: RawFd,
        /// The mode of fallocate(2).
        mode: i32,
        /// First byte.
        offset: u64,
        /// Bytes.
        size: u64,
    },
}

const fn write_flags(sync: bool) -> i32 {
    if sync { libc::RWF_DSYNC } else { 0 }
}

// SAFETY: the submitter keeps the memory valid, whichever thread executes the request.
unsafe impl Send for Submission {}

impl Submission {
    /// The submission queue entry for io_uring.
    pub(crate) fn entry(&self) -> squeue::Entry {
        match *self {
            Self::Read { file, pieces, count, offset } => {
                opcode::Readv::new(types::Fd(file), pieces, count).offset(offset).build()
            }
            Self::Write { file, pieces, count, offset, sync } => {
                let write = opcode::Writev::new(types::Fd(file), pieces, count).offset(offset);
                write.rw_flags(write_flags(sync)).build()
            }
            Self::Sync { file } => {
                opcode::Fsync::new(types::Fd(file)).flags(types::FsyncFlags::DATASYNC).build()
            }
            Self::Allocate { file, mode, offset, size } => {
                opcode::Fallocate::new(types::Fd(file), size).offset(offset).mode(mode).build()
            }
        }
    }

    /// Executes it synchronously. The result is that of io_uring: negative for an error.
    ///
    /// # Safety
    ///
    /// The file is open, and all pieces are mapped memory that nobody else in this process uses meanwhile.
    pub(crate) unsafe fn execute(&self) -> i32 {
        let at = |offset: u64| libc::off_t::try_from(offset).unwrap_or(libc::off_t::MAX);
        let result = match *self {
            // SAFETY: the caller keeps the pieces.
            Self::Read { file, pieces, count, offset } => unsafe {
                libc::preadv(file, pieces, count as i32, at(offset))
            },
            // SAFETY: as above.
            Self::Write { file, pieces, count, offset, sync } => unsafe {
                libc::pwritev2(file, pieces, count as i32, at(offset), write_flags(sync))
            },
            // SAFETY: the call takes no pointers.
            Self::Sync { file } => unsafe { libc::fdatasync(file) as isize },
            // SAFETY: as above.
            Self::Allocate { file, mode, offset, size } => unsafe {
                libc::fallocate(file, mode, at(offset), at(size)) as isize
            },
        };
        match i32::try_from(result) {
            Ok(result) if result >= 0 => result,
            _ => -std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
        }
    }
}
