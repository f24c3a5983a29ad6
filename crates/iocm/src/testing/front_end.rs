//! A front-end.

use super::driver::{Driver, USER};
use crate::protocol::{Header, InflightDescription, ProtocolFeatures, VirtioFeatures};
use crate::ring::RingLayout;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// A front-end's connection, with the eventfds for kicks and calls.
#[derive(Debug)]
pub struct FrontEnd {
    socket: UnixStream,
    /// The kick eventfd.
    pub kick: OwnedFd,
    /// The call eventfd.
    pub call: OwnedFd,
}

/// `NEED_REPLY` and version 1.
const WANTS_REPLY: u32 = 1 << 3 | 1;

fn file() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

impl FrontEnd {
    /// A front-end that has negotiated nothing.
    ///
    /// # Errors
    /// When the kernel refuses an eventfd.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        Ok(Self { socket, kick: file()?, call: file()? })
    }

    /// Sends a request without waiting for an answer.
    ///
    /// # Errors
    /// When the back-end is gone.
    pub fn send(
        &mut self,
        code: u32,
        flags: u32,
        payload: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let mut bytes: Vec<u8> =
            [code, flags, payload.len() as u32].iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend(payload);
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(files));
        }
        sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends a request with a descriptor that this process has closed by the time the back-end handles it.
    ///
    /// # Errors
    /// When the back-end is gone.
    pub fn send_closed(&mut self, code: u32, payload: &[u8], file: OwnedFd) -> io::Result<()> {
        let header: Vec<u8> =
            [code, 1, payload.len() as u32].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        let files = [file.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&files));
        sendmsg(&self.socket, &[IoSlice::new(&header)], &mut control, SendFlags::NOSIGNAL)?;
        drop(file);
        // Until now the back-end has waited for the rest of the message.
        self.socket.write_all(payload)
    }

    /// Receives an answer: its payload and the descriptor that came with it.
    ///
    /// # Errors
    /// When the back-end is gone.
    pub fn receive(&mut self) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        let mut head = [0; Header::SIZE];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let count = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut head)], &mut control, flags)?.bytes;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        self.socket.read_exact(&mut head[count..])?;
        let mut payload = vec![0; Header::parse(head).size as usize];
        self.socket.read_exact(&mut payload)?;
        Ok((payload, file))
    }

    /// Sends a request that is always answered with a number.
    ///
    /// # Errors
    /// When the back-end is gone.
    pub fn ask(&mut self, code: u32) -> io::Result<u64> {
        self.send(code, 1, &[], &[])?;
        let (payload, _) = self.receive()?;
        Ok(payload.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)))
    }

    /// Sends a request, and asks for an acknowledgement. Returns whether it succeeded.
    ///
    /// # Errors
    /// When the back-end is gone.
    pub fn tell(&mut self, code: u32, payload: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<bool> {
        self.send(code, WANTS_REPLY, payload, files)?;
        Ok(self.receive()?.0 == 0_u64.to_ne_bytes())
    }

    /// Negotiates features and shares the guest's memory.
    ///
    /// # Errors
    /// When the back-end is gone, or refuses.
    pub fn negotiate(&mut self, driver: &Driver, more: u64) -> io::Result<()> {
        let offered = self.ask(1)?;
        let mut wanted = VirtioFeatures::VERSION_1 | VirtioFeatures::PROTOCOL_FEATURES | more;
        for (is_wanted, bit) in [
            (driver.features.packed, VirtioFeatures::PACKED),
            (driver.features.event_index, VirtioFeatures::EVENT_INDEX),
            (driver.features.indirect, VirtioFeatures::INDIRECT),
        ] {
            wanted |= if is_wanted { bit } else { 0 };
        }
        let protocol = self.ask(15)? & ProtocolFeatures::OFFERED;
        self.send(16, 1, &protocol.to_ne_bytes(), &[])?;
        let done = [
            self.tell(2, &(wanted & offered).to_ne_bytes(), &[])?,
            self.tell(3, &[], &[])?,
            self.share(driver)?,
        ];
        if done == [true; 3] { Ok(()) } else { Err(io::Error::other(format!("refused: {done:?}"))) }
    }

    /// Shares the guest's memory. `false` if the back-end refuses.
    ///
    /// # Errors
    /// When the back-end is gone.
    pub fn share(&mut self, driver: &Driver) -> io::Result<bool> {
        let mut payload = [1_u32, 0].map(u32::to_ne_bytes).concat();
        let size = rustix::fs::fstat(&driver.file)?.st_size as u64;
        payload.extend([0, size, USER, 0].iter().flat_map(|word: &u64| word.to_ne_bytes()));
        self.tell(5, &payload, &[driver.file.as_fd()])
    }

    /// Starts a queue, and enables it. `false` if the back-end refuses.
    ///
    /// # Errors
    /// When the back-end is gone.
    pub fn start(&mut self, index: u32, layout: &RingLayout, size: u32, base: u32) -> io::Result<bool> {
        let enabled = [index, 1].map(u32::to_ne_bytes).concat();
        Ok(self.start_only(index, layout, size, base)? && self.tell(18, &enabled, &[])?)
    }

    /// Starts a queue without enabling it. `false` if the back-end refuses.
    ///
    /// # Errors
    /// When the back-end is gone.
    pub fn start_only(&mut self, index: u32, layout: &RingLayout, size: u32, base: u32) -> io::Result<bool> {
        let state = |value: u32| [index, value].map(u32::to_ne_bytes).concat();
        let mut addresses = [index, u32::from(layout.logged.is_some())].map(u32::to_ne_bytes).concat();
        let parts = [layout.descriptors, layout.device, layout.driver, layout.logged.unwrap_or(0)];
        addresses.extend(parts.iter().flat_map(|word| word.to_ne_bytes()));
        let (kick, call) = (self.kick.try_clone()?, self.call.try_clone()?);
        let number = u64::from(index).to_ne_bytes();
        Ok(self.tell(8, &state(size), &[])?
            && self.tell(10, &state(base), &[])?
            && self.tell(9, &addresses, &[])?
            && self.tell(13, &number, &[call.as_fd()])?
            && self.tell(12, &number, &[kick.as_fd()])?)
    }

    /// Stops a queue. Returns the index at which it continues.
    ///
    /// # Errors
    /// When the back-end is gone.
    pub fn stop(&mut self, index: u32) -> io::Result<u32> {
        self.send(11, 1, &[index, 0].map(u32::to_ne_bytes).concat(), &[])?;
        let (payload, _) = self.receive()?;
        Ok(payload.last_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes)))
    }

    /// Asks for inflight memory. Returns its description and its file.
    ///
    /// # Errors
    /// When the back-end is gone, or gives no file.
    pub fn inflight(&mut self, queues: u16, queue_size: u16) -> io::Result<(Vec<u8>, OwnedFd)> {
        let wanted = InflightDescription { size: 0, offset: 0, queues, queue_size };
        self.send(31, 1, &wanted.bytes(), &[])?;
        let (payload, file) = self.receive()?;
        Ok((payload, file.ok_or(io::ErrorKind::InvalidData)?))
    }

    /// Replaces the kick eventfd for the rings that are started from now on. Returns the old one, which earlier rings
    /// keep. Rings at different workers need one each, because the first worker that wakes takes the kick.
    ///
    /// # Errors
    /// When the kernel refuses an eventfd.
    pub fn another_kick(&mut self) -> io::Result<OwnedFd> {
        Ok(std::mem::replace(&mut self.kick, file()?))
    }

    /// Replaces the call eventfd for the rings that are started from now on. Returns the old one, which earlier rings keep.
    ///
    /// # Errors
    /// When the kernel refuses an eventfd.
    pub fn another_call(&mut self) -> io::Result<OwnedFd> {
        Ok(std::mem::replace(&mut self.call, file()?))
    }

    /// Kicks.
    ///
    /// # Errors
    /// When the eventfd cannot be written.
    pub fn kick(&self) -> io::Result<()> {
        rustix::io::write(&self.kick, &1_u64.to_ne_bytes())?;
        Ok(())
    }
}
