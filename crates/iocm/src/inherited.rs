//! Sockets that the process inherited.

mod inheritance;

use rustix::fs::FileType;
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

pub(crate) use inheritance::ListenerFile;
pub use inheritance::{BadInheritance, Inheritance, ListenerStore, stored_name};

/// A vhost-user socket that a management program made.
#[derive(Debug)]
pub enum InheritedSocket {
    /// It waits for front-ends.
    Listening(UnixListener),
    /// A front-end has the other end.
    Connected(UnixStream),
}

/// A descriptor that is not a vhost-user socket.
#[derive(Debug, thiserror::Error)]
#[error("File descriptor {number} is not a UNIX stream socket that listens or is connected")]
pub struct NoSocket {
    number: i32,
    #[source]
    source: io::Error,
}

/// The last of the standard descriptors: input, output, errors.
const LAST_STANDARD: i32 = 2;

impl InheritedSocket {
    /// Duplicates a descriptor. Call it before the process opens anything: that could get the number of a descriptor
    /// that was not inherited.
    ///
    /// # Errors
    /// [`NoSocket`].
    pub fn of(number: i32) -> Result<Self, NoSocket> {
        copy(number).and_then(Self::try_from).map_err(|source| NoSocket { number, source })
    }
}

impl TryFrom<OwnedFd> for InheritedSocket {
    type Error = io::Error;

    fn try_from(file: OwnedFd) -> io::Result<Self> {
        let wrong = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::Socket {
            return Err(wrong("it is not a socket"));
        }
        if socket_domain(&file)? != AddressFamily::UNIX || socket_type(&file)? != SocketType::STREAM {
            return Err(wrong("it is a socket of another kind"));
        }
        if socket_acceptconn(&file)? {
            return Ok(Self::Listening(file.into()));
        }
        let stream = UnixStream::from(file);
        stream.peer_addr().map_err(|_| wrong("it is a socket that neither listens nor is connected"))?;
        // Management programs may have it non-blocking for their own use.
        stream.set_nonblocking(false)?;
        Ok(Self::Connected(stream))
    }
}

fn copy(number: i32) -> io::Result<OwnedFd> {
    if number <= LAST_STANDARD {
        let why = "the numbers 0 to 2 are those of the standard streams";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    // SAFETY: the number is only used in system calls, which fail if it names no descriptor.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    Ok(fcntl_dupfd_cloexec(borrowed, 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixDatagram;

    fn refused(file: &impl std::os::fd::AsRawFd) -> String {
        let error = InheritedSocket::of(file.as_raw_fd()).unwrap_err();
        format!("{error}: {}", std::error::Error::source(&error).unwrap())
    }

    #[test]
    fn sockets_that_listen_and_that_are_connected_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let taken = InheritedSocket::of(listener.as_raw_fd()).unwrap();
        assert!(matches!(taken, InheritedSocket::Listening(_)));
        let (one, _other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        let InheritedSocket::Connected(taken) = InheritedSocket::of(one.as_raw_fd()).unwrap() else {
            panic!("it is connected");
        };
        let flags = rustix::fs::fcntl_getfl(&taken).unwrap();
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "a session waits for its front-end");
    }

    #[test]
    fn what_is_no_vhost_user_socket_is_refused_by_its_number() {
        for number in [i32::MIN, -1, 0, 1, 2] {
            let error = InheritedSocket::of(number).unwrap_err();
            assert!(error.to_string().contains(&format!("descriptor {number} ")), "{error}");
        }
        assert!(InheritedSocket::of(i32::MAX).is_err() && InheritedSocket::of(900).is_err());
        assert!(refused(&File::open("/dev/null").unwrap()).contains("not a socket"));
        let (pipe, _writer) = std::io::pipe().unwrap();
        assert!(refused(&pipe).contains("not a socket"));
        assert!(refused(&UnixDatagram::unbound().unwrap()).contains("another kind"));
        assert!(refused(&TcpListener::bind("127.0.0.1:0").unwrap()).contains("another kind"));
        let alone = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        assert!(refused(&alone).contains("neither"));
        let directory = tempfile::tempdir().unwrap();
        let path = rustix::fs::open(
            directory.path(),
            rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        );
        assert!(refused(&path.unwrap()).contains("not a socket"));
    }
}
