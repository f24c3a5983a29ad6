//! One non-blocking connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, socket_with, sockopt};

/// The size of a read, and of the sent bytes that may stay at the start of `outgoing`.
pub(super) const BUFFER: usize = 64 * 1024;

/// A TCP connection with its unsent bytes and the incomplete part of what was received.
pub(super) struct Connection {
    stream: TcpStream,
    outgoing: Vec<u8>,
    /// The number of bytes at the start of `outgoing` that were sent.
    sent: usize,
    pub(super) incoming: Vec<u8>,
    /// The reactor watches for the connection to become writable.
    pub(super) watched: bool,
}

impl Connection {
    /// Starts to connect; the connection is open when it is writable and has no [error](Self::error).
    pub(super) fn begin(target: SocketAddr, source: Option<IpAddr>) -> io::Result<Self> {
        let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket: OwnedFd = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        // Close with a reset instead of TIME_WAIT, which would occupy up to 100,000 ports for a minute.
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        if let Some(source) = source {
            bind(&socket, &SocketAddr::new(source, 0))?;
        }
        match connect(&socket, &target) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let stream = TcpStream::from(socket);
        Ok(Self { stream, outgoing: Vec::new(), sent: 0, incoming: Vec::new(), watched: true })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The result of connecting.
    pub(super) fn error(&self) -> io::Result<()> {
        match self.stream.take_error()? {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// The number of unsent bytes.
    pub(super) fn waiting(&self) -> usize {
        self.outgoing.len() - self.sent
    }

    /// Sends as much as the socket takes, and keeps the rest for [`Self::flush`].
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        if self.waiting() == 0 {
            rest = &bytes[write_some(&mut self.stream, bytes)?..];
        }
        self.outgoing.extend_from_slice(rest);
        Ok(())
    }

    /// Sends more of the kept bytes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.sent += write_some(&mut self.stream, &self.outgoing[self.sent..])?;
        if self.waiting() == 0 {
            // Free the buffer: those of 100,000 connections would take much memory.
            self.outgoing = Vec::new();
            self.sent = 0;
        } else if self.sent > BUFFER {
            self.outgoing.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    /// Appends received bytes to `incoming`; `false` at the end of the stream.
    pub(super) fn receive(&mut self, scratch: &mut [u8]) -> io::Result<bool> {
        match self.stream.read(scratch) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.incoming.extend_from_slice(&scratch[..count]);
                Ok(true)
            }
            Err(error) if passing(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Removes the first bytes of `incoming`.
    pub(super) fn consume(&mut self, count: usize) {
        if count >= self.incoming.len() {
            self.incoming = Vec::new();
        } else {
            self.incoming.drain(..count);
        }
    }
}

fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match stream.write(&bytes[done..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
