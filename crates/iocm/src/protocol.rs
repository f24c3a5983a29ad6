//! The messages of vhost-user (QEMU's docs/interop/vhost-user.rst), from the back-end's side.

mod connection;
mod features;
mod payload;
mod request;

pub use connection::{Connection, ConnectionError};
pub use features::{ProtocolFeatures, VirtioFeatures};
pub use payload::{InflightDescription, RingAddresses, RingState};
pub use request::{Header, Request, RequestError};

/// The largest payload of a message, bytes. The largest message of the protocol, with 512 memory regions, is well
/// below.
pub const LARGEST_PAYLOAD: usize = 0x5000;

/// The most file descriptors of a message (`VHOST_MEMORY_BASELINE_NREGIONS`).
pub(crate) const MAX_FILES: usize = 8;

/// The most memory regions that can be added one by one.
pub(crate) const MAX_REGIONS: u64 = 509;
