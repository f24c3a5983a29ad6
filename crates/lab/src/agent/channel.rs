//! The byte channel to the host, chosen by what the emulator offers.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use super::debug_port::DebugPort;
use crate::frames::Frame;
use crate::job::{PORT_NAME, STOP_PORT_NAME};

const PORT_WAIT: Duration = Duration::from_secs(10);

/// The channel for frames in both directions.
#[derive(Debug)]
pub(super) enum Channel {
    /// A virtio port, which transfers large pieces.
    Virtio(File),
    /// The debug port, which transfers single bytes and needs no driver.
    Debug(DebugPort),
}

impl Channel {
    pub(super) fn open() -> io::Result<Self> {
        match wait_for_virtio_port() {
            Some(port) => {
                Ok(Self::Virtio(OpenOptions::new().read(true).write(true).open(format!("/dev/{port}"))?))
            }
            None => DebugPort::open().map(Self::Debug),
        }
    }

    pub(super) fn send(&mut self, frame: &Frame) -> io::Result<()> {
        let bytes = frame.encode();
        match self {
            Self::Virtio(port) => port.write_all(&bytes),
            Self::Debug(port) => port.write_all(&bytes),
        }
    }

    /// Stops here in a machine that boots for a snapshot: the snapshot is taken during this call, which
    /// returns in machines that are restored from it. Does nothing in other machines. A machine without the
    /// stop port is saved while it waits for a frame.
    pub(super) fn stop_to_be_saved(&self) -> io::Result<()> {
        match (self, virtio_port(STOP_PORT_NAME)) {
            (Self::Virtio(_), Some(port)) => File::open(format!("/dev/{port}")).map(drop),
            _ => Ok(()),
        }
    }

    /// Waits for the next frame from the host.
    pub(super) fn receive(&mut self) -> io::Result<Frame> {
        match self {
            Self::Virtio(port) => Frame::read(&mut Waiting(port)),
            Self::Debug(port) => Frame::read(port),
        }
    }
}

/// A virtio port. Until the host opens its side, reading it returns end of file; this waits instead.
struct Waiting<'a>(&'a mut File);

impl Read for Waiting<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(bytes)? {
                0 if !bytes.is_empty() => std::thread::sleep(Duration::from_millis(10)),
                count => return Ok(count),
            }
        }
    }
}

/// The host sends the ports' names in messages, so a port can appear some time after its device.
fn wait_for_virtio_port() -> Option<String> {
    let begun = Instant::now();
    let any_device =
        || fs::read_dir("/sys/bus/virtio/devices").is_ok_and(|mut devices| devices.next().is_some());
    while any_device() && begun.elapsed() < PORT_WAIT {
        if let Some(port) = virtio_port(PORT_NAME) {
            return Some(port);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

fn virtio_port(wanted: &str) -> Option<String> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?;
    ports.filter_map(Result::ok).find_map(|port| {
        let name = fs::read_to_string(port.path().join("name")).ok()?;
        (name.trim() == wanted).then(|| port.file_name().to_string_lossy().into_owned())
    })
}
