//! Takes descriptors from a process that may exchange them meanwhile.
//!
//! pidfd_getfd(2) duplicates whatever file has the number by then, for instance one of the process's own FUSE file
//! system. close(2) of such a file waits until the file system's server has answered, in a killed process too. So a child
//! process takes the descriptors and passes on those that it has checked. Nobody but the child closes the others, and
//! whoever waits for the child can be killed.

use rustix::fs::{CWD, readlinkat_raw};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{
    Pid, PidfdGetfdFlags, Signal, WaitOptions, pidfd_getfd, set_parent_process_death_signal, waitpid,
};
use rustix::stdio::{dup2_stdin, dup2_stdout, stdin, stdout};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

/// A child process that takes descriptors. Dropping it waits for the child.
#[derive(Debug)]
pub(super) struct Taker {
    /// `None` while it is dropped.
    socket: Option<OwnedFd>,
    child: Pid,
}

impl Taker {
    /// Starts taking the descriptors with these numbers from a process (pidfd_open(2)), if the names of their files
    /// (readlink(2)) begin with `name`.
    pub(super) fn start(process: BorrowedFd<'_>, numbers: &[i32], name: &[u8]) -> io::Result<Self> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // SAFETY: until it exits, the child only makes system calls. It neither allocates memory nor takes a lock, which
        // another thread may have held.
        let child = unsafe { libc::fork() };
        if child < 0 {
            return Err(io::Error::last_os_error());
        }
        let Some(child) = Pid::from_raw(child) else {
            // As long as this end is open here too, the parent's end of it does not end a wait for room in the socket.
            drop(ours);
            let _ = pass_on(theirs.as_fd(), process, numbers, name);
            // SAFETY: it ends the child without the functions that the parent registered for its own exit.
            unsafe { libc::_exit(0) }
        };
        Ok(Self { socket: Some(ours), child })
    }

    /// The next descriptor; `None` if the number is another file's by now. It is the last one then, as after an error.
    pub(super) fn receive(&self) -> Result<Option<File>, Errno> {
        let socket = self.socket.as_ref().ok_or(Errno::PIPE)?;
        let mut bytes = [0_u8; size_of::<i32>()];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let received = loop {
            let into = &mut [IoSliceMut::new(&mut bytes)];
            match recvmsg(socket, into, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                received => break received?,
            }
        };
        if received.bytes < bytes.len() {
            return Err(Errno::PIPE);
        }
        // The kernel leaves out a descriptor for which this process has no number left.
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(Errno::MFILE);
        }
        let files = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        if let Some(file) = files.flatten().next() {
            return Ok(Some(File::from(file)));
        }
        match i32::from_ne_bytes(bytes) {
            0 => Ok(None),
            error => Err(Errno::from_raw_os_error(error)),
        }
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        // A child that waits until it can send ends.
        self.socket = None;
        let _ = retry_on_intr(|| waitpid(Some(self.child), WaitOptions::empty()));
    }
}

/// Sends a message for each descriptor, up to the first that is not as expected: the number of the error or 0, with the
/// descriptor.
fn pass_on(
    socket: BorrowedFd<'_>,
    process: BorrowedFd<'_>,
    numbers: &[i32],
    name: &[u8],
) -> Result<(), Errno> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    dup2_stdin(socket)?;
    dup2_stdout(process)?;
    // Of the parent's files this process keeps none open, however long it waits: who reads the parent's output waits for
    // its end.
    // SAFETY: the two descriptors that are used from here on are below the range.
    unsafe { libc::syscall(libc::SYS_close_range, 2, libc::c_uint::MAX, 0) };
    for &number in numbers {
        let taken = pidfd_getfd(stdout(), number, PidfdGetfdFlags::empty());
        let error = taken.as_ref().err().map_or(0, |error| error.raw_os_error());
        let file = taken.as_ref().ok().filter(|file| is_named(file, name)).map(|file| [file.as_fd()]);
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if let Some(file) = &file {
            control.push(SendAncillaryMessage::ScmRights(file));
        }
        sendmsg(stdin(), &[IoSlice::new(&error.to_ne_bytes())], &mut control, SendFlags::NOSIGNAL)?;
        if file.is_none() {
            break;
        }
    }
    Ok(())
}

/// Tests for the beginning of a file's name, without allocating memory.
fn is_named(file: &OwnedFd, name: &[u8]) -> bool {
    let mut path = [0_u8; 32];
    let mut left = &mut path[..];
    let written = write!(left, "/proc/self/fd/{}\0", file.as_raw_fd());
    let mut target = [0_u8; 256];
    let Some(path) = written.ok().and_then(|()| CStr::from_bytes_until_nul(&path).ok()) else {
        return false;
    };
    let length = readlinkat_raw(CWD, path, &mut target);
    length.is_ok_and(|length| target.get(..length).is_some_and(|target| target.starts_with(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{PTracer, PidfdFlags, getpid, pidfd_open, set_ptracer};
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn files_come_back_up_to_the_first_with_another_name() {
        // Otherwise Yama may forbid it to a child.
        let _ = set_ptracer(PTracer::Any);
        let folder = tempfile::tempdir().unwrap();
        let place = std::fs::canonicalize(folder.path()).unwrap();
        let [wanted, other] = ["wanted", "other"].map(|name| File::create(place.join(name)).unwrap());
        let process = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let numbers = [&wanted, &wanted, &other, &wanted].map(|file| file.as_raw_fd());
        let name = place.join("wanted");
        let taker = Taker::start(process.as_fd(), &numbers, name.as_os_str().as_encoded_bytes()).unwrap();
        for _ in 0..2 {
            let file = match taker.receive() {
                Err(Errno::PERM) => return println!("not tested: a child may not take descriptors here"),
                received => received.unwrap().unwrap(),
            };
            assert_eq!(file.metadata().unwrap().ino(), wanted.metadata().unwrap().ino());
        }
        assert!(taker.receive().unwrap().is_none());
        assert_eq!(taker.receive().err(), Some(Errno::PIPE));
        let child = taker.child;
        drop(taker);
        assert_eq!(waitpid(Some(child), WaitOptions::NOHANG).err(), Some(Errno::CHILD), "it was waited for");
    }

    #[test]
    fn a_descriptor_that_is_left_out_is_not_taken_for_another_one() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let process = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let mut taker = Taker::start(process.as_fd(), &[], b"").unwrap();
        taker.socket = Some(ours);
        // More than there is room for, in place of one that has no number left.
        let files = [theirs.as_fd(); 8];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        sendmsg(&theirs, &[IoSlice::new(&[0; size_of::<i32>()])], &mut control, SendFlags::NOSIGNAL).unwrap();
        assert_eq!(taker.receive().err(), Some(Errno::MFILE));
    }
}
