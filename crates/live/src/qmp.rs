//! A client of QEMU's monitor protocol (QMP).
//!
//! A monitor serves one client at a time, so every call has a deadline, and the connection is closed when the client
//! is dropped (docs/interop/qmp-spec.rst of QEMU).

mod connection;
#[cfg(test)]
pub(crate) mod fake;
mod pci;

pub use pci::{PciError, pci_bars};

use connection::{Connection, Message};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The reason why QEMU did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QmpError {
    /// Connecting to the socket failed.
    #[error("Cannot connect to the monitor at {path}; {next}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The next step for the user.
        next: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// No greeting: another client is connected to the monitor.
    #[error(
        "The monitor at {path} gave no greeting in {waited:?}: another program is connected to it, or QEMU \
         hangs; end that connection, or give QEMU a second -qmp socket"
    )]
    Busy {
        /// The socket.
        path: PathBuf,
        /// The time that we waited.
        waited: Duration,
    },
    /// QEMU greeted but did not answer in time.
    #[error("QEMU did not answer `{command}` at {path} in time; it is busy or stopped, so try again")]
    Silent {
        /// The socket.
        path: PathBuf,
        /// The command.
        command: String,
    },
    /// The connection was closed.
    #[error("The monitor at {path} closed the connection at `{command}`; see whether the VM still runs")]
    Closed {
        /// The socket.
        path: PathBuf,
        /// The command.
        command: String,
        /// The cause, if it was not a regular end.
        #[source]
        source: Option<io::Error>,
    },
    /// The answer is not QMP.
    #[error("{path} does not speak QMP: expected {expected} after byte {at}; name the socket of -qmp")]
    NotQmp {
        /// The socket.
        path: PathBuf,
        /// The expected answer.
        expected: &'static str,
        /// The number of bytes that had been read before.
        at: u64,
    },
    /// QEMU refused the command.
    #[error("QEMU {version} refused `{command}`: {description} ({class})")]
    Refused {
        /// The command.
        command: String,
        /// The class of the error, such as `CommandNotFound`.
        class: String,
        /// QEMU's words.
        description: String,
        /// QEMU's version from its greeting.
        version: String,
    },
}

/// A connection to a monitor after the negotiation.
#[derive(Debug)]
pub struct Monitor {
    connection: Connection,
    path: PathBuf,
    version: String,
    asked: u64,
}

impl Monitor {
    /// Connects to a socket and negotiates. The whole use of the monitor must end within `timeout` from now.
    ///
    /// # Errors
    /// [`QmpError::Connect`], [`QmpError::Busy`] when no greeting comes, and those of [`Self::ask`].
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, QmpError> {
        let busy = || QmpError::Busy { path: path.to_owned(), waited: timeout };
        let connection = Connection::open(path, Instant::now() + timeout).map_err(|source| {
            // The listen queue is full.
            if source.kind() == io::ErrorKind::WouldBlock {
                return busy();
            }
            let next = match source.kind() {
                io::ErrorKind::PermissionDenied => "run as root or as the VM's user",
                io::ErrorKind::NotFound => "the VM has ended, or its file system is another one",
                io::ErrorKind::ConnectionRefused => "the VM that made it has ended",
                _ => "see the cause",
            };
            QmpError::Connect { path: path.to_owned(), next, source }
        })?;
        let mut monitor = Self { connection, path: path.to_owned(), version: String::new(), asked: 0 };
        let greeting = match monitor.message("the greeting") {
            Err(QmpError::Silent { .. }) => return Err(busy()),
            other => other?,
        };
        let Some(greeting) = greeting.greeting else { return Err(monitor.not_qmp("a greeting")) };
        monitor.version = version(&greeting);
        monitor.ask("qmp_capabilities", None)?;
        Ok(monitor)
    }

