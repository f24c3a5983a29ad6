//! Reading a study's result folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use exits::counted;
use serde_json::Value;

use super::json;
use super::{DAMAGED, FAILED, PLAN, REPLACED, RUN, RUNS, STUDY, StoreError};
use crate::plan::Plan;
use crate::record::{Run, STUDY_FORMAT, Study};
use crate::stream::Asked;

/// The complete parts of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct StudyFolder {
    /// Its path.
    pub folder: PathBuf,
    /// The study.
    pub study: Study,
    /// The study is from `study.json`. Otherwise that file is damaged, and the study was reconstructed from other
    /// files.
    pub is_described: bool,
    /// Complete runs, by their position in the order.
    pub runs: Vec<KeptRun>,
    /// Attempts that failed, each with the reason in its `failure`.
    pub failed: Vec<KeptRun>,
    /// Warnings about files that are damaged or do not belong there, and were left out.
    pub warnings: Vec<String>,
}

/// A run and its files.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptRun {
    /// The content of `run.json`.
    pub run: Run,
    /// The folder of its files.
    pub folder: PathBuf,
}

impl StudyFolder {
    /// Reads the whole folder. Leaves out runs that are damaged or do not belong to this study, with a warning that
    /// names the file and the byte.
    ///
    /// # Errors
    /// If there is no study, or one that a newer program wrote.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        Self::read(folder, false)
    }

    /// As [`StudyFolder::open`], for a study that is to continue: its runs that are left out will be made again.
    ///
    /// # Errors
    /// Also if a run that may be whole cannot be read.
    pub(super) fn open_to_continue(folder: &Path) -> Result<Self, StoreError> {
        Self::read(folder, true)
    }

    /// Tests whether a file, which need not exist, is one from which the study in `folder` is read.
    pub fn is_read(folder: &Path, file: &Path) -> bool {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let new = || Some(parent.canonicalize().ok()?.join(file.file_name()?));
        let (Ok(folder), Some(file)) = (folder.canonicalize(), file.canonicalize().ok().or_else(new)) else {
            return false;
        };
        [PLAN, STUDY].iter().any(|name| file == folder.join(name))
            || [RUNS, FAILED].iter().any(|name| file.starts_with(folder.join(name)))
    }

    fn read(folder: &Path, continues: bool) -> Result<Self, StoreError> {
        let mut warnings = Vec::new();
        let mut kept = |place| kept(folder, place, continues, &mut warnings);
        let (runs, failed) = (kept(RUNS)?, kept(FAILED)?);
        let (study, is_described) = study(folder, &runs, &mut warnings)?;
        let mut read = Self { folder: folder.to_owned(), study, is_described, runs, failed, warnings };
        read.leave_strangers_out();
        Ok(read)
    }

    fn leave_strangers_out(&mut self) {
        let plan = &self.study.plan;
        let asked = Asked::of(plan, self.study.seed);
        let stranger = |run: &Run| stranger(run, plan, &asked);
        let warnings = &mut self.warnings;
        let mut seen = BTreeSet::new();
        self.runs.retain(|kept| {
            let why = match stranger(&kept.run) {
                None if kept.run.failure.is_some() => {
                    Some("it is a failed run in the place of a complete one".to_owned())
                }
                None if !seen.insert(kept.run.cell.clone()) => Some("another run has its place".to_owned()),
                why => why,
            };
            note(warnings, kept, why)
        });
        // Whether a study is complete depends on the blocks of failed runs, which follow from their positions. Within a
        // block earlier versions had another order.
        let misplaced = |run: &Run| {
            let (at, block) = (run.position, run.cell.block);
            let why = || format!("position {at} of the order is not in its block {block}");
            (!asked.is_in_block(&run.cell, at)).then(why)
        };
        self.failed.retain(|kept| note(warnings, kept, stranger(&kept.run).or_else(|| misplaced(&kept.run))));
    }
}

/// Adds a warning if there is a reason to leave out a run; returns true if there is none.
fn note(warnings: &mut Vec<String>, kept: &KeptRun, why: Option<String>) -> bool {
    if let Some(why) = &why {
        warnings.push(format!("{}: left out: {why}", kept.folder.display()));
    }
    why.is_none()
}

