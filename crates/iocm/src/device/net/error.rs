//! Failures to make a network device.

use std::io;

use super::packet::{Address, Mac};

/// A failure to make a network device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The tap cannot be opened or configured.
    #[error("The tap {name} {what}; it takes CAP_NET_ADMIN, or an interface that was made for this user")]
    Tap {
        /// The name of the interface.
        name: String,
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// This process may not create the socket that is needed to set an interface up.
    #[error(
        "The new tap {name} cannot be set up, because this process may have no IPv4 sockets; make the tap before, for the \
         daemon's user, or add AF_INET to RestrictAddressFamilies= of the unit"
    )]
    Family {
        /// The name of the interface.
        name: String,
    },
    /// The namespace cannot be entered.
    #[error("Cannot enter the network namespace {path}")]
    Namespace {
        /// The path of the namespace.
        path: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A descriptor is not a tap.
    #[error("Descriptor {number} is not a tap that can be used")]
    NoTap {
        /// The number of the descriptor.
        number: i32,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The number of descriptors is not that of queue pairs.
    #[error("{pairs} pairs of queues need as many descriptors of a tap, and {files} are given")]
    Files {
        /// Descriptors.
        files: usize,
        /// Pairs of queues.
        pairs: u16,
    },
    /// Another device of the switch has this address.
    #[error("Another device of the same switch has the address {}", Mac(.0))]
    Address(Address),
    /// The process has too many open files.
    #[error("Cannot make an eventfd for waking an I/O worker")]
    File(#[source] io::Error),
}
