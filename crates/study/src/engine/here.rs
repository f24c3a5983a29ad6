//! This machine as the [`Rig`].

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread;

use exits::with_causes;
use host::Fingerprint;
use knobs::RunningHost;

use super::rig::{Rig, Sampling};
use crate::factor::{HostLevels, InForce, Level, in_force};
use crate::sampling::{HostSamples, SamplePlan, SampledGuest, Sampler, Samples};
use guests::{DataPlanes, Ground, Guest, GuestError, GuestFiles, GuestPlan, HostGuest, start};

/// Finds the files of the guest image, or returns the reason why there are none, with the next step.
pub type FindFiles<'a> = Box<dyn FnMut(&Path) -> Result<GuestFiles, String> + 'a>;

/// This machine: changes its settings with the crate `knobs`, starts the plan's guests, and samples its kernel.
pub struct Here<'a> {
    root: PathBuf,
    folder: PathBuf,
    levels: HostLevels<RunningHost>,
    files: Option<GuestFiles>,
    planes: DataPlanes,
    find_files: FindFiles<'a>,
}

impl<'a> Here<'a> {
    /// Creates the rig. Guests and scripts have their files below `folder`; `find_files` is called when guests need the
    /// image, with a folder for files that it creates.
    pub fn new(folder: &Path, find_files: FindFiles<'a>) -> Self {
        let root = PathBuf::from("/");
        let command = ["exitless", "experiment", "run"].map(str::to_owned).to_vec();
        let levels = HostLevels::new(&root, RunningHost, command);
        Self {
            root,
            folder: folder.to_owned(),
            levels,
            files: None,
            planes: DataPlanes::default(),
            find_files,
        }
    }

    fn ground(&mut self, plan: &GuestPlan) -> Result<Ground, GuestError> {
        if plan.needs_image() && self.files.is_none() {
            let refused = |why| GuestError::Start { name: "guest-0".to_owned(), why };
            self.files = Some((self.find_files)(&self.folder).map_err(refused)?);
        }
        Ok(Ground { folder: self.folder.clone(), files: self.files.clone(), planes: self.planes.clone() })
    }
}

impl Rig for Here<'_> {
    fn apply(&mut self, levels: &[&Level]) -> Result<(), String> {
        self.levels.apply(levels).map_err(|error| with_causes(&error))
    }

    fn undo(&mut self) -> Vec<String> {
        self.levels.undo()
    }

    fn left_over(&mut self) -> Vec<String> {
        self.levels.left_over()
    }

    fn fingerprint(&mut self) -> Fingerprint {
        Fingerprint::read(&self.root).unwrap_or_default()
    }

    fn host(&mut self) -> Result<Box<dyn Guest>, GuestError> {
        Ok(Box::new(HostGuest::new(0, &self.folder.join("host-steps"))?))
    }

    fn start(
        &mut self,
        plan: &GuestPlan,
        _levels: &[&Level],
        there: u32,
        more: u32,
        ending: &AtomicBool,
    ) -> Result<Vec<Box<dyn Guest>>, GuestError> {
        let ground = self.ground(plan)?;
        let ground = &ground;
        let started: Vec<_> = thread::scope(|scope| {
            let start = |index| scope.spawn(move || start(plan, index, ground, ending));
            let starting: Vec<_> = (there..there + more).map(start).collect();
            let ended = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|_| {
                    let why = "a defect of this program ended its start".to_owned();
                    Err(GuestError::Start { name: "guest".to_owned(), why })
                })
            };
            starting.into_iter().map(ended).collect()
        });
        // If one did not start, the others are dropped, which ends them.
        started.into_iter().collect()
    }

    fn sample(&mut self, plan: &SamplePlan, guests: &[SampledGuest]) -> Result<Box<dyn Sampling>, String> {
        let sampler = Sampler::start(plan, &self.root, guests);
        sampler.map(|sampler| -> Box<dyn Sampling> { Box::new(sampler) }).map_err(|error| error.to_string())
    }

    fn in_force(&mut self, levels: &[&Level], guests: &[SampledGuest]) -> InForce {
        in_force(&self.root, levels, guests)
    }
}

impl Sampling for Sampler {
    fn stop(self: Box<Self>) -> Box<dyn Samples> {
        let samples: HostSamples = self.finish();
        Box::new(samples)
    }
}
