//! A message channel to a front-end: whole messages with their file descriptors.

use super::request::{Header, Request, RequestError};
use super::{LARGEST_PAYLOAD, MAX_FILES};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The reason why a descriptor was left out (net/core/scm.c, `scm_detach_fds`).
const NOT_RECEIVED: &str = "a descriptor that the front-end sent was not received: none is left (raise the limit of open \
                            files: LimitNOFILE= of the unit, `ulimit -n`), or a security module forbids it";

/// A message channel to a front-end.
#[derive(Debug)]
pub struct Connection {
    socket: UnixStream,
}

/// The end of a connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The front-end disconnected.
    #[error("the front-end has closed the connection")]
    Closed,
    /// The socket failed.
    #[error("the front-end's socket failed: {0}")]
    Socket(#[from] io::Error),
    /// The bytes are not a message of this protocol, and the next message cannot be found.
    #[error("malformed message: {0}")]
    Malformed(&'static str),
    /// A request that needs a reply failed, and the protocol has no reply that says so.
    #[error("cannot reply to request {0}, which failed")]
    NoReply(u32),
    /// The device cannot be used now. A front-end that connects again tries again.
    #[error("the connection is closed: {0}")]
    Unusable(String),
    /// The front-end has more queues than the device.
    #[error(
        "the front-end asks for queue {0}, and the device has {1}: give both the same number of `queues` (QEMU: queues=)"
    )]
    NoQueue(u32, usize),
}

impl Connection {
    /// A channel over a socket.
    #[must_use]
    pub const fn new(socket: UnixStream) -> Self {
        Self { socket }
    }

    /// Waits for the next request.
    ///
    /// # Errors
    ///
    /// [`ConnectionError`], after which no more can be received. A request that cannot be parsed is not such an error,
    /// because the next one can still be found.
    pub fn receive(&mut self) -> Result<(Header, Result<Request, RequestError>), ConnectionError> {
        let mut bytes = [0; Header::SIZE];
        let (count, files) = self.receive_some(&mut bytes)?;
        if count == 0 {
            return Err(ConnectionError::Closed);
        }
        self.socket.read_exact(&mut bytes[count..]).map_err(ended)?;
        let header = Header::parse(bytes);
        if !header.is_request() {
            return Err(ConnectionError::Malformed("its flags are not those of a version 1 request"));
        }
        let size = header.size as usize;
        if size > LARGEST_PAYLOAD {
            return Err(ConnectionError::Malformed("its payload is too large"));
        }
        let mut payload = vec![0; size];
        self.socket.read_exact(&mut payload).map_err(ended)?;
        Ok((header, Request::parse(header.code, &payload, files)))
    }

    fn receive_some(&self, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), ConnectionError> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = loop {
            match recvmsg(&self.socket, &mut [IoSliceMut::new(bytes)], &mut control, flags) {
                Err(rustix::io::Errno::INTR) => {}
                received => break received.map_err(io::Error::from)?,
            }
        };
        let files = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let files: Vec<OwnedFd> = files.flatten().collect();
        if received.flags.contains(ReturnFlags::CTRUNC) {
            // The kernel has left some out. Few front-ends wait for a reply that says so, and the ring would stay dead.
            return Err(match files.len() {
                MAX_FILES.. => ConnectionError::Malformed("it has more descriptors than the protocol allows"),
                _ => ConnectionError::Unusable(NOT_RECEIVED.to_owned()),
            });
        }
        Ok((received.bytes, files))
    }

    /// Replies to a request.
    ///
    /// # Errors
    /// [`ConnectionError::Socket`].
    pub fn reply(
        &mut self,
        code: u32,
        payload: &[u8],
        file: Option<BorrowedFd<'_>>,
    ) -> Result<(), ConnectionError> {
        self.send(code, true, payload, file, SendFlags::NOSIGNAL)
    }

    /// Sends a request of the back-end on the channel that the front-end gave for them. It never blocks: a full socket
    /// is an error.
    ///
    /// # Errors
    ///
    /// [`ConnectionError::Socket`], after which nothing more may be sent, because a part of this message may have been.
    pub fn request(&mut self, code: u32, payload: &[u8]) -> Result<(), ConnectionError> {
        // The front-end may set or clear O_NONBLOCK at any time.
        self.send(code, false, payload, None, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    fn send(
        &mut self,
        code: u32,
        is_reply: bool,
        payload: &[u8],
        file: Option<BorrowedFd<'_>>,
        flags: SendFlags,
    ) -> Result<(), ConnectionError> {
        let mut bytes = Header::bytes(code, is_reply, payload.len());
        bytes.extend(payload);
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&files));
        }
        let mut sent = 0;
        while sent < bytes.len() {
            // The descriptor goes with the first byte.
            let result = match sent {
                0 => sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, flags),
                _ => rustix::net::send(&self.socket, &bytes[sent..], flags),
            };
            match result {
                Ok(count) => sent += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(())
    }
}

fn ended(error: io::Error) -> ConnectionError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ConnectionError::Closed,
        _ => ConnectionError::Socket(error),
    }
}
