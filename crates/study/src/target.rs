//! Machines on which a study can be run by the same binary.

mod chunks;
mod coordinate;
mod serve;
mod ssh;

pub use chunks::Chunks;
pub use coordinate::{CoordinateError, Coordinated, Event, Patience, Settings, coordinate};
pub use serve::{ServeError, serve};
pub use ssh::Ssh;

use std::fmt;
use std::io::Read;
use std::str::FromStr;
use std::time::Duration;

use super::stream::Request;

/// The target of a study.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// This machine.
    Local,
    /// A machine that is reached over ssh.
    Ssh {
        /// `[user@]host` as ssh takes it.
        destination: String,
        /// The port, if not ssh's default.
        port: Option<u16>,
    },
    /// A laboratory.
    Lab {
        /// Its name.
        name: String,
        /// `cpus=N`, `speed=MIPS`, `memory=MIB`, `switch-cycles=N`, `device=NAME` and `kernel=VERSION` for its machine.
        /// Others are arguments of its Xen, or of its kernel if it has none.
        arguments: Vec<String>,
    },
}

/// The error of a text that is not a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a target; expected local, ssh://[user@]host[:port] or lab:NAME[+ARGUMENT]")]
pub struct NoTarget(String);

impl FromStr for Target {
    type Err = NoTarget;

    fn from_str(text: &str) -> Result<Self, NoTarget> {
        let none = || NoTarget(text.to_owned());
        if text == "local" {
            return Ok(Self::Local);
        }
        if let Some(lab) = text.strip_prefix("lab:") {
            let words: Vec<&str> = lab.split('+').collect();
            return match words.split_first() {
                Some((name, arguments)) if words.iter().all(|word| !word.is_empty()) => Ok(Self::Lab {
                    name: (*name).to_owned(),
                    arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
                }),
                _ => Err(none()),
            };
        }
        let rest = text.strip_prefix("ssh://").ok_or_else(none)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        if !host.starts_with('[') && host.matches(':').count() > 1 {
            return Err(none());
        }
        // An IPv6 address must be in brackets, or its last group would look like a port.
        let (destination, port) = match rest.rsplit_once(':') {
            Some((before, port)) if !port.ends_with(']') => {
                (before, Some(port.parse::<u16>().map_err(|_| none())?))
            }
            _ => (rest, None),
        };
        let destination = destination.replace(['[', ']'], "");
        // ssh would treat a word that begins with a hyphen as an option.
        let plain = !destination.is_empty()
            && !destination.starts_with('-')
            && !destination.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/');
        if plain { Ok(Self::Ssh { destination, port }) } else { Err(none()) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => formatter.write_str("local"),
            Self::Ssh { destination, port: None } => write!(formatter, "ssh://{destination}"),
            Self::Ssh { destination, port: Some(port) } => write!(formatter, "ssh://{destination}:{port}"),
            Self::Lab { name, arguments } => {
                write!(formatter, "lab:{name}")?;
                arguments.iter().try_for_each(|argument| write!(formatter, "+{argument}"))
            }
        }
    }
}

/// A machine that accepts requests, one connection at a time.
pub trait Remote {
    /// Starts this binary there with a request.
    ///
    /// # Errors
    /// [`RemoteError`].
    fn connect(&mut self, request: &Request) -> Result<Box<dyn Connection>, RemoteError>;
}

/// A connection to a machine that makes runs; reading returns its stream. Dropping it ends the runs.
pub trait Connection: Read + Send {
    /// Asks the other side to end the run in progress, undo all changes, and confirm that.
    fn ask_to_stop(&mut self);

    /// The time that has passed for the other side, if that is less than here: on a busy machine an emulator falls
    /// behind. Limits apply to this time. `None` if it is the time here.
    fn time(&self) -> Option<Duration> {
        None
    }

    /// Closes the connection, and returns the remote side's other output, which may explain a failure.
    fn end(self: Box<Self>) -> Option<String>;
}

/// The reason why no connection was established.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// A retry may help.
    #[error("{0}")]
    Unreachable(String),
    /// A retry would not help.
    #[error("{0}")]
    Hopeless(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn targets_are_read_and_written_as_the_same() {
        let ssh = |destination: &str, port| Target::Ssh { destination: destination.to_owned(), port };
        let lab = |name: &str, arguments: &[&str]| Target::Lab {
            name: name.to_owned(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        };
        for (text, target) in [
            ("local", Target::Local),
            ("lab:amd-svm", lab("amd-svm", &[])),
            (
                "lab:xen-apicv+apicv=0+dom0_mem=1G,max:1G",
                lab("xen-apicv", &["apicv=0", "dom0_mem=1G,max:1G"]),
            ),
            (
                "lab:amd-avic+device=igb+amd_iommu_intr=legacy",
                lab("amd-avic", &["device=igb", "amd_iommu_intr=legacy"]),
            ),
            ("ssh://host", ssh("host", None)),
            ("ssh://root@10.0.0.1:2222", ssh("root@10.0.0.1", Some(2222))),
            ("ssh://root@[fe80::1]:22", ssh("root@fe80::1", Some(22))),
            ("ssh://[fe80::1]", ssh("fe80::1", None)),
        ] {
            assert_eq!(text.parse(), Ok(target), "{text}");
        }
    }

    #[test]
    fn what_ssh_would_take_for_an_option_is_no_target() {
        for text in [
            "",
            "host",
            "lab:",
            "lab:+apicv=0",
            "lab:xen+",
            "ssh://",
            "ssh://-oProxyCommand=x",
            "ssh://a b",
            "ssh://h:99999",
            "ssh://fe80::1",
            "ssh://root@fe80::1",
            "ssh://h/x",
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains("expected local"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_target_or_an_error(text in "(ssh://)?.{0,20}") {
            let _ = text.parse::<Target>();
        }
    }
}
