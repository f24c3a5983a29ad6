//! Devices: what they offer to a guest, and what they do with its requests.

pub mod block;
mod limit;

pub use limit::Limit;
