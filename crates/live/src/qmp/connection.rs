//! A socket that never waits beyond its deadline, and the messages from it.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::StreamDeserializer;
use serde_json::de::IoRead;
use serde_json::value::RawValue;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The most bytes that are read from one connection. Statistics of a vCPU are 4 KiB.
const MOST_BYTES: u64 = 64 << 20;

/// A message. QEMU's answers stay text until specific fields are parsed: as JSON values they would take up to 90
/// times the memory, and QEMU may be under the control of the guest.
#[derive(Deserialize)]
pub(super) struct Message {
    #[serde(rename = "QMP")]
    pub(super) greeting: Option<Box<RawValue>>,
    pub(super) event: Option<IgnoredAny>,
    pub(super) id: Option<Box<RawValue>>,
    /// `null` is a valid answer.
    #[serde(rename = "return", default, deserialize_with = "present")]
    pub(super) answer: Option<Box<RawValue>>,
    pub(super) error: Option<Box<RawValue>>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// The messages of the other side.
pub(super) struct Connection {
    socket: UnixStream,
    deadline: Instant,
    values: StreamDeserializer<'static, IoRead<BufReader<Limited>>, Message>,
}

impl Connection {
    /// Connects without waiting: `WouldBlock` if the listen queue is full.
    pub(super) fn open(path: &Path, deadline: Instant) -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        match SocketAddrUnix::new(path) {
            Ok(address) => connect(&socket, &address)?,
            // A socket address has room for 107 bytes. The path through a descriptor of the folder is always shorter.
            Err(rustix::io::Errno::NAMETOOLONG) => {
                let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
                    return Err(io::ErrorKind::InvalidInput.into());
                };
                // O_PATH does not open the file: the path is untrusted, and opening a FIFO would block.
                let flags = libc::O_PATH | libc::O_DIRECTORY;
                let folder = File::options().read(true).custom_flags(flags).open(folder)?;
                let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
                connect(&socket, &SocketAddrUnix::new(short)?)?;
            }
            Err(other) => return Err(other.into()),
        }
        let socket = UnixStream::from(socket);
        socket.set_nonblocking(false)?;
        let reader = Limited { socket: socket.try_clone()?, deadline, left: MOST_BYTES };
        let values = serde_json::Deserializer::from_reader(BufReader::new(reader)).into_iter();
        Ok(Self { socket, deadline, values })
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.set_write_timeout(Some(remaining(self.deadline)?))?;
        self.socket.write_all(bytes)
    }

    /// The next message; `None` at the end of the stream.
    pub(super) fn next(&mut self) -> Option<serde_json::Result<Message>> {
        self.values.next()
    }

    /// The number of bytes in all messages so far.
    pub(super) fn taken(&self) -> u64 {
        self.values.byte_offset() as u64
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// A reader with a deadline and a limit, for a sender that never stops.
struct Limited {
    socket: UnixStream,
    deadline: Instant,
    left: u64,
}

impl Read for Limited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it sent more than 64 MiB"));
        }
        self.socket.set_read_timeout(Some(remaining(self.deadline)?))?;
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.socket.read(&mut buffer[..most])?;
        self.left -= read as u64;
        Ok(read)
    }
}

/// The time that is left; an error if there is none, because a timeout of zero would mean to wait forever.
fn remaining(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
