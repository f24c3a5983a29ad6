//! The agent in guests that were started for a study: process 1, which sets the guest up and runs what the host asks for.
//!
//! The host's end of it is in `experiment`. Both share how frames are told apart, how a guest is set up, and how a script
//! is started and released.

mod agent;
mod frames;
mod line;
pub mod pipes;
mod script;

pub use agent::{AGENT_ARGUMENT, Hello, Network, PORT_NAME, Port, ROOT_SERIAL, Settings, is_agent, run};
pub use frames::{Decoder, Frame, Kind, PIECE};
pub use line::{Ending, Line};
pub use script::{BEGAN, READY, WAITING};
