//! Writing a study's result folder, which contains complete runs only.
//!
//! A run's files are written below `.unfinished`, synced, and renamed to their place. If the writer dies, the folder
//! contains complete runs and at most one unfinished run, which the next writer removes.

pub(crate) mod durable;
mod error;
mod folder;
pub(crate) mod json;
mod place;

pub use error::StoreError;
pub use folder::{KeptRun, StudyFolder};
pub(crate) use place::Place;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use host::Fingerprint;
use host::kvm::KEPT_BY_KVM;
use rustix::fs::{FlockOperation, OFlags, flock};

use super::factor::Level;
use super::plan::Plan;
use super::record::{Cell, Resumption, Run, STUDY_FORMAT, Study};
use super::stream::Asked;

const PLAN: &str = "plan.toml";
/// The file whose presence makes a folder the result of a study.
pub(crate) const STUDY: &str = "study.json";
const RUN: &str = "run.json";
const RUNS: &str = "runs";
const FAILED: &str = "failed";
const UNFINISHED: &str = ".unfinished";
/// The suffix of the names of damaged runs below `failed`.
const DAMAGED: &str = "-damaged";
/// The suffix of the names of whole runs below `failed` that a later session has made again.
const REPLACED: &str = "-replaced";
const LOCK: &str = ".lock";
/// The name of exitless's version in lists of differences between hosts.
const EXITLESS: &str = "exitless";

/// A result folder that this process writes.
#[derive(Debug)]
pub struct Store {
    /// The path that the user gave.
    folder: PathBuf,
    place: Place,
    plan: Plan,
    target: String,
    seed: u64,
    /// `None` before [`Store::begin`] of a new study.
    study: Option<Study>,
    runs: Vec<Run>,
    /// The names of the folders of those runs that earlier sessions made.
    earlier: BTreeMap<Cell, String>,
    failed: Vec<Run>,
    warnings: Vec<String>,
    unfinished: u32,
    _lock: File,
}

impl Store {
    /// Creates the folder, or opens one that holds a part of the same study. `text` is the plan as given,
    /// `seed` that of a new study.
    ///
    /// # Errors
    /// If the folder holds something else, a study of another plan or target, or one whose description is damaged, if
    /// another process writes it, if others can put files into it, or if it cannot be written.
    pub fn open(folder: &Path, plan: &Plan, text: &str, target: &str, seed: u64) -> Result<Self, StoreError> {
        let place = Place::open(folder)?;
        let lock = lock(folder, &place)?;
        // Open it by the user's path, which appears in warnings and errors; this only reads.
        let found =
            is_there(&place.path.join(STUDY)).then(|| StudyFolder::open_to_continue(folder)).transpose()?;
        if found.is_none() {
            refuse_strangers(folder, &[PLAN, RUNS, FAILED, UNFINISHED, LOCK])?;
        }
        let unfinished = place.path.join(UNFINISHED);
        if is_there(&unfinished) {
            fs::remove_dir_all(&unfinished).map_err(StoreError::file("Could not remove", &unfinished))?;
        }
        for name in [RUNS, FAILED, UNFINISHED] {
            make(&place.path.join(name))?;
        }
        let mut store = Self {
            folder: folder.to_owned(),
            place,
            plan: plan.clone(),
            target: target.to_owned(),
            seed: plan.order.seed.unwrap_or(seed),
            study: None,
            runs: Vec::new(),
            earlier: BTreeMap::new(),
            failed: Vec::new(),
            warnings: Vec::new(),
            unfinished: 0,
            _lock: lock,
        };
        match found {
            Some(found) => store.go_on(found)?,
            None => durable::write(&store.place.path.join(PLAN), text.as_bytes())?,
        }
        Ok(store)
    }

    fn go_on(&mut self, found: StudyFolder) -> Result<(), StoreError> {
        let folder = self.folder.clone();
        if !found.is_described {
            return Err(StoreError::Undescribed { folder });
        }
        let fields = json::differences(&found.study.plan, &self.plan);
        if !fields.is_empty() {
            return Err(StoreError::OtherPlan { folder, fields });
        }
        if found.study.target != self.target {
            let (then, now) = (found.study.target, self.target.clone());
            return Err(StoreError::OtherTarget { folder, then, now });
        }
        self.seed = found.study.seed;
        self.study = Some(found.study);
        let named = found.runs.iter().filter_map(|kept| {
            Some((kept.run.cell.clone(), kept.folder.file_name()?.to_string_lossy().into_owned()))
        });
        self.earlier = named.collect();
        self.runs = found.runs.into_iter().map(|kept| kept.run).collect();
        self.failed = found.failed.into_iter().map(|kept| kept.run).collect();
        self.warnings = found.warnings;
        Ok(())
    }

