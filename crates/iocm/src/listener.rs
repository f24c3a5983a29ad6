//! Listening sockets whose thread can be woken.
//!
//! shutdown(2) would also wake it, but it ends the socket for every process that has it, and a service manager may keep
//! it for the next daemon.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

/// A listening socket with a thread that accepts connections.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: UnixListener,
    wake: Waker,
}

/// A handle that wakes the thread of a [`Listener`].
#[derive(Debug, Clone)]
pub(crate) struct Waker(Arc<OwnedFd>);

impl Listener {
    pub(crate) fn new(socket: UnixListener) -> io::Result<Self> {
        // Between poll(2) and accept(2), the connection may go away, or another process may accept it.
        socket.set_nonblocking(true)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { socket, wake: Waker(Arc::new(wake)) })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.wake.clone()
    }

    /// Waits for a connection; `None` once it has been woken.
    pub(crate) fn accept(&self) -> io::Result<Option<UnixStream>> {
        loop {
            let mut both = [&self.socket as &dyn AsFd, &self.wake.0]
                .map(|file| PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN));
            match poll(&mut both, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if !both[1].revents().is_empty() {
                return Ok(None);
            }
            match self.socket.accept() {
                Ok((stream, _)) => return Ok(Some(stream)),
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Waker {
    /// Ends the wait, and all later waits.
    pub(crate) fn wake(&self) {
        // It fails only if the 64-bit counter is full.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_is_woken_and_the_socket_lives_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let socket = UnixListener::bind(&path).unwrap();
        let kept = socket.try_clone().unwrap();
        let listener = Listener::new(socket).unwrap();
        let waker = listener.waker();
        let thread = std::thread::spawn(move || {
            let first = listener.accept().unwrap().is_some();
            (first, listener.accept().unwrap().is_some())
        });
        let _first = UnixStream::connect(&path).unwrap();
        waker.wake();
        // The wake-up may come before the connection is accepted, which then stays in the socket's queue.
        let (first, second) = thread.join().unwrap();
        assert!(!second);
        let _next = UnixStream::connect(&path).unwrap();
        let next = Listener::new(kept).unwrap();
        assert!(next.accept().unwrap().is_some());
        assert!(first || next.accept().unwrap().is_some());
    }
}