/// The reason why a run does not belong to the plan, if any. Ignores the position, which follows from the seed, which
/// may be unknown.
pub(super) fn stranger(run: &Run, plan: &Plan, asked: &Asked) -> Option<String> {
    let cell = &run.cell;
    if !plan.workloads.iter().any(|workload| workload.name == cell.workload) {
        return Some(format!("the plan has no workload {:?}", cell.workload));
    }
    let known = cell.arm.len() == plan.factors.len()
        && plan.factors.iter().all(|factor| {
            cell.arm
                .get(&factor.name)
                .is_some_and(|name| factor.levels.iter().any(|level| level.name == *name))
        });
    if !known {
        let levels: Vec<_> = cell.arm.iter().map(|(factor, level)| format!("{factor}={level}")).collect();
        return Some(format!("the plan has no arm {:?}", levels.join(" ")));
    }
    let guests = || counted(u64::from(cell.guests), "guest");
    (!asked.has_cell(cell)).then(|| format!("the plan has no block {} of it with {}", cell.block, guests()))
}

/// Tests whether a name below `failed` is that of a run that was moved there from `runs`, because it was damaged or made
/// again.
fn was_set_aside(name: &str) -> bool {
    let is_number = |rest: &str| rest.strip_prefix('.').is_some_and(|number| number.parse::<u32>().is_ok());
    let has = |suffix| name.rsplit_once(suffix).is_some_and(|(_, rest)| rest.is_empty() || is_number(rest));
    has(DAMAGED) || has(REPLACED)
}

fn kept(
    folder: &Path,
    place: &str,
    continues: bool,
    warnings: &mut Vec<String>,
) -> Result<Vec<KeptRun>, StoreError> {
    let is_of_failed = place == FAILED;
    let place = folder.join(place);
    let mut runs = Vec::new();
    for name in names(&place)?.into_iter().filter(|name| !(is_of_failed && was_set_aside(name))) {
        let folder = place.join(name);
        let path = folder.join(RUN);
        let content = match json::bytes(&path) {
            Err(error) if continues && json::may_be_whole(&error) => {
                return Err(StoreError::file("Could not read", &path)(error));
            }
            content => content,
        };
        match json::value::<Run>(&path, content) {
            Ok(run) => runs.push(KeptRun { run, folder }),
            Err(warning) => warnings.push(warning),
        }
    }
    runs.sort_by_key(|kept| (kept.run.position, kept.run.attempt));
    Ok(runs)
}

/// The content of `study.json` and true, or what is known without it and false.
fn study(folder: &Path, runs: &[KeptRun], warnings: &mut Vec<String>) -> Result<(Study, bool), StoreError> {
    let path = folder.join(STUDY);
    let damage = match json::read::<Value>(&path) {
        Ok(value) => {
            let format = value.get("format").and_then(Value::as_u64).unwrap_or(0);
            if format > u64::from(STUDY_FORMAT) {
                return Err(StoreError::Format { folder: folder.to_owned(), found: format });
            }
            match serde_json::from_value::<Study>(value) {
                Ok(study) => match study.plan.too_large() {
                    None => return Ok((study, true)),
                    Some(problem) => format!("{}: plan.{}: {}", path.display(), problem.field, problem.what),
                },
                Err(error) => format!("{}: {error}", path.display()),
            }
        }
        Err(damage) => damage,
    };
    let plan = json::bytes(&folder.join(PLAN)).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let plan = plan.and_then(|text| Plan::read(&text, PLAN).ok());
    let (Some(plan), Some(first)) = (plan, runs.first()) else {
        return Err(StoreError::NoStudy { folder: folder.to_owned() });
    };
    warnings.push(format!("{damage}; the plan is that of plan.toml, the host that of the first run"));
    let study = Study {
        format: STUDY_FORMAT,
        version: "unknown".to_owned(),
        seed: plan.order.seed.unwrap_or(0),
        plan,
        target: "unknown".to_owned(),
        fingerprint: first.run.fingerprint.clone(),
        emulated: None,
        started: first.run.started,
        resumed: Vec::new(),
    };
    Ok((study, false))
}

/// Names in a folder, sorted; empty if the folder does not exist.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, StoreError> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let failed = || StoreError::file("Could not read", folder);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed())? {
        names.push(entry.map_err(failed())?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}
