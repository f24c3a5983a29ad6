//! Errors of a load.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// The reason why a load could not run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The settings cannot work.
    #[error("{field} {why}")]
    Settings {
        /// The setting.
        field: &'static str,
        /// The fault.
        why: String,
    },
    /// The limit of open files is too low for the connections.
    #[error(
        "{wanted} open files are needed, and this process may have {allowed}: raise the limit (ulimit -n {wanted}, as \
         root; its own limit is /proc/sys/fs/nr_open), or ask for fewer connections"
    )]
    OpenFiles {
        /// Open files that the connections need.
        wanted: u64,
        /// The hard limit, or the highest limit that can be set.
        allowed: u64,
    },
    /// There are fewer ports than connections.
    #[error(
        "{connections} connections to {target} need {needed} source addresses, for one has {ports} ports \
         (/proc/sys/net/ipv4/ip_local_port_range): name as many by --source, each an address of \
         this machine, or a server that listens at more ports"
    )]
    Ports {
        /// The number of connections.
        connections: u32,
        /// The server.
        target: SocketAddr,
        /// The number of source addresses needed.
        needed: u32,
        /// The number of ports of one address.
        ports: u32,
    },
    /// Not one connection could be opened.
    #[error("{target} takes no connections: is the server running there, and is its port open?")]
    NoConnection {
        /// The server.
        target: SocketAddr,
        /// The first error.
        source: io::Error,
    },
    /// The server does not answer the greeting, or not as the protocol requires.
    #[error("{target} was reached but {what}; is it the server that was meant?")]
    NotReady {
        /// The server.
        target: SocketAddr,
        /// The fault in the server's answer.
        what: String,
    },
    /// Opening the connections took too long.
    #[error(
        "Only {opened} of {connections} connections to {target} were open after {} s; ask for fewer, or see what holds the \
         server up",
        limit.as_secs()
    )]
    Opening {
        /// The server.
        target: SocketAddr,
        /// The number of open connections.
        opened: u32,
        /// The number of requested connections.
        connections: u32,
        /// The limit.
        limit: Duration,
    },
    /// Another system call failed.
    #[error("Could not {what}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl LoadError {
    pub(super) fn system(what: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        move |source| Self::System { what, source: source.into() }
    }
}

/// Checks settings in order: for each, a condition, the setting's name and the requirement.
pub(super) fn demand(settings: &[(bool, &'static str, &str)]) -> Result<(), LoadError> {
    match settings.iter().find(|(holds, ..)| !holds) {
        Some(&(_, field, why)) => Err(LoadError::Settings { field, why: why.to_owned() }),
        None => Ok(()),
    }
}
