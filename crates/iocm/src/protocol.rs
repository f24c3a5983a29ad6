//! The messages of vhost-user (QEMU's docs/interop/vhost-user.rst), as the back-end receives and sends them.

mod connection;
mod features;
mod payload;
mod request;

pub use connection::{Connection, ConnectionError};
pub use features::{ProtocolFeatures, VirtioFeatures};
pub use payload::{InflightDescription, RingAddresses, RingState};
pub use request::{Header, Request, RequestError};

/// Most bytes of a message's payload: 512 regions of memory are far below, and a longer one is no message of this protocol.
pub const LARGEST_PAYLOAD: usize = 0x5000;

/// Most descriptors that come with a message (vhost-user: `VHOST_MEMORY_BASELINE_NREGIONS`).
pub const MOST_FILES: usize = 8;

/// Most regions of memory that can be added one by one.
pub const MOST_REGIONS: u64 = 509;