    /// Moves all runs away except for the whole ones.
    fn set_damaged_aside(&self) -> Result<(), StoreError> {
        let whole: BTreeSet<&String> = self.earlier.values().collect();
        for name in folder::names(&self.place.path.join(RUNS))? {
            if !whole.contains(&name) {
                self.set_aside(&name, DAMAGED)?;
            }
        }
        Ok(())
    }

    /// Moves the folder of a run from `runs` to `failed`.
    fn set_aside(&self, name: &str, suffix: &str) -> Result<(), StoreError> {
        let aside = self.free_name(&format!("{name}{suffix}"));
        let from = self.place.path.join(RUNS).join(name);
        fs::rename(from, &aside).map_err(StoreError::file("Could not move", &aside))
    }

    /// The number of the session that makes the coming runs.
    fn session(&self) -> u32 {
        let resumed = self.study.as_ref().map_or(0, |study| study.resumed.len());
        u32::try_from(resumed).unwrap_or(u32::MAX)
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The seed of the random orders.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The complete runs.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The failed attempts.
    pub fn failed(&self) -> &[Run] {
        &self.failed
    }

    /// Warnings about damage found when the folder was opened.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Tests whether the study has been started.
    pub fn began(&self) -> bool {
        self.study.is_some()
    }

    /// Records the host of the coming runs, and moves damaged runs away. A study with attempts must be on the host and have
    /// the version of exitless that it was started with; one without is started anew.
    ///
    /// # Errors
    /// [`StoreError::OtherHost`] unless `allow_unlike` is set; or if `study.json` cannot be written or a run not be moved.
    pub fn begin(
        &mut self,
        fingerprint: &Fingerprint,
        emulated: Option<&str>,
        allow_unlike: bool,
    ) -> Result<(), StoreError> {
        // Those count that this version cannot read: a newer one may have made them.
        let [runs, failed] = [RUNS, FAILED].map(|name| folder::names(&self.place.path.join(name)));
        let has_attempts = !runs?.is_empty() || !failed?.is_empty();
        let earlier = self.study.clone().filter(|_| has_attempts);
        let continues = earlier.is_some();
        let mut study = match earlier {
            None => Study {
                format: STUDY_FORMAT,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                seed: self.seed,
                plan: self.plan.clone(),
                target: self.target.clone(),
                fingerprint: fingerprint.clone(),
                emulated: emulated.map(str::to_owned),
                started: now(),
                resumed: Vec::new(),
            },
            Some(study) => study,
        };
        if continues {
            // Versions may differ in what they measure and how they start guests.
            let version = env!("CARGO_PKG_VERSION").to_owned();
            let other_version = (study.version != version)
                .then(|| (EXITLESS.to_owned(), Some(study.version.clone()), Some(version)));
            let mut unlike = self.unlike(&study.fingerprint, fingerprint);
            unlike.extend(other_version);
            if !unlike.is_empty() && !allow_unlike {
                return Err(StoreError::OtherHost { folder: self.folder.clone(), unlike });
            }
            study.resumed.push(Resumption { at: now(), unlike });
        }
        let text = serde_json::to_vec_pretty(&study).map_err(StoreError::json(&self.folder.join(STUDY)))?;
        durable::write(&self.place.path.join(STUDY), &text)?;
        self.study = Some(study);
        // Move damaged runs away instead of deleting them; the runs that replace them need their names.
        self.set_damaged_aside()
    }

    /// Checks that runs on this host can be added to the existing runs.
    ///
    /// # Errors
    /// [`StoreError::OtherHost`].
    pub(crate) fn same_host(&self, fingerprint: &Fingerprint) -> Result<(), StoreError> {
        let unlike = self.study.as_ref().map(|study| self.unlike(&study.fingerprint, fingerprint));
        match unlike.filter(|unlike| !unlike.is_empty()) {
            Some(unlike) => Err(StoreError::OtherHost { folder: self.folder.clone(), unlike }),
            None => Ok(()),
        }
    }

    /// The fields in which the hosts differ, except for module parameters that the plan itself varies, and those that
    /// loading their module again may clear.
    fn unlike(&self, then: &Fingerprint, now: &Fingerprint) -> Vec<host::Difference> {
        let levels = self.plan.factors.iter().flat_map(|factor| &factor.levels);
        let varied: BTreeSet<String> = levels
            .flat_map(Level::parameters)
            .flat_map(|(module, name)| {
                let with_it = std::iter::once(name).chain(KEPT_BY_KVM);
                with_it.map(move |name| format!("modules.{module}.{name}"))
            })
            .collect();
        then.differences(now).into_iter().filter(|(field, ..)| !varied.contains(field)).collect()
    }

    /// Creates an empty folder for the files of a run in progress.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn unfinished(&mut self) -> Result<PathBuf, StoreError> {
        self.unfinished += 1;
        let path = self.place.path.join(UNFINISHED).join(self.unfinished.to_string());
        fs::create_dir_all(&path).map_err(StoreError::file("Could not create", &path))?;
        Ok(path)
    }

