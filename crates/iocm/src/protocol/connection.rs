//! A connection to a front-end: whole messages with their files.

use super::request::{Header, Request, RequestError};
use super::{LARGEST_PAYLOAD, MOST_FILES};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// A connection to a front-end.
#[derive(Debug)]
pub struct Connection {
    socket: UnixStream,
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The front-end is gone.
    #[error("the front-end has closed the connection")]
    Closed,
    /// The socket failed.
    #[error("the front-end's socket failed: {0}")]
    Socket(#[from] io::Error),
    /// What came is no message of this protocol, so that the next one cannot be found.
    #[error("what came is no message: {0}")]
    Garbled(&'static str),
}

impl Connection {
    /// A connection over a socket.
    #[must_use]
    pub const fn new(socket: UnixStream) -> Self {
        Self { socket }
    }

    /// The next request, with its header. Waits for it.
    ///
    /// # Errors
    /// [`ConnectionError`], after which there is no other. A request that cannot be read is no such error, for its end is
    /// known.
    pub fn receive(&mut self) -> Result<(Header, Result<Request, RequestError>), ConnectionError> {
        let mut bytes = [0; Header::SIZE];
        let (count, files) = self.receive_some(&mut bytes)?;
        if count == 0 {
            return Err(ConnectionError::Closed);
        }
        self.socket.read_exact(&mut bytes[count..]).map_err(ended)?;
        let header = Header::parse(bytes);
        if !header.is_request() {
            return Err(ConnectionError::Garbled("its flags are none of a request of version 1"));
        }
        let size = header.size as usize;
        if size > LARGEST_PAYLOAD {
            return Err(ConnectionError::Garbled("its payload is larger than any"));
        }
        let mut payload = vec![0; size];
        self.socket.read_exact(&mut payload).map_err(ended)?;
        Ok((header, Request::parse(header.code, &payload, files)))
    }

    fn receive_some(&self, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), ConnectionError> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
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
        Ok((received.bytes, files.flatten().collect()))
    }

    /// Answers a request.
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

    /// Sends a request of the back-end's own, on the connection that the front-end gave for them. It waits for nobody: one
    /// that finds no room is an error.
    ///
    /// # Errors
    /// [`ConnectionError::Socket`], after which nothing more is to be sent: a part of it may have been.
    pub fn request(&mut self, code: u32, payload: &[u8]) -> Result<(), ConnectionError> {
        // Whether the socket blocks is the front-end's word.
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
            // The file goes with the first byte.
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
