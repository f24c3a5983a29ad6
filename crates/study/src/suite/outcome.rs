//! The outcome of a suite: each published figure beside the measured one.

use std::collections::BTreeMap;
use std::path::Path;

use exits::with_causes;
use serde::Serialize;
use stats::{Contrast, Interval, Scale};

use super::{Published, Suite, SuiteStudy, is_part};
use crate::Unit;
use crate::analysis::{Arm, Collected, Comparison, Findings, Warning, analyse, difference};
use crate::sampling::NO_FREQUENCIES;
use crate::store::StudyFolder;

/// Format version of [`SuiteOutcome`].
pub const SUITE_FORMAT: u32 = 1;

/// The studies of a suite that have been run, by name, or as text the errors of folders that could not be read.
pub type SuiteFolder = BTreeMap<String, Result<MadeStudy, String>>;

/// A study that has been run.
#[derive(Debug, Clone, PartialEq)]
pub struct MadeStudy {
    /// The contents of its folder.
    pub collected: Collected,
    /// Its findings, or as text the reason why there are none.
    pub findings: Result<Findings, String>,
    /// Runs of different hosts may be compared.
    pub allow_unlike: bool,
}

impl MadeStudy {
    /// Analyses a study. The runs of one arm must be from one host, unless `allow_unlike` is set.
    pub fn new(collected: Collected, allow_unlike: bool) -> Self {
        let findings = analyse(&collected, allow_unlike).map_err(|error| error.to_string());
        Self { collected, findings, allow_unlike }
    }
}

/// A suite's studies with their figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SuiteOutcome {
    /// [`SUITE_FORMAT`].
    pub format: u32,
    /// The suite's name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Its studies, in the suite's order.
    pub studies: Vec<StudyOutcome>,
}

/// A study and its figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StudyOutcome {
    /// The study as the suite describes it, without its figures.
    #[serde(flatten)]
    pub study: SuiteStudy,
    /// The number of valid runs.
    pub runs: usize,
    /// The number of planned runs; 0 if the study was not begun.
    pub planned: usize,
    /// The number of attempts that failed.
    pub failed: usize,
    /// The emulator of the target's processors, if they are emulated.
    pub emulated: Option<String>,
    /// The reason why nothing is compared, if nothing is.
    pub why_not: Option<String>,
    /// Warnings that make the figures unreliable until they are explained, those of the runs themselves, and those about
    /// the comparison with another study.
    pub warnings: Vec<Warning>,
    /// The figures, in the suite's order.
    pub figures: Vec<FigureOutcome>,
}

/// A published figure beside the measured one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FigureOutcome {
    /// The published one.
    #[serde(flatten)]
    pub published: Published,
    /// The measured one; `None` if there is no such comparison.
    pub measured: Option<Measured>,
    /// Their relation; `None` if one of them is missing.
    pub agreement: Option<Agreement>,
}

/// A measured change.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measured {
    /// The figure's unit.
    pub unit: Unit,
    /// The levels of the baseline and the arm, in that unit.
    pub levels: [f64; 2],
    /// The figure is a percentage, so the change is in points; otherwise it is in percent of the baseline.
    pub in_points: bool,
    /// The change.
    pub change: f64,
    /// Its 95 % interval; `None` with fewer than three repeats.
    pub interval: Option<Interval>,
    /// The number of blocks; between two studies the smaller number of repeats.
    pub repeats: usize,
}

/// The relation of a measured change to a published one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// The interval and the published range overlap. The interval excludes zero, or the published range includes it.
    Agrees,
    /// The interval includes zero and published changes, but zero is none of these: it supports neither.
    Open,
    /// They do not overlap, but both changes have the same sign.
    SameSign,
    /// The interval excludes zero; the published range includes zero, but no change with the interval's sign.
    OnlyHere,
    /// The interval excludes zero, and the published change has the other sign.
    OtherSign,
    /// The interval includes zero, but no published change.
    NotSeen,
    /// There are too few repeats for an interval.
    TooFew,
}

/// Compares what was measured with what was published.
pub fn outcome(suite: &Suite, folder: &SuiteFolder) -> SuiteOutcome {
    let studies = suite.studies.iter().map(|study| of_study(study, folder)).collect();
    SuiteOutcome { format: SUITE_FORMAT, name: suite.name.clone(), title: suite.title.clone(), studies }
}

/// Reads the studies of a suite from its result folder, without those that were not started. `allow_unlike` is that of
/// [`MadeStudy::new`].
pub fn read(suite: &Suite, folder: &Path, allow_unlike: bool) -> SuiteFolder {
    let begun =
        suite.studies.iter().filter(|study| folder.join(&study.name).join(crate::store::STUDY).exists());
    let read = |study: &SuiteStudy| match StudyFolder::open(&folder.join(&study.name)) {
        Ok(read) => Ok(MadeStudy::new(read.into(), allow_unlike)),
        Err(error) => Err(with_causes(&error)),
    };
    begun.map(|study| (study.name.clone(), read(study))).collect()
}

