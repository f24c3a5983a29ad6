//! Runs on their way from the machine that makes them to the one that keeps them.
//!
//! One side sends frames: a letter, a length, and so many bytes. Before the first one stands a line of its own, so that
//! what a login shell prints before is passed over. A run's files follow its record; a run counts when all of them have
//! come, so a link that breaks costs the run in progress and no other.

mod frame;
mod receive;
mod request;
mod send;

pub use frame::{LARGEST_CHUNK, Reader, StreamError, Writer};
pub use receive::{Received, receive};
pub use request::Request;
pub use send::Link;

use serde::{Deserialize, Serialize};

use super::engine::{Conclusion, StudyProgress};
use super::record::Run;
use host::Fingerprint;

/// Number of the stream's form; both sides are the same binary, and say so if not.
pub const STREAM_FORMAT: u32 = 2;

/// What the side with the guests says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "kebab-case")]
pub enum Message {
    /// The first one: it understood what is asked.
    Hello {
        /// [`STREAM_FORMAT`].
        format: u32,
        /// Its version.
        version: String,
        /// Its host, before anything is changed.
        fingerprint: Box<Fingerprint>,
    },
    /// How far it is.
    Progress(StudyProgress),
    /// The other side is there, and at work on something that takes its time.
    Alive,
    /// A line of its log.
    Warning {
        /// The text.
        text: String,
    },
    /// A run; `files` follow, each as chunks of its bytes.
    Run {
        /// The record.
        run: Box<Run>,
        /// Its files.
        files: Vec<SentFile>,
    },
    /// The end.
    End {
        /// What came of it, or why it stopped.
        conclusion: Result<Conclusion, String>,
    },
}

/// A file of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentFile {
    /// Its path below the run's folder, with `/`.
    pub path: String,
    /// Its length in bytes.
    pub length: u64,
}
