//! I/O workers: `exitless iocm`.

mod beside;
pub mod evaluation;
pub mod monitor;
pub mod rates;
pub mod simulated;
