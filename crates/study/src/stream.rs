//! The stream of runs from the machine that makes them to the one that stores them.
//!
//! A stream consists of frames: a letter, a length, and that many bytes. A marker line precedes the first frame, so
//! that output of a login shell is skipped. A run's files follow its record; the run counts once all of them have
//! arrived, so a broken connection costs only the run in progress.

mod asked;
mod frame;
mod receive;
mod request;
mod send;

pub use asked::Asked;
pub use frame::{LARGEST_CHUNK, Reader, StreamError, Writer};
pub use receive::{Received, receive};
pub use request::Request;
pub use send::Link;

use serde::{Deserialize, Serialize};

use super::engine::{Conclusion, StudyProgress};
use super::record::Run;
use host::Fingerprint;

/// Format version of the stream; both sides should be the same binary, and report it if they are not.
pub const STREAM_FORMAT: u32 = 3;

/// A message of the side with the guests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "kebab-case")]
pub enum Message {
    /// The request was understood, and the study begins. Only warnings and signs of life may come before.
    Hello {
        /// [`STREAM_FORMAT`].
        format: u32,
        /// The version of exitless.
        version: String,
        /// The host's fingerprint, before any change.
        fingerprint: Box<Fingerprint>,
    },
    /// The progress of the study.
    Progress(StudyProgress),
    /// A sign of life during long operations.
    Alive,
    /// A warning that is to be shown at once. Those in its log are shown at the end.
    Warning {
        /// The text.
        text: String,
    },
    /// A run; the contents of `files` follow in chunks.
    Run {
        /// The record.
        run: Box<Run>,
        /// Its files.
        files: Vec<SentFile>,
    },
    /// The end of the session.
    End {
        /// The result, or the reason why it stopped.
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
