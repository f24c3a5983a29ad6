//! The ioctls of taps.

use crate::device::net::error::NetError;
use crate::device::net::header::SIZE;
use crate::device::net::offload::Offloads;
use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
use rustix::io::fcntl_dupfd_cloexec;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A tap to be opened.
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) pairs: u16,
    pub(super) mtu: u16,
}

/// The queues of a tap, and its name.
pub(super) struct OpenTap {
    pub(super) files: Vec<OwnedFd>,
    pub(super) name: String,
}

/// `struct ifreq` (netdevice(7)) with flags or a number.
#[repr(C)]
#[derive(Clone, Copy)]
struct Ask {
    name: [u8; libc::IFNAMSIZ],
    /// Flags in the first two bytes, or a number in the first four.
    value: [u8; 24],
}

impl Ask {
    fn new(name: &str) -> Self {
        let mut bytes = [0; libc::IFNAMSIZ];
        let size = name.len().min(bytes.len() - 1);
        bytes[..size].copy_from_slice(&name.as_bytes()[..size]);
        Self { name: bytes, value: [0; 24] }
    }

    fn with_flags(mut self, flags: i32) -> Self {
        // Flags of an interface are 16 bits.
        self.value[..2].copy_from_slice(&(flags as u16).to_ne_bytes());
        self
    }

    fn flags(&self) -> i32 {
        i32::from(u16::from_ne_bytes([self.value[0], self.value[1]]))
    }

    fn name(&self) -> String {
        let end = self.name.iter().position(|byte| *byte == 0).unwrap_or(self.name.len());
        String::from_utf8_lossy(&self.name[..end]).into_owned()
    }

    fn ask(&mut self, file: BorrowedFd<'_>, what: libc::Ioctl) -> io::Result<()> {
        // SAFETY: all requests used here take a structure of this size and layout.
        done(unsafe { libc::ioctl(file.as_raw_fd(), what, std::ptr::from_mut(self)) })
    }
}

fn done(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

const KIND: i32 = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;

impl Interface {
    fn cannot(&self, what: &'static str) -> impl Fn(io::Error) -> NetError {
        let name = self.name.clone();
        move |source| NetError::Tap { name: name.clone(), what, source }
    }

    /// Opens it in a network namespace.
    pub(super) fn open_in(self, namespace: &str) -> Result<OpenTap, NetError> {
        use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
        let path = match namespace.contains('/') {
            true => namespace.to_owned(),
            false => format!("/run/netns/{namespace}"),
        };
        let cannot = |source: io::Error| NetError::Namespace { path: path.clone(), source };
        // O_NONBLOCK, because opening a FIFO would block.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = open(&path, flags, Mode::empty()).map_err(|error| cannot(error.into()))?;
        // A thread cannot easily leave a namespace again, so use one that ends.
        let thread = std::thread::Builder::new().name("namespace".to_owned()).spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok::<_, rustix::io::Errno>(self.open())
        });
        let ended = thread.map_err(cannot)?.join();
        let ended = ended.map_err(|_| cannot(io::Error::other("its thread failed")))?;
        ended.map_err(|error| cannot(error.into()))?
    }

    /// Opens it in the namespace of this thread.
    pub(super) fn open(&self) -> Result<OpenTap, NetError> {
        if self.name.is_empty() || self.name.len() >= libc::IFNAMSIZ {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "a name has 1 to 15 bytes");
            return Err(self.cannot("cannot be")(source));
        }
        let multiple = if self.pairs > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
        let (first, asked, is_new) = match self.queue(KIND | multiple | libc::IFF_TUN_EXCL) {
            Ok((first, asked)) => (first, asked, true),
            Err(NetError::Tap { source, .. }) if source.raw_os_error() == Some(libc::EBUSY) => {
                let (first, asked) = self.queue(KIND | multiple).or_else(|error| match self.pairs {
                    // An existing tap may have been created with several queues.
                    1 => self.queue(KIND | libc::IFF_MULTI_QUEUE).map_err(|_| error),
                    _ => Err(error),
                })?;
                (first, asked, false)
            }
            Err(error) => return Err(error),
        };
        let mut files = vec![first];
        let name = asked.name();
        let another = Self { name: name.clone(), ..*self };
        for _ in 1..self.pairs {
            files.push(another.queue(KIND | multiple)?.0);
        }
        if is_new {
            another.set_up()?;
        }
        Ok(OpenTap { files, name })
    }

    fn queue(&self, flags: i32) -> Result<(OwnedFd, Ask), NetError> {
        let flags_of_file = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = open("/dev/net/tun", flags_of_file, Mode::empty());
        let file = file.map_err(|error| self.cannot("cannot be made without /dev/net/tun")(error.into()))?;
        let mut asked = Ask::new(&self.name).with_flags(flags);
        asked.ask(file.as_fd(), libc::TUNSETIFF).map_err(self.cannot("cannot be opened or made"))?;
        set_header(file.as_fd()).map_err(self.cannot("has no headers of virtio"))?;
        Ok((file, asked))
    }

    /// A socket in the namespace, for interface ioctls.
    fn socket(&self) -> Result<OwnedFd, NetError> {
        use rustix::net::{AddressFamily, SocketType, socket};
        socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(|error| match error {
            rustix::io::Errno::AFNOSUPPORT => NetError::Family { name: self.name.clone() },
            error => self.cannot("cannot be set up without a socket")(error.into()),
        })
    }

    /// Sets its MTU, and brings it up.
    fn set_up(&self) -> Result<(), NetError> {
        let socket = self.socket()?;
        if self.mtu > 0 {
            let mut asked = Ask::new(&self.name);
            asked.value[..4].copy_from_slice(&i32::from(self.mtu).to_ne_bytes());
            let set = asked.ask(socket.as_fd(), libc::SIOCSIFMTU as libc::Ioctl);
            set.map_err(self.cannot("cannot be given this MTU"))?;
        }
        let mut asked = Ask::new(&self.name);
        asked.ask(socket.as_fd(), libc::SIOCGIFFLAGS as libc::Ioctl).map_err(self.cannot("is gone"))?;
        let mut asked = Ask::new(&self.name).with_flags(asked.flags() | libc::IFF_UP);
        asked.ask(socket.as_fd(), libc::SIOCSIFFLAGS as libc::Ioctl).map_err(self.cannot("cannot be set up"))
    }
}