    /// Stores a run whose files are in `unfinished`, as complete or as failed, with the number of this session. A
    /// complete run of an earlier session is then set aside. A second one of this session is dropped: somebody may already
    /// have read the first.
    ///
    /// # Errors
    /// [`StoreError::Stranger`] for a run of another plan, or if it cannot be written.
    pub fn keep(&mut self, run: &Run, unfinished: &Path) -> Result<(), StoreError> {
        // Check the run: it may come from another machine, and the folder's name is derived from it.
        if let Some(why) = folder::stranger(run, &self.plan, &Asked::of(&self.plan, self.seed)) {
            return Err(StoreError::Stranger { folder: self.folder.clone(), why });
        }
        // Counted here, not on the machine that made the run.
        let run = Run { session: self.session(), ..run.clone() };
        let path = unfinished.join(RUN);
        let text = serde_json::to_vec_pretty(&run).map_err(StoreError::json(&path))?;
        durable::write(&path, &text)?;
        durable::sync_tree(unfinished)?;
        let name = run.cell.folder_name(run.position);
        let place = match &run.failure {
            None => self.place.path.join(RUNS).join(name),
            Some(_) => self.free_name(&format!("{name}-{}", run.attempt)),
        };
        if let Some(earlier) = run.failure.is_none().then(|| self.earlier.remove(&run.cell)).flatten() {
            self.set_aside(&earlier, REPLACED)?;
            self.runs.retain(|replaced| replaced.cell != run.cell);
        }
        if is_there(&place) {
            tracing::warn!("{} already exists; the second one is dropped", place::shown(&place).display());
            return fs::remove_dir_all(unfinished).map_err(StoreError::file("Could not remove", unfinished));
        }
        fs::rename(unfinished, &place).map_err(StoreError::file("Could not move", &place))?;
        files::sync_parent(&place).map_err(StoreError::file("Could not sync to the disk", &place))?;
        if run.failure.is_none() {
            self.runs.push(run);
        } else {
            self.failed.push(run);
        }
        Ok(())
    }

    /// An unused name below `failed`.
    fn free_name(&self, name: &str) -> PathBuf {
        let failed = self.place.path.join(FAILED);
        let numbered = (1..).map(|number: u32| failed.join(format!("{name}.{number}")));
        let mut names = std::iter::once(failed.join(name)).chain(numbered);
        names.find(|path| !is_there(path)).unwrap_or_else(|| failed.join(name))
    }
}

fn lock(folder: &Path, place: &Place) -> Result<File, StoreError> {
    let path = folder.join(LOCK);
    let file = place.directory.open_file(LOCK, OFlags::WRONLY | OFlags::CREATE, 0o666);
    let file = file.map_err(StoreError::file("Could not write", &path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::AGAIN) => Err(StoreError::Busy { folder: folder.to_owned() }),
        Err(errno) => Err(StoreError::File { what: "Could not lock", path, source: errno.into() }),
    }
}

/// Creates a directory, or keeps an existing one. A link is refused: it would redirect the runs.
fn make(path: &Path) -> Result<(), StoreError> {
    let made = fs::create_dir(path).or_else(|error| match path.symlink_metadata() {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(io::Error::other("it is a link or a file; remove it, or name another folder")),
        Err(_) => Err(error),
    });
    made.map_err(StoreError::file("Could not create", path))
}

/// Refuses a folder without `study.json` that contains anything but the files of a writer that was stopped before it
/// wrote that file.
pub(crate) fn refuse_strangers(folder: &Path, ours: &[&str]) -> Result<(), StoreError> {
    // Temporary names of files that are being written; ".writing-" was used by earlier versions.
    let unfinished =
        |name: &str| name.starts_with(".writing-") || name.starts_with('.') && name.contains(".new-");
    let strange = |name: &String| !ours.contains(&name.as_str()) && !unfinished(name);
    match folder::names(folder)?.into_iter().find(strange) {
        Some(found) => Err(StoreError::Strange { folder: folder.to_owned(), found }),
        None => Ok(()),
    }
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
