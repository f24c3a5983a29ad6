//! The agent in guests that were started for a study: process 1, which sets up the guest and runs the host's scripts.
//!
//! The crate `guests` is the host's side. Both sides share the frames, the settings of a guest, and the way in which
//! scripts start and are released.

mod agent;
mod frames;
mod initcalls;
mod line;
mod orphans;
pub mod pipes;
mod script;

pub use agent::{
    AGENT_ARGUMENT, DATA_SERIAL, Hello, Network, PORT_NAME, Port, ROOT_SERIAL, Settings, is_agent, run,
};
pub use frames::{Decoder, Frame, Kind, PIECE};
pub use line::{Ending, Line};
pub use orphans::reaping_orphans;
pub use script::{BEGAN, READY, WAITING};
