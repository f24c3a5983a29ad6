//! The agent's channel to the host: a virtio port, the second serial port, or the console of a Xen domain.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use super::settings::Port;
use crate::frames::Frame;

/// Name of the virtio port that QEMU provides.
pub const PORT_NAME: &str = "exitless";
const SERIAL: &str = "/dev/ttyS1";
/// The device of a Xen domain's console in Linux (`drivers/tty/hvc/hvc_xen.c`).
const XEN_CONSOLE: &str = "/dev/hvc0";
const PORTS: &str = "/sys/class/virtio-ports";
const PORT_WAIT: Duration = Duration::from_secs(60);

/// The receiving side of the channel.
pub(super) struct Channel {
    port: File,
    buffer: Vec<u8>,
}

/// The sending side of the channel; the lock keeps frames whole.
#[derive(Debug)]
pub(super) struct Sender {
    port: Mutex<File>,
}

impl Channel {
    pub(super) fn open(port: Port) -> Result<(Self, Arc<Sender>), String> {
        let path = match port {
            Port::Serial => PathBuf::from(SERIAL),
            Port::XenConsole => PathBuf::from(XEN_CONSOLE),
            Port::Virtio => virtio_port()?,
        };
        let is_terminal = port != Port::Virtio;
        let failed = |error: io::Error| format!("opening the channel {}: {error}", path.display());
        let port = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
        if is_terminal {
            let raw = tcgetattr(&port).and_then(|mut terminal| {
                terminal.make_raw();
                tcsetattr(&port, OptionalActions::Now, &terminal)
            });
            raw.map_err(|error| failed(error.into()))?;
        }
        let writer = port.try_clone().map_err(failed)?;
        Ok((Self { port, buffer: vec![0; 32 << 10] }, Arc::new(Sender { port: Mutex::new(writer) })))
    }

    /// The next bytes; empty once the host has disconnected.
    pub(super) fn read(&mut self) -> io::Result<&[u8]> {
        loop {
            match self.port.read(&mut self.buffer) {
                Ok(count) => return Ok(&self.buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Sender {
    pub(super) fn send(&self, frame: &Frame) -> io::Result<()> {
        self.port.lock().unwrap_or_else(PoisonError::into_inner).write_all(&frame.encode())
    }
}

/// Finds the port by its name. The host sends the names in control messages, so a port may appear after its device.
fn virtio_port() -> Result<PathBuf, String> {
    let begun = Instant::now();
    while begun.elapsed() < PORT_WAIT {
        let ports = fs::read_dir(PORTS).into_iter().flatten().filter_map(Result::ok);
        let own = ports.into_iter().find(|port| {
            fs::read_to_string(port.path().join("name")).is_ok_and(|name| name.trim() == PORT_NAME)
        });
        if let Some(port) = own {
            return Ok(PathBuf::from("/dev").join(port.file_name()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(format!("no virtio port {PORT_NAME:?} appeared within {} s", PORT_WAIT.as_secs()))
}
