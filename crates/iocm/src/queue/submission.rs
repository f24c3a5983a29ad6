//! A request for the host's kernel, whichever way it is made.

use io_uring::{opcode, squeue, types};
use std::os::fd::RawFd;

/// A request for the host's kernel.
#[derive(Debug, Clone, Copy)]
pub enum Submission {
    /// Reads into pieces of memory.
    Read {
        /// The file.
        file: RawFd,
        /// The pieces.
        pieces: *const libc::iovec,
        /// How many they are, 1024 at most.
        count: u32,
        /// Where it begins in the file, bytes.
        offset: u64,
    },
    /// Writes pieces of memory.
    Write {
        /// The file.
        file: RawFd,
        /// The pieces.
        pieces: *const libc::iovec,
        /// How many they are, 1024 at most.
        count: u32,
        /// Where it begins in the file, bytes.
        offset: u64,
    },
    /// Brings the file's data to its disk (`fdatasync`).
    Sync {
        /// The file.
        file: RawFd,
    },
    /// Gives a part of the file up, or makes it zero (`fallocate`).
    Allocate {
        /// The file.
        file: RawFd,
        /// What is done, as `fallocate` has it.
        mode: i32,
        /// First byte.
        offset: u64,
        /// Bytes.
        size: u64,
    },
}

// SAFETY: who submits it keeps what it points to, whichever thread makes the request.
unsafe impl Send for Submission {}

impl Submission {
    /// As io_uring takes it.
    pub(crate) fn entry(&self) -> squeue::Entry {
        match *self {
            Self::Read { file, pieces, count, offset } => {
                opcode::Readv::new(types::Fd(file), pieces, count).offset(offset).build()
            }
            Self::Write { file, pieces, count, offset } => {
                opcode::Writev::new(types::Fd(file), pieces, count).offset(offset).build()
            }
            Self::Sync { file } => {
                opcode::Fsync::new(types::Fd(file)).flags(types::FsyncFlags::DATASYNC).build()
            }
            Self::Allocate { file, mode, offset, size } => {
                opcode::Fallocate::new(types::Fd(file), size).offset(offset).mode(mode).build()
            }
        }
    }

    /// Makes it here, and waits for it. As io_uring's results are: negative for an error.
    ///
    /// # Safety
    /// The file is open, and all pieces are mapped memory that nobody else in this process uses meanwhile.
    pub(crate) unsafe fn execute(&self) -> i32 {
        let at = |offset: u64| libc::off_t::try_from(offset).unwrap_or(libc::off_t::MAX);
        let result = match *self {
            // SAFETY: the caller keeps the pieces.
            Self::Read { file, pieces, count, offset } => unsafe {
                libc::preadv(file, pieces, count as i32, at(offset))
            },
            // SAFETY: as above.
            Self::Write { file, pieces, count, offset } => unsafe {
                libc::pwritev(file, pieces, count as i32, at(offset))
            },
            // SAFETY: the call takes no memory.
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
