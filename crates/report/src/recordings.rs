//! Facts of recordings, and the data that they lack, for all results of recordings.

pub(crate) mod course;
pub(crate) mod json;
pub(crate) mod page;
mod parquet;
pub(crate) mod rows;
pub(crate) mod scale;
pub(crate) mod terminal;
pub(crate) mod words;

pub use self::parquet::{ExitsError, ExitsWriter};
pub use self::terminal::{doubts, nothing_read};
pub use self::words::{nothing_in_window, without_vcpu};
