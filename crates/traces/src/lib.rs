//! Reads recordings of VM exits and makes one [`exits::Profile`] of them, whatever tool wrote them.
//!
//! A recording is recognised by its content: `perf.data` in file and pipe mode, `trace.dat` of trace-cmd,
//! the text of tracefs and of `trace-cmd report`, the binary output of `xentrace`, and what [`exitless`] writes
//! itself. Each reader of what other tools wrote turns its format into the same few events; putting them in
//! order, pairing exits with entries and counting is done in one place for all of them.
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
mod input;
mod likeness;
mod losses;
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

pub use bounded::merge_bounded;
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
    /// Only exits so many nanoseconds or more after the recording's first event.
    pub from_ns: Option<u64>,
    /// Only exits less than so many nanoseconds after the recording's first event.
    pub to_ns: Option<u64>,
    /// Threads to decode with; `None` takes as many as there are processors.
    pub threads: Option<std::num::NonZeroUsize>,
    /// Ticks of the time stamp counter in a second, for recordings of xentrace, which hold no times but these
    /// ticks. Without it, or when it is zero, the frequency is estimated from the recording's scheduler events,
    /// and where it has none, taken to be 2.4 GHz as `xenalyze` does; a warning says so.
    pub tsc_hz: Option<u64>,
    /// The instruction set of the exits of a xentrace recording, where it does not say (before Xen 4.19);
    /// `None` decides by what the recording shows.
    pub isa: Option<exits::Isa>,
}

/// The result of reading a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The exits.
    pub profile: exits::Profile,
    /// The program and the machine that wrote the recording.
    pub origin: Origin,
    /// The place where reading had to end early. The profile holds everything before it.
    pub damage: Option<Damage>,
    /// Warnings for the user, one sentence each.
    pub warnings: Vec<String>,
}

/// Reads a recording of any known kind, from its first event to its end or to where it is damaged; `sink`
/// gets every exit.
///
/// # Errors
/// When nothing can be read: [`Error`] says why and what to do. Damage further in is not an error.
pub fn read(source: &Source, options: &Options, sink: &mut impl Sink) -> Result<Reading, Error> {
    if let Source::Path(path) = source {
        if path.is_dir() {
            return perf::read_directory(path, *options, sink);
        }
    }
    read_input(input::Input::open(source)?, options, sink)
}

/// Reads a recording that is in memory, as [`read`] does from standard input; for tests and fuzzing.
///
/// # Errors
///
/// Those of [`read`].
#[doc(hidden)]
pub fn read_bytes(bytes: &[u8], options: &Options, sink: &mut impl Sink) -> Result<Reading, Error> {
    let stream = Box::new(std::io::Cursor::new(bytes.to_vec()));
    read_input(input::Input::of_stream("memory".to_owned(), stream)?, options, sink)
}

fn read_input(input: input::Input, options: &Options, sink: &mut impl Sink) -> Result<Reading, Error> {
    match recognise::format(&input)? {
        Format::PerfData => perf::read_file(input, *options, sink),
        Format::PerfPipe => perf::read_pipe(input, *options, sink),
        Format::TraceDat => trace_dat::read(input, *options, sink),
        Format::TracefsText => text::read(input, *options, sink),
        Format::Xentrace => xentrace::read(input, *options, sink),
        // Not a file's, but no format is given for one that has no reader.
        Format::Live => Err(recognise::unrecognised(&input)),
        Format::Exits => exitless::read(input, *options, sink),
        Format::Profile => exitless::profile::read(input, *options, sink),
    }
}
