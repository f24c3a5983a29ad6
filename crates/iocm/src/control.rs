//! The control tree of a running daemon: everything that can be read or changed while it runs.
//!
//! The tree consists of attributes (`table`). Reading one gives a [`Value`] from facts ([`FactSource`]), writing one
//! gives an [`Operation`]; the daemon supplies the facts and carries out the operations. Two endpoints lead to the
//! tree: a file system ([`mount`]) and a socket with lines of JSON ([`socket`]).

mod access;
mod attribute;
pub mod client;
mod daemon;
mod endpoints;
mod error;
mod facts;
pub mod manual;
pub mod mount;
mod object;
pub mod rates;
mod request;
pub mod socket;
mod table;
mod tree;

pub use access::Access;
pub use attribute::{Attribute, Mode, Value};
pub use client::{flat, plain};
pub use endpoints::{ControlEndpoints, ControlServer, EndpointsError};
pub use error::{ControlError, Errno};
pub use facts::{Control, DaemonFacts, DeviceFacts, FactSource, Operation, QueueFacts, WorkerFacts};
pub use object::{Object, QueueName};
pub use request::{ControlRequest, LONGEST_LINE, RequestLine, WATCH_INTERVALS_MS, answer};
pub use table::{attributes, of as attributes_of};
pub use tree::{DirectoryEntry, Node, NodeKind, list, read, write};