fn of_study(study: &SuiteStudy, folder: &SuiteFolder) -> StudyOutcome {
    let own = folder.get(&study.name);
    let collected = own.and_then(|read| Some(&read.as_ref().ok()?.collected));
    let compared = match own {
        None => Err("it was not made yet".to_owned()),
        Some(Err(error)) => Err(error.clone()),
        Some(Ok(made)) => compared(study, made, folder),
    };
    let (Compared { measured, warnings }, why_not) = match compared {
        Ok(compared) => (compared, None),
        Err(why) => (Compared { measured: vec![None; study.figures.len()], warnings: Vec::new() }, Some(why)),
    };
    let figures = study.figures.iter().zip(measured).map(|(published, measured)| FigureOutcome {
        published: published.clone(),
        measured,
        agreement: measured.and_then(|measured| agreement(&published.published, &measured)),
    });
    StudyOutcome {
        runs: collected.map_or(0, |collected| collected.runs.len()),
        planned: collected.map_or(0, |collected| collected.planned),
        failed: collected.map_or(0, |collected| collected.failed.len()),
        emulated: collected.and_then(|collected| collected.facts.emulated.clone()),
        why_not,
        warnings,
        figures: figures.collect(),
        study: SuiteStudy { figures: Vec::new(), ..study.clone() },
    }
}

/// The measured figures of a study, and warnings about them.
struct Compared {
    measured: Vec<Option<Measured>>,
    warnings: Vec<Warning>,
}

fn compared(study: &SuiteStudy, made: &MadeStudy, folder: &SuiteFolder) -> Result<Compared, String> {
    let Some(against) = &study.against else {
        let findings = made.findings.as_ref().map_err(Clone::clone)?;
        let measured = study.figures.iter().map(|published| within(published, findings)).collect();
        let warnings = findings.warnings.iter().filter(|one| one.is_grave() || is_of_runs(one));
        return Ok(Compared { measured, warnings: warnings.cloned().collect() });
    };
    let before = match folder.get(against) {
        None => return Err(format!("{against}, with which it is compared, was not made yet")),
        Some(Err(error)) => return Err(error.clone()),
        Some(Ok(before)) => before,
    };
    let [one, other] = [before, made].map(|study| std::slice::from_ref(&study.collected));
    let difference = difference(one, other, made.allow_unlike).map_err(|error| error.to_string())?;
    let between = |published: &Published| {
        let row = difference.rows.iter().find(|row| {
            row.figure.workload == published.workload
                && row.figure.metric == published.metric
                && published.guests.is_none_or(|guests| row.figure.guests == guests)
                && has_levels(&difference.arms, row.arm, published)
        })?;
        measured(row.figure.unit, row.levels, row.change?)
    };
    let measured = study.figures.iter().map(between).collect();
    // Ignore warnings about the baseline: each arm is compared with itself.
    let concerns = |one: &Warning| matches!(one, Warning::Unlike { .. }) || is_of_runs(one);
    let of_sides = difference.warnings.into_iter().flatten().filter(concerns);
    let damage = before.collected.damage.iter().chain(&made.collected.damage);
    let damage = damage.map(|what| Warning::Damaged { what: what.clone() });
    Ok(Compared { measured, warnings: of_sides.chain(damage).chain(difference.doubts).collect() })
}

/// Tests whether the runs themselves have the warning. Missing frequencies are left out: no lab has any.
fn is_of_runs(warning: &Warning) -> bool {
    matches!(warning, Warning::OfRuns { text, .. } if !text.starts_with(NO_FREQUENCIES))
}

/// The measured change from the baseline to the arm of a published figure.
fn within(published: &Published, findings: &Findings) -> Option<Measured> {
    let figure = findings
        .figures
        .iter()
        .find(|figure| figure.workload == published.workload && figure.metric == published.metric)?;
    let comparisons: &[Comparison] = match published.guests {
        Some(guests) => &figure.points.iter().find(|point| point.guests == guests)?.comparisons,
        None => figure.summary(),
    };
    let one = comparisons.iter().find(|one| has_levels(&findings.arms, one.arm, published))?;
    measured(figure.unit, one.levels?, one.change?)
}

fn has_levels(arms: &[Arm], arm: usize, published: &Published) -> bool {
    arms.get(arm).is_some_and(|arm| is_part(&published.arm, &arm.levels))
}

/// The change in percent of the baseline, or in points. Counts of which some are zero are compared by difference; the
/// change and the ends of its interval are then divided by the baseline's level.
fn measured(unit: Unit, levels: [f64; 2], change: Contrast) -> Option<Measured> {
    let in_points = change.scale == Scale::Difference && unit == Unit::Percent;
    let of_baseline = |value: f64| match change.scale {
        Scale::Difference if !in_points => value / levels[0] * 100.0,
        _ => value,
    };
    let measured = Measured {
        unit,
        levels,
        in_points,
        change: of_baseline(change.estimate),
        interval: change
            .interval
            .map(|ends| Interval { low: of_baseline(ends.low), high: of_baseline(ends.high) }),
        repeats: change.repeats,
    };
    measured.change.is_finite().then_some(measured)
}

fn agreement(published: &[f64], measured: &Measured) -> Option<Agreement> {
    let low = published.iter().copied().reduce(f64::min)?;
    let high = published.iter().copied().reduce(f64::max)?;
    let Some(Interval { low: least, high: most }) = measured.interval else { return Some(Agreement::TooFew) };
    let overlap = least <= high && low <= most;
    let zero_is_published = low <= 0.0 && high >= 0.0;
    Some(match () {
        () if least <= 0.0 && most >= 0.0 && !zero_is_published => {
            if overlap {
                Agreement::Open
            } else {
                Agreement::NotSeen
            }
        }
        () if overlap => Agreement::Agrees,
        () if (least > 0.0 && high > 0.0) || (most < 0.0 && low < 0.0) => Agreement::SameSign,
        () if zero_is_published => Agreement::OnlyHere,
        () => Agreement::OtherSign,
    })
}

#[cfg(test)]
#[path = "outcome_tests.rs"]
mod tests;
