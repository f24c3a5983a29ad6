//! The loop.

use serde::Serialize;

use super::definition::definition;
use super::judge::judge;
use super::outcome::{Ruling, Step, TUNING_FORMAT, Tuning};
use super::plan::{Change, TuningPlan};
use super::step::{Best, TUNED, confirmation, step};
use crate::study::analysis::Findings;
use crate::study::plan::Plan;

/// What a study of one step gave.
#[derive(Debug)]
pub enum Measured {
    /// All its runs are there.
    Findings(Box<Findings>),
    /// Runs failed for good, and what is left tells nothing.
    Failed(String),
    /// It was interrupted: the same tuning goes on with it.
    Interrupted,
}

/// Who carries out the steps' studies, each in a folder of its own, which holds what was made of it before.
pub trait Measuring {
    /// Why the tuning cannot go on.
    type Error;

    /// Carries the step's study out, or what is missing of it.
    ///
    /// # Errors
    /// Where no step can be made any more.
    fn measure(&mut self, folder: &str, study: &Plan) -> Result<Measured, Self::Error>;

    /// A change was tried; this is how far the tuning is.
    fn tried(&mut self, so_far: &Tuning);
}

/// Tries one change after the other. What was measured before is not measured again, so that the order of the kept ones is
/// the same after an interruption.
///
/// # Errors
/// Those of `measuring`.
pub fn tune<M: Measuring>(plan: &TuningPlan, target: &str, measuring: &mut M) -> Result<Tuning, M::Error> {
    let mut best = Best::of(&plan.base);
    let mut tuning = Tuning {
        format: TUNING_FORMAT,
        name: plan.base.name.clone(),
        title: plan.base.title.clone(),
        question: plan.base.question.clone(),
        target: target.to_owned(),
        complete: false,
        steps: Vec::new(),
        kept: Vec::new(),
        before: definition(&best),
        after: definition(&best),
    };
    for (index, change) in tried(plan).enumerate() {
        let folder = folder_of(index, &change.level.name);
        let made = match (step(plan, &best, change), best.with(change)) {
            (Ok(study), Ok(after)) => Ok((study, after)),
            (Err(why), _) | (_, Err(why)) => Err(why),
        };
        let (study, after) = match made {
            Ok(made) => made,
            Err(why) => {
                tuning.steps.push(told(change, Ruling::Impossible, why));
                measuring.tried(&tuning);
                continue;
            }
        };
        let tried = match measuring.measure(&folder, &study)? {
            Measured::Interrupted => return Ok(tuning),
            Measured::Failed(why) => Step { folder: Some(folder), ..told(change, Ruling::Failed, why) },
            Measured::Findings(findings) => {
                let (ruling, judged) = judge(&findings, &plan.rules);
                let sentence = said(plan, findings.verdict.sentence);
                Step { folder: Some(folder), judged, ..told(change, ruling, sentence) }
            }
        };
        if tried.ruling == Ruling::Kept {
            best = after;
            tuning.kept.push(change.level.name.clone());
            tuning.after = definition(&best);
        }
        tuning.steps.push(tried);
        measuring.tried(&tuning);
    }
    if plan.rules.confirm && tuning.kept.len() > 1 {
        let folder = folder_of(plan.changes.len(), TUNED);
        // It was a plan with every one of them.
        if let Ok(study) = confirmation(plan, &best) {
            let why = "All kept changes together against the baseline.".to_owned();
            let (ruling, judged, sentence) = match measuring.measure(&folder, &study)? {
                Measured::Interrupted => return Ok(tuning),
                Measured::Failed(why) => (Ruling::Failed, Vec::new(), why),
                Measured::Findings(findings) => {
                    let (ruling, judged) = judge(&findings, &plan.rules);
                    let confirmed =
                        if ruling == Ruling::Kept { Ruling::Confirmed } else { Ruling::NotConfirmed };
                    (confirmed, judged, said(plan, findings.verdict.sentence))
                }
            };
            let name = TUNED.to_owned();
            tuning.steps.push(Step { name, why, ruling, sentence, folder: Some(folder), judged });
        }
    }
    tuning.complete = true;
    measuring.tried(&tuning);
    Ok(tuning)
}

/// A step before it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preview {
    /// The change.
    pub name: String,
    /// Why it is tried.
    pub why: String,
    /// The guest's definition with it alone; as before where it makes none.
    pub after: Vec<String>,
    /// Runs of its study, both arms.
    pub runs: u64,
}

/// The guest's definition as it is, and the steps, each over the baseline, for what is kept is not known.
#[must_use]
pub fn preview(plan: &TuningPlan) -> (Vec<String>, Vec<Preview>) {
    let best = Best::of(&plan.base);
    let before = definition(&best);
    let one = |change: &Change| Preview {
        name: change.level.name.clone(),
        why: change.why.clone(),
        after: best.with(change).map_or_else(|_| before.clone(), |after| definition(&after)),
        runs: step(plan, &best, change).map_or(0, |study| runs(&study)),
    };
    let steps = tried(plan).map(one).collect();
    (before, steps)
}

/// Runs that a step's study has at least.
#[must_use]
pub fn runs(study: &Plan) -> u64 {
    let points = study.arms().len() * study.guests.counts().len() * study.workloads.len();
    points as u64 * u64::from(study.order.repeats)
}

/// A step's study as a plan's file.
///
/// # Errors
/// Where a value has no form in TOML, which a plan that was read from it does not hold.
pub fn text(study: &Plan) -> Result<String, toml::ser::Error> {
    toml::to_string(study)
}

/// The candidates in the order in which they are tried: those that the plan lists. Changes that are advised from the exits
/// of the baseline come in here, ranked by the time that they save.
pub fn tried(plan: &TuningPlan) -> impl Iterator<Item = &Change> {
    plan.changes.iter()
}

/// The folder of a step's study below the result's.
#[must_use]
pub fn folder_of(index: usize, name: &str) -> String {
    format!("steps/{}-{name}", index + 1)
}

/// The study's verdict is on main figures; where others decide, it would contradict the ruling.
fn said(plan: &TuningPlan, verdict: String) -> String {
    match &plan.rules.judge[..] {
        [] => verdict,
        named => format!("Judged by {}.", named.join(", ")),
    }
}

fn told(change: &Change, ruling: Ruling, sentence: String) -> Step {
    Step {
        name: change.level.name.clone(),
        why: change.why.clone(),
        ruling,
        sentence,
        folder: None,
        judged: Vec::new(),
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
