//! Counts VM exits of given threads while they happen, exactly.
//!
//! The kernel's `kvm_exit` and `kvm_entry` tracepoints are sampled by `perf_event_open(2)`, each occurrence, into one
//! ring buffer per thread. The kernel also counts the occurrences, even if the buffer is full, so the number of lost
//! exits is exact.
//!
//! ```no_run
//! # fn main() -> Result<(), live::Error> {
//! let tracefs = live::Tracefs::find(std::path::Path::new("/"))?;
//! let mut counter = live::ExitCounter::attach(&tracefs, &[4711, 4712])?;
//! counter.enable()?;
//! // ... the guest runs ...
//! counter.disable()?;
//! for thread in counter.drain()? {
//!     println!("{}: {} exits, {} lost", thread.thread, thread.counts.total(), thread.counts.lost);
//! }
//! # Ok(())
//! # }
//! ```

mod aside;
mod changes;
mod clock;
mod collector;
mod counter;
mod decode;
mod error;
mod inhibit;
mod loader;
mod lockdown;
mod long;
mod perf;
pub mod qmp;
mod record;
mod ring;
mod sampler;
mod spans;
pub mod statistics;
mod threads;
pub mod trace;
mod tracefs;
mod vm_state;
mod waiting;
mod xentrace;
mod xentrace_following;

pub use aside::{Aside, PATIENCE};
pub use changes::{Changes, ChangesWatch, HostChanges, PostingChange};
pub use clock::monotonic_ns;
pub use collector::{
    Collector, Cost, LiveAccess, LiveExit, Mechanism, Profiler, ProgramCost, Recorder, Sampling, Watch,
    in_first_pid_namespace, need_first_pid_namespace, type_information,
};
pub use counter::{ExitCounter, Options};
pub use decode::ThreadExits;
pub use error::Error;
pub use inhibit::{InhibitChange, inhibit_numbering};
pub use long::{LongOccurrence, LongSummary, LongTracer};
pub use record::{Record, Records, Sample, records};
pub use sampler::{EventTotal, ThreadSamples, TracepointSampler};
pub use threads::threads_of;
pub use tracefs::Tracefs;
pub use tracepoints::{EventFormat, Field, FormatError, Symbol, SymbolTable, Symbols};
pub use vm_state::{StateReader, VcpuPlace, VmKey};
pub use waiting::pause;
pub use xentrace::{Xentrace, XentraceError, XentraceOutput};
pub use xentrace_following::{Following, xentrace_program};