    /// Connects to a socket at a path of the process. Looks for it below the process's root, which may be a
    /// container's, and then below ours, because only root may enter the root of another user's process.
    pub(crate) fn of_process(root: &Path, pid: i32, path: &str, timeout: Duration) -> Result<Self, QmpError> {
        let process = root.join(format!("proc/{pid}"));
        // The process can delay the lookup at will: the path leads through its own file systems.
        let connect = |socket: PathBuf| {
            let connected = files::look_at_files(&process, move || Self::connect(&socket, timeout));
            connected.unwrap_or_else(|source| {
                let next = "its process blocks inspection";
                Err(QmpError::Connect { path: process.clone(), next, source })
            })
        };
        let Some(absolute) = path.strip_prefix('/') else {
            return connect(process.join("cwd").join(path));
        };
        let within = connect(process.join("root").join(absolute));
        match &within {
            // The process blocks the lookup. Do not try below our root: the path may lead to the process from there
            // too.
            Err(QmpError::Connect { source, .. }) if source.kind() == io::ErrorKind::TimedOut => {
                return within;
            }
            Err(QmpError::Connect { .. }) => {}
            _ => return within,
        }
        match connect(root.join(absolute)) {
            Err(QmpError::Connect { source, .. }) if source.kind() == io::ErrorKind::NotFound => within,
            other => other,
        }
    }

    /// QEMU's version from its greeting, such as `10.0.13`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Executes a command, and returns the JSON text of its result. Events that arrive meanwhile are skipped.
    ///
    /// # Errors
    /// [`QmpError::Refused`] if QEMU returns an error, [`QmpError::Silent`] after the timeout, and
    /// [`QmpError::Closed`] or [`QmpError::NotQmp`] if the other side disconnects or sends something else.
    pub fn ask(&mut self, command: &str, arguments: Option<Value>) -> Result<Box<RawValue>, QmpError> {
        self.asked += 1;
        let mut request = json!({ "execute": command, "id": self.asked });
        if let (Some(arguments), Some(request)) = (arguments, request.as_object_mut()) {
            request.insert("arguments".to_owned(), arguments);
        }
        self.connection
            .send(format!("{request}\r\n").as_bytes())
            .map_err(|source| self.broken(command, source))?;
        loop {
            let message = self.message(command)?;
            let is_answer = message.id.is_some_and(|id| id.get().parse() == Ok(self.asked));
            if message.event.is_some() || !is_answer {
                continue;
            }
            if let Some(answer) = message.answer {
                return Ok(answer);
            }
            let Some(error) = message.error else { return Err(self.not_qmp("`return` or `error`")) };
            let Refusal { class, desc } = serde_json::from_str(error.get()).unwrap_or_default();
            let unnamed = || "unnamed".to_owned();
            return Err(QmpError::Refused {
                command: command.to_owned(),
                class: class.unwrap_or_else(unnamed),
                description: desc.unwrap_or_else(unnamed),
                version: self.version.clone(),
            });
        }
    }

    fn message(&mut self, command: &str) -> Result<Message, QmpError> {
        match self.connection.next() {
            Some(Ok(message)) => Ok(message),
            Some(Err(error)) if error.is_data() => Err(self.not_qmp("an object")),
            Some(Err(error)) if error.is_io() => Err(self.broken(command, error.into())),
            Some(Err(error)) if error.is_eof() => Err(self.closed(command, None)),
            Some(Err(_)) => Err(self.not_qmp("JSON")),
            None => Err(self.closed(command, None)),
        }
    }

    fn broken(&self, command: &str, source: io::Error) -> QmpError {
        match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                QmpError::Silent { path: self.path.clone(), command: command.to_owned() }
            }
            _ => self.closed(command, Some(source)),
        }
    }

    fn closed(&self, command: &str, source: Option<io::Error>) -> QmpError {
        QmpError::Closed { path: self.path.clone(), command: command.to_owned(), source }
    }

    fn not_qmp(&self, expected: &'static str) -> QmpError {
        QmpError::NotQmp { path: self.path.clone(), expected, at: self.connection.taken() }
    }
}

/// The `class` and `desc` of an error.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
    class: Option<String>,
    desc: Option<String>,
}

#[derive(Deserialize)]
struct Greeting {
    version: Versions,
}

#[derive(Deserialize)]
struct Versions {
    qemu: Version,
}

#[derive(Deserialize)]
struct Version {
    major: u64,
    minor: u64,
    micro: u64,
}

fn version(greeting: &RawValue) -> String {
    match serde_json::from_str(greeting.get()) {
        Ok(Greeting { version: Versions { qemu: Version { major, minor, micro } } }) => {
            format!("{major}.{minor}.{micro}")
        }
        Err(_) => "of unknown version".to_owned(),
    }
}

#[cfg(test)]
#[path = "qmp_tests.rs"]
mod tests;
