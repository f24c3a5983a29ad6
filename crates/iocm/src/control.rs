//! The control tree of a running daemon: all that can be read of it, and all that can be changed.
//!
//! One model with two doors. The model is a tree of attributes (`table`): reading one gives a [`Value`] that is made of
//! facts ([`View`]), writing one gives an [`Action`]. Neither does anything: the daemon answers for the facts and carries
//! out actions. The doors are a file system ([`mount`]) and a socket with lines of JSON ([`socket`]).

mod access;
mod action;
mod answer;
mod apply;
mod attribute;
pub mod client;
mod doors;
mod facts;
mod flat;
mod live;
mod load;
pub mod manual;
pub mod mount;
mod node;
mod pace;
pub mod rates;
mod refusal;
mod request;
pub mod socket;
mod table;
mod tree;
mod value;

pub use access::Access;
pub use action::Action;
pub use answer::{ANSWER_FORMAT, answer};
pub use attribute::{Attribute, Mode};
pub use doors::{DoorError, Doors, OpenDoors};
pub use facts::{Control, DaemonFacts, DeviceFacts, QueueFacts, View, WorkerFacts};
pub use flat::{flat, plain};
pub use load::Loads;
pub use node::{Node, Object, QueueName};
pub use refusal::{Errno, Refusal};
pub use request::{LONGEST_LINE, Request, RequestLine};
pub use table::{attributes, of as attributes_of};
pub use tree::{Entry, Kind, list, read, read_below, write};
pub use value::Value;