/// Takes file descriptors that this process inherited.
pub(super) fn given(numbers: &[i32], pairs: u16) -> Result<OpenTap, NetError> {
    if numbers.len() != usize::from(pairs) {
        return Err(NetError::Files { files: numbers.len(), pairs });
    }
    let mut name = String::new();
    let mut files = Vec::new();
    for number in numbers {
        let wrong = |source| NetError::NoTap { number: *number, source };
        if *number < 0 {
            return Err(wrong(io::ErrorKind::InvalidInput.into()));
        }
        // SAFETY: the number is only used to duplicate the descriptor, which fails if there is none.
        let borrowed = unsafe { BorrowedFd::borrow_raw(*number) };
        let file = fcntl_dupfd_cloexec(borrowed, 0).map_err(|error| wrong(error.into()))?;
        let mut asked = Ask::new("");
        asked.ask(file.as_fd(), libc::TUNGETIFF).map_err(wrong)?;
        if asked.flags() & KIND != KIND {
            let why = "it is not a tap with IFF_NO_PI and IFF_VNET_HDR";
            return Err(wrong(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        set_header(file.as_fd()).map_err(wrong)?;
        fcntl_setfl(&file, OFlags::NONBLOCK).map_err(|error| wrong(error.into()))?;
        name = asked.name();
        files.push(file);
    }
    Ok(OpenTap { files, name })
}

fn set_header(file: BorrowedFd<'_>) -> io::Result<()> {
    let size = SIZE as libc::c_int;
    // SAFETY: the request takes a number that is read.
    done(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const size) })
}

pub(super) fn set_offloads(file: BorrowedFd<'_>, offloads: Offloads) -> io::Result<()> {
    const UDP4: libc::c_uint = 0x20;
    const UDP6: libc::c_uint = 0x40;
    // Linux takes both or none.
    let both = offloads.datagrams4 && offloads.datagrams6;
    let bits: libc::c_uint = [
        (offloads.checksum, 0x01),
        (offloads.tcp4, 0x02),
        (offloads.tcp6, 0x04),
        (offloads.ecn, 0x08),
        (offloads.fragments, 0x10),
        (both, UDP4 | UDP6),
    ]
    .iter()
    .filter(|(is_set, _)| *is_set)
    .map(|(_, bit)| bit)
    .sum();
    // Without checksums the kernel refuses all others.
    let bits = if offloads.checksum { bits } else { 0 };
    // SAFETY: the request takes a number by value.
    done(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(bits)) })
}

pub(super) fn attach(file: BorrowedFd<'_>, attached: bool) -> io::Result<()> {
    let flags = if attached { libc::IFF_ATTACH_QUEUE } else { libc::IFF_DETACH_QUEUE };
    Ask::new("").with_flags(flags).ask(file, libc::TUNSETQUEUE)
}
