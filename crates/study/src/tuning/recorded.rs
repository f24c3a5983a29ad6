//! The exits that runs of a study recorded.

use std::path::Path;

use exits::{Profile, Vcpu};
use traces::{Options, Source};

use super::step::FACTOR;
use crate::sampling::{PROFILE, REPETITION};
use crate::store::{StoreError, StudyFolder};

/// Exits of runs of one arm, all guests together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recorded {
    /// The exits, merged as if of one VM: each run had other processes.
    pub profile: Profile,
    /// The total time over all runs, in nanoseconds.
    pub observed_ns: u64,
}

/// The number of the VM that represents all guests in [`Recorded::profile`].
pub(super) const GUESTS: u32 = 0;

/// The reason why there are no recorded exits.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// The folder cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A profile cannot be read.
    #[error("Reading {path} failed")]
    Profile {
        /// Its path.
        path: String,
        /// The cause.
        source: traces::Error,
    },
    /// No run has a profile.
    #[error(
        "No run in {folder} recorded its exits by reason, which takes root and a kernel with BTF (`exitless stat` says what is missing)"
    )]
    None {
        /// The study's folder.
        folder: String,
    },
}

/// The exits of all runs below `folder` in which the change is `level`.
///
/// # Errors
/// [`RecordedError`].
pub fn recorded(folder: &Path, level: &str) -> Result<Recorded, RecordedError> {
    let study = StudyFolder::open(folder)?;
    let mut all = Recorded::default();
    let of_level =
        |kept: &&crate::store::KeptRun| kept.run.cell.arm.get(FACTOR).is_some_and(|name| name == level);
    for kept in study.runs.iter().filter(of_level) {
        let places = [kept.folder.join(PROFILE), kept.folder.join(REPETITION).join(PROFILE)];
        let Some(path) = places.into_iter().find(|path| path.is_file()) else { continue };
        let reading = traces::read(&Source::Path(path.clone()), &Options::default(), &mut ())
            .map_err(|source| RecordedError::Profile { path: path.display().to_string(), source })?;
        all.add(&reading.profile);
    }
    if all.profile.is_empty() {
        return Err(RecordedError::None { folder: folder.display().to_string() });
    }
    Ok(all)
}

impl Recorded {
    /// Adds the exits of a run.
    pub fn add(&mut self, profile: &Profile) {
        self.observed_ns = self.observed_ns.saturating_add(profile.span.map_or(0, exits::Span::length_ns));
        for of_vcpu in profile.vcpus() {
            let vcpu = Vcpu { vm: Some(GUESTS), number: of_vcpu.vcpu.number, thread: None };
            let sum = self.profile.vcpu(vcpu);
            for (&reason, exits) in &of_vcpu.reasons {
                sum.reasons.entry(reason).or_default().merge(exits);
            }
            for (&access, exits) in &of_vcpu.accesses {
                sum.accesses.entry(access).or_default().merge(exits);
            }
        }
    }
}

#[cfg(test)]
#[path = "recorded_tests.rs"]
pub(super) mod tests;
