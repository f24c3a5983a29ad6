//! Why there was no load.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Why there was no load.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The settings cannot work.
    #[error("{field} {why}")]
    Settings {
        /// The setting.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A process may not have so many connections.
    #[error(
        "{wanted} open files are needed, and this process may have {allowed}: raise the limit (ulimit -n {wanted}, as \
         root; its own limit is /proc/sys/fs/nr_open), or ask for fewer connections"
    )]
    OpenFiles {
        /// Files for all connections.
        wanted: u64,
        /// The hard limit, or what may be made of it.
        allowed: u64,
    },
    /// There are fewer ports than connections.
    #[error(
        "{connections} connections to {target} need {needed} source addresses, for one has {ports} ports \
         (/proc/sys/net/ipv4/ip_local_port_range): name as many by --source, each an address of \
         this machine, or a server that listens at more ports"
    )]
    Ports {
        /// Connections.
        connections: u32,
        /// The server.
        target: SocketAddr,
        /// Addresses that would do.
        needed: u32,
        /// Ports of an address.
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
    /// The server does not answer the first words, or not as the protocol has it.
    #[error("{target} was reached but {what}")]
    NotReady {
        /// The server.
        target: SocketAddr,
        /// What was waited for, and what came.
        what: String,
    },
    /// Connections took too long.
    #[error("Only {opened} of {connections} connections to {target} were open after {} s", limit.as_secs())]
    Opening {
        /// The server.
        target: SocketAddr,
        /// Open ones.
        opened: u32,
        /// Wanted ones.
        connections: u32,
        /// The limit.
        limit: Duration,
    },
    /// The machine refused something else.
    #[error("Could not {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl LoadError {
    pub(super) fn system(what: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        move |source| Self::System { what, source: source.into() }
    }
}
