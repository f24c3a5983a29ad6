//! Samples of the host while a workload runs.

mod access;
mod exit;
mod exit_figures;
mod figures;
mod frequency;
mod guest_threads;
mod interrupt;
mod names;
mod plan;
mod processor;
mod reading;
mod sampler;
mod table;
mod thread;
mod traced;

use std::path::Path;

use super::Metric;

pub(crate) use access::MOST_PLACES;
pub(crate) use names::is_of_exits;
pub use names::{SAMPLED, is_sampled};
pub use plan::{Apart, BadInterval, ExitCounting, SamplePlan};
pub use processor::{NoProcessorTimes, guest_processor_time};
pub(crate) use reading::NO_FREQUENCIES;
pub use sampler::{HostSamples, Sampler};

/// A mock host with a guest, for tests.
#[cfg(test)]
pub(crate) use sampler::tests::GUEST as FAKE_GUEST;

/// The profile of VM exits among the files of a run.
pub(crate) const PROFILE: &str = "exits.json";

/// The folder among the files of a run that has those of the repetition in which exits were counted.
pub(crate) const REPETITION: &str = "counted";

/// A guest whose threads are sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampledGuest {
    /// Its name.
    pub name: String,
    /// Its process on this host.
    pub process: i32,
}

/// The samples of a run, after its end.
pub trait Samples {
    /// The run's figures: CPU by state, run-queue wait, exits by reason.
    fn metrics(&self) -> Vec<Metric>;

    /// The duration of sampling, in seconds.
    fn seconds(&self) -> f64;

    /// The duration for which exits were counted, in seconds, if it is another one.
    fn exits_seconds(&self) -> Option<f64>;

    /// Missing and lost samples, with the reasons.
    fn warnings(&self) -> Vec<String>;

    /// Writes the raw samples below `folder`.
    ///
    /// # Errors
    /// If a file cannot be written.
    fn write(&self, folder: &Path) -> std::io::Result<()>;
}
