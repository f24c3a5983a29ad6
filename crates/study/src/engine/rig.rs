//! The engine's interfaces to the machine and to the storage.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use host::Fingerprint;

use super::failures::ToldReasons;
use super::progress::StudyProgress;
use crate::factor::{InForce, Level};
use crate::record::Run;
use crate::sampling::{SamplePlan, SampledGuest, Samples};
use crate::store::{Store, StoreError};
use guests::{Guest, GuestError, GuestPlan};

/// A machine whose settings can be changed, that runs guests and can be sampled: this one, or a mock.
pub trait Rig {
    /// Applies levels, in this order.
    ///
    /// # Errors
    /// The reason, and the next step. Changes made until then are undone by [`Rig::undo`].
    fn apply(&mut self, levels: &[&Level]) -> Result<(), String>;

    /// Undoes all changes; returns those that could not be undone.
    fn undo(&mut self) -> Vec<String>;

    /// Changes of other sessions that are in force, or the reason why that is unknown, as text.
    fn left_over(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// The current fingerprint of the host.
    fn fingerprint(&mut self) -> Fingerprint;

    /// The host as a guest, for steps that run there.
    ///
    /// # Errors
    /// If the folder for its scripts cannot be created.
    fn host(&mut self) -> Result<Box<dyn Guest>, GuestError>;

    /// Starts `more` guests in addition to the `there` running ones, with the settings of the levels. They are not waited
    /// for once `ending` is set.
    ///
    /// # Errors
    /// The error of the first one that does not start; then none of the new guests keeps running.
    fn start(
        &mut self,
        plan: &GuestPlan,
        levels: &[&Level],
        there: u32,
        more: u32,
        ending: &AtomicBool,
    ) -> Result<Vec<Box<dyn Guest>>, GuestError>;

    /// Starts to sample.
    ///
    /// # Errors
    /// The reason why nothing can be sampled.
    fn sample(&mut self, plan: &SamplePlan, guests: &[SampledGuest]) -> Result<Box<dyn Sampling>, String>;

    /// Checks that the levels are in force while the guests run.
    fn in_force(&mut self, levels: &[&Level], guests: &[SampledGuest]) -> InForce;
}

/// A running sampler.
pub trait Sampling {
    /// Stops it.
    fn stop(self: Box<Self>) -> Box<dyn Samples>;
}

/// The storage of runs: the result folder, or the connection to it.
pub trait Sink {
    /// Creates an empty folder for the files of the next run.
    ///
    /// # Errors
    /// If it cannot be created.
    fn folder(&mut self) -> Result<PathBuf, StoreError>;

    /// Stores a run, complete or failed, with its files.
    ///
    /// # Errors
    /// If it cannot be stored.
    fn keep(&mut self, run: &Run, folder: &Path) -> Result<(), StoreError>;

    /// Reports the progress of the study.
    fn progress(&mut self, progress: &StudyProgress);
}

/// A result folder on this machine, with a callback for progress. Failed runs are warned of.
pub struct Kept<'a> {
    /// The result folder.
    pub store: &'a mut Store,
    /// The callback for progress.
    pub on_progress: &'a mut dyn FnMut(&StudyProgress),
    /// The reasons that were already reported.
    pub told: ToldReasons,
}

impl Sink for Kept<'_> {
    fn folder(&mut self) -> Result<PathBuf, StoreError> {
        self.store.unfinished()
    }

    fn keep(&mut self, run: &Run, folder: &Path) -> Result<(), StoreError> {
        self.store.keep(run, folder)?;
        if let Some(line) = self.told.of(run) {
            tracing::warn!("{line}");
        }
        Ok(())
    }

    fn progress(&mut self, progress: &StudyProgress) {
        (self.on_progress)(progress);
    }
}
