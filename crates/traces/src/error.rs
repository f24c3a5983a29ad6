//! Errors that make a recording unreadable. Damage after the first records is a [`crate::Damage`], not an error.

use std::io;

/// The reason why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recording could not be opened or read.
    #[error("Cannot read {name}")]
    Read {
        /// The path, or the name for standard input.
        name: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// There is no room for a copy, which is needed to read a stream from both ends.
    #[error(
        "Cannot keep a copy of {name}, which has to be read from both ends; set TMPDIR to a place with room"
    )]
    Spool {
        /// The path, or what stands for standard input.
        name: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The recording is empty.
    #[error("{name} is empty; was the recorder stopped before it wrote anything?")]
    Empty {
        /// The path, or what stands for standard input.
        name: String,
    },
    /// The format is not known.
    #[error(
        "{name} is not a recording of exits: it begins with {start}; expected perf.data, trace.dat, the text of \
         tracefs, the output of xentrace or what `exitless record` wrote, as they are or packed with zstd or gzip"
    )]
    Unrecognised {
        /// The path, or what stands for standard input.
        name: String,
        /// Its first bytes in readable form.
        start: String,
    },
    /// It was recorded on a big-endian machine.
    #[error(
        "{name} was recorded on a big-endian machine; KVM on x86 is little-endian, so it has no VM exits of x86"
    )]
    ByteOrder {
        /// The path, or what stands for standard input.
        name: String,
    },
    /// It was recorded on another architecture.
    #[error("{name} was recorded on {architecture}; only x86_64 hosts are supported")]
    Architecture {
        /// The path, or what stands for standard input.
        name: String,
        /// The architecture in its header.
        architecture: String,
    },
    /// This version of the format is not supported.
    #[error("{name} is {what}, which is not supported; {next}")]
    Unsupported {
        /// The path, or what stands for standard input.
        name: String,
        /// The kind of file.
        what: String,
        /// The next step for the user.
        next: &'static str,
    },
    /// A part that must precede the first event is missing or invalid.
    #[error("{name} cannot be read: {what} at byte {offset}; {next}")]
    Header {
        /// The path, or what stands for standard input.
        name: String,
        /// The reason.
        what: String,
        /// The offset from the start.
        offset: u64,
        /// The next step for the user.
        next: &'static str,
    },
    /// The recording is intact, but lacks the events of interest.
    #[error(
        "{name} has no {missing} events ({found}); record with `perf kvm stat record -a -o perf.data` or `trace-cmd record -e kvm`"
    )]
    NoExits {
        /// The path, or what stands for standard input.
        name: String,
        /// The event that is missing.
        missing: &'static str,
        /// The events that it has.
        found: String,
    },
    /// The recording of Xen is intact, but lacks the events of interest.
    #[error(
        "{name} has neither exits nor entries of guests ({found}); record with `xentrace -e 0xaf000` while an \
         HVM or PVH guest runs"
    )]
    NoExitsOfXen {
        /// The path, or what stands for standard input.
        name: String,
        /// The events that it has.
        found: String,
    },
}
