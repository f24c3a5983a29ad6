//! What the engine needs of a machine, and where its runs go.

use std::path::{Path, PathBuf};

use host::Fingerprint;

use super::StudyProgress;
use crate::study::factor::{InForce, Level};
use crate::study::guest::{Guest, GuestError, GuestPlan};
use crate::study::record::Run;
use crate::study::sampling::{SamplePlan, SampledGuest, Samples};
use crate::study::store::{Store, StoreError};

/// A machine that can be switched, that has guests, and that can be sampled: this one, or a stand-in.
pub trait Rig {
    /// Puts levels in force, in this order.
    ///
    /// # Errors
    /// Why not, and what to do; what was changed until then is taken back by [`Rig::undo`].
    fn apply(&mut self, levels: &[&Level]) -> Result<(), String>;

    /// Takes back all that is in force; gives what could not be taken back.
    fn undo(&mut self) -> Vec<String>;

    /// The host as it is now.
    fn fingerprint(&mut self) -> Fingerprint;

    /// The host in the place of a guest, for steps that run there.
    ///
    /// # Errors
    /// Where its scripts have no place.
    fn host(&mut self) -> Result<Box<dyn Guest>, GuestError>;

    /// Starts guests beside the `there` that run, as the levels have them.
    ///
    /// # Errors
    /// The first one that does not start; none of the new ones runs then.
    fn start(
        &mut self,
        plan: &GuestPlan,
        levels: &[&Level],
        there: u32,
        more: u32,
    ) -> Result<Vec<Box<dyn Guest>>, GuestError>;

    /// Begins to sample.
    ///
    /// # Errors
    /// Why nothing can be sampled.
    fn sample(&mut self, plan: &SamplePlan, guests: &[SampledGuest]) -> Result<Box<dyn Sampling>, String>;

    /// Whether the levels are in force while the guests are there.
    fn in_force(&mut self, levels: &[&Level], guests: &[SampledGuest]) -> InForce;
}

/// A sampler at work.
pub trait Sampling {
    /// Ends it.
    fn stop(self: Box<Self>) -> Box<dyn Samples>;
}

/// Where runs go: the result folder, or the link to it.
pub trait Sink {
    /// An empty folder for the files of the next run.
    ///
    /// # Errors
    /// Where it cannot be made.
    fn folder(&mut self) -> Result<PathBuf, StoreError>;

    /// Takes a run, whole or failed, with its files.
    ///
    /// # Errors
    /// Where it cannot be kept.
    fn keep(&mut self, run: &Run, folder: &Path) -> Result<(), StoreError>;

    /// Tells how far the study is.
    fn progress(&mut self, progress: &StudyProgress);
}

/// A result folder on this machine, and who is told of the progress.
pub struct Kept<'a> {
    /// The result folder.
    pub store: &'a mut Store,
    /// Is told.
    pub on_progress: &'a mut dyn FnMut(&StudyProgress),
}

impl Sink for Kept<'_> {
    fn folder(&mut self) -> Result<PathBuf, StoreError> {
        self.store.unfinished()
    }

    fn keep(&mut self, run: &Run, folder: &Path) -> Result<(), StoreError> {
        self.store.keep(run, folder)
    }

    fn progress(&mut self, progress: &StudyProgress) {
        (self.on_progress)(progress);
    }
}
