//! Errors for which a recording cannot be read at all. Damage further in is [`crate::Damage`], not an error.

use std::io;

/// A recording that gives no profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It could not be opened or read.
    #[error("Cannot read {name}")]
    Read {
        /// The path, or what stands for standard input.
        name: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// No room for a copy of what cannot be read twice.
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
    /// There is nothing in it.
    #[error("{name} is empty; was the recorder stopped before it wrote anything?")]
    Empty {
        /// The path, or what stands for standard input.
        name: String,
    },
    /// Its content is of no known kind.
    #[error(
        "{name} is not a recording of exits: it begins with {start}; expected perf.data, trace.dat, the text of \
         tracefs, the output of xentrace or what `exitless record` wrote, as they are or packed with zstd or gzip"
    )]
    Unrecognised {
        /// The path, or what stands for standard input.
        name: String,
        /// Its first bytes, readable.
        start: String,
    },
    /// It was made on a machine of the other byte order.
    #[error(
        "{name} was recorded on a big-endian machine; KVM on x86 is little-endian, so it has no VM exits of x86"
    )]
    ByteOrder {
        /// The path, or what stands for standard input.
        name: String,
    },
    /// It was made on another architecture.
    #[error("{name} was recorded on {architecture}; only x86_64 hosts are supported")]
    Architecture {
        /// The path, or what stands for standard input.
        name: String,
        /// The architecture in its header.
        architecture: String,
    },
    /// A version of the format that is not read.
    #[error("{name} is {what}, which is not supported; {next}")]
    Unsupported {
        /// The path, or what stands for standard input.
        name: String,
        /// The kind of file.
        what: String,
        /// The next step for the user.
        next: &'static str,
    },
    /// Something that must precede the first event is missing or makes no sense.
    #[error("{name} cannot be read: {what} at byte {offset}; {next}")]
    Header {
        /// The path, or what stands for standard input.
        name: String,
        /// The reason.
        what: String,
        /// Bytes from its start.
        offset: u64,
        /// The next step for the user.
        next: &'static str,
    },
    /// It is sound but was recorded without the events of interest.
    #[error(
        "{name} has no {missing} events ({found}); record with `perf kvm stat record -a -o perf.data` or `trace-cmd record -e kvm`"
    )]
    NoExits {
        /// The path, or what stands for standard input.
        name: String,
        /// The event that is missing.
        missing: &'static str,
        /// The events that it has instead.
        found: String,
    },
    /// It is a sound recording of Xen without the events of interest.
    #[error(
        "{name} has neither exits nor entries of guests ({found}); record with `xentrace -e 0xaf000` while an \
         HVM or PVH guest runs"
    )]
    NoExitsOfXen {
        /// The path, or what stands for standard input.
        name: String,
        /// The events that it has instead.
        found: String,
    },
}
