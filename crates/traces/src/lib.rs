//! Reads recordings of VM exits from various tools, and makes an [`exits::Profile`] of them.
//!
//! A recording is recognised by its contents: `perf.data` in file and pipe mode, `trace.dat` of trace-cmd, the text
//! of tracefs and of `trace-cmd report`, the binary output of `xentrace`, and what [`exitless`] writes. The readers
//! of other tools' formats convert them to the same few events. One place puts these in order, pairs exits with
//! entries, and counts them.
//!
//! ```no_run
//! # fn main() -> Result<(), traces::Error> {
//! let source = traces::Source::from("perf.data");
//! let reading = traces::read(&source, &traces::Options::default(), &mut ())?;
//! for (reason, exits) in reading.profile.reasons() {
//!     println!("{reason}: {} exits", exits.count);
//! }
//! # Ok(())
//! # }
//! ```

mod assembly;
mod bounded;
mod bytes;
mod decoder;
mod error;
mod event;
pub mod exitless;
mod fields;
mod input;
mod likeness;
mod losses;
mod misunderstood;
mod origin;
mod owners;
mod pairing;
mod perf;
mod pipeline;
mod quick;
mod recognise;
mod record;
mod recordings;
mod rows;
mod run;
mod sums;
mod text;
mod thread;
mod trace_dat;
mod tracing_data;
mod xentrace;

pub use bounded::{merge_bounded, merge_bounded_accesses};
pub use error::Error;
pub use input::Source;
pub use likeness::{Property, Unlike, unlike};
pub use origin::{Damage, Format, Origin};
pub use record::{AccessRecord, ExitRecord, Sink};
pub use recordings::{Recording, Recordings};
pub use sums::Sums;
pub use xentrace::follow as follow_xentrace;

/// The part of a recording to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Only exits at least this many nanoseconds after the recording's first event.
    pub from_ns: Option<u64>,
    /// Only exits less than this many nanoseconds after the recording's first event.
    pub to_ns: Option<u64>,
    /// The number of threads for decoding; `None` uses as many as there are CPUs.
    pub threads: Option<std::num::NonZeroUsize>,
    /// The TSC frequency for recordings of xentrace, which have no other times. If it is `None` or zero, the
    /// frequency is estimated from the scheduler's events in the recording; if there are none, 2.4 GHz is assumed as
    /// `xenalyze` does, with a warning.
    pub tsc_hz: Option<u64>,
    /// The instruction set of the exits in a recording of xentrace before Xen 4.19, which does not contain it; `None`
    /// infers it.
    pub isa: Option<exits::Isa>,
}

/// The result of reading a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The exits.
    pub profile: exits::Profile,
    /// The program and the machine that made the recording.
    pub origin: Origin,
    /// The place where reading had to stop. The profile has everything before it.
    pub damage: Option<Damage>,
    /// Warnings for the user, one sentence each.
    pub warnings: Vec<String>,
}

/// Reads a recording of any known format, from its first event to its end or to where it is damaged; `sink` receives
/// every exit.
///
/// # Errors
/// If nothing can be read: [`Error`] has the reason and the next step. Later damage is not an error.
pub fn read(source: &Source, options: &Options, sink: &mut impl Sink) -> Result<Reading, Error> {
    if let Source::Path(path) = source
        && path.is_dir()
    {
        return perf::read_directory(path, *options, sink);
    }
    read_input(input::Input::open(source)?, options, sink)
}

/// Reads a recording from a stream, as [`read`] does from standard input; `name` is its name in messages.
///
/// # Errors
///
/// Those of [`read`].
pub fn read_stream(
    name: &str,
    stream: Box<dyn std::io::Read + Send>,
    options: &Options,
    sink: &mut impl Sink,
) -> Result<Reading, Error> {
    read_input(input::Input::of_stream(name.to_owned(), stream)?, options, sink)
}

/// Reads a recording in memory, as [`read`] does from standard input; for tests and fuzzing.
///
/// # Errors
///
/// Those of [`read`].
#[doc(hidden)]
pub fn read_bytes(bytes: &[u8], options: &Options, sink: &mut impl Sink) -> Result<Reading, Error> {
    read_stream("memory", Box::new(std::io::Cursor::new(bytes.to_vec())), options, sink)
}

fn read_input(input: input::Input, options: &Options, sink: &mut impl Sink) -> Result<Reading, Error> {
    match recognise::format(&input)? {
        Format::PerfData => perf::read_file(input, *options, sink),
        Format::PerfPipe => perf::read_pipe(input, *options, sink),
        Format::TraceDat => trace_dat::read(input, *options, sink),
        Format::TracefsText => text::read(input, *options, sink),
        Format::Xentrace => xentrace::read(input, *options, sink),
        // Cannot happen: no file has this format.
        Format::Live => Err(recognise::unrecognised(&input)),
        Format::Exits => exitless::read(input, *options, sink),
        Format::Profile => exitless::profile::read(input, *options, sink),
    }
}
