//! The tuning loop.

use exits::counted;
use serde::Serialize;

use super::advised::{AdvisedFor, Tried, next};
use super::definition::definition;
use super::judge::judge;
use super::outcome::{Ruling, Step, TUNING_FORMAT, Tuning};
use super::plan::{Advised, Candidate, TuningPlan};
use super::recorded::Recorded;
use super::step::{BEFORE, Best, TUNED, baseline, confirmation, step};
use crate::analysis::Findings;
use crate::plan::Plan;
use crate::schedule::Schedule;

/// The result of a step's study.
#[derive(Debug)]
pub enum Measured {
    /// All its runs are complete.
    Findings(Box<Findings>),
    /// Runs failed for good, and there are no findings without them.
    Failed(String),
    /// It was interrupted: the same tuning continues from it.
    Interrupted,
}

/// The exits that runs of a study recorded.
#[derive(Debug)]
pub enum Seen {
    /// The exits.
    Exits(Box<Recorded>),
    /// There are no exits to advise by, for this reason.
    Nothing(String),
    /// It was interrupted: the same tuning continues from it.
    Interrupted,
}

/// Runs the studies of the steps, each in its own folder, which keeps the runs of earlier sessions.
pub trait Measuring {
    /// The reason why the tuning cannot continue.
    type Error;

    /// Runs the step's study, or the missing part of it.
    ///
    /// # Errors
    /// If no further step is possible.
    fn measure(&mut self, folder: &str, study: &Plan) -> Result<Measured, Self::Error>;

    /// The exits of the study's runs in which the change is `level`; missing runs are made first.
    ///
    /// # Errors
    /// If no further step is possible.
    fn exits(&mut self, folder: &str, study: &Plan, level: &str) -> Result<Seen, Self::Error>;

    /// Reports the result so far after each change.
    fn tried(&mut self, so_far: &Tuning);
}

/// Tries one change after the other: those that the plan lists, then those that are advised for the exits of the best
/// configuration so far. Stored measurements are reused, so an interrupted tuning continues with the same decisions.
///
/// # Errors
/// Those of `measuring`.
pub fn tune<M: Measuring>(plan: &TuningPlan, target: &str, measuring: &mut M) -> Result<Tuning, M::Error> {
    let best = Best::of(&plan.base);
    let tuning = Tuning {
        format: TUNING_FORMAT,
        name: plan.base.name.clone(),
        title: plan.base.title.clone(),
        question: plan.base.question.clone(),
        target: target.to_owned(),
        complete: false,
        steps: Vec::new(),
        kept: Vec::new(),
        left: Vec::new(),
        notes: Vec::new(),
        before: definition(&best),
        after: definition(&best),
        guests: None,
        definition: None,
    };
    let mut state = Loop { plan, best, source: None, tried: Tried::default(), tuning };
    state.tuning.complete = state.go(measuring)?.is_some();
    state.tuning.guests = Some(state.best.guests.clone());
    if state.tuning.complete {
        measuring.tried(&state.tuning);
    }
    Ok(state.tuning)
}

/// `None` if it was interrupted.
type Going = Option<()>;

/// The state of the tuning.
struct Loop<'p> {
    plan: &'p TuningPlan,
    best: Best,
    /// The runs of the best configuration so far: the study's folder, the study and the arm.
    source: Option<(String, Plan, String)>,
    tried: Tried,
    tuning: Tuning,
}

impl Loop<'_> {
    fn go<M: Measuring>(&mut self, measuring: &mut M) -> Result<Going, M::Error> {
        for change in &self.plan.changes {
            if self.change(change, None, measuring)?.is_none() {
                return Ok(None);
            }
        }
        if let Some(advised) = &self.plan.rules.advised
            && self.advised(advised, measuring)?.is_none()
        {
            return Ok(None);
        }
        self.confirm(measuring)
    }

    /// Measures one change, and decides whether to keep it.
    fn change<M: Measuring>(
        &mut self,
        change: &Candidate,
        advised: Option<AdvisedFor>,
        measuring: &mut M,
    ) -> Result<Going, M::Error> {
        let folder = folder_of(self.tuning.steps.len(), &change.level.name);
        let made = match (step(&self.plan.base, &self.best, &change.level), self.best.with(&change.level)) {
            (Ok(study), Ok(after)) => Ok((study, after)),
            (Err(why), _) | (_, Err(why)) => Err(why),
        };
        self.tried.add(change, made.as_ref().ok().map(|(_, after)| after));
        let step = Step {
            name: change.level.name.clone(),
            why: change.why.clone(),
            advised,
            ruling: Ruling::Impossible,
            sentence: String::new(),
            folder: None,
            judged: Vec::new(),
        };
        let step = match made {
            Err(sentence) => Step { sentence, ..step },
            Ok((study, after)) => {
                let Some(step) = self.measured(step, folder.clone(), &study, measuring)? else {
                    return Ok(None);
                };
                let kept = step.ruling == Ruling::Kept;
                if kept {
                    self.best = after;
                    self.tuning.kept.push(change.level.name.clone());
                    self.tuning.after = definition(&self.best);
                }
                if step.ruling != Ruling::Failed {
                    let arm = if kept { &change.level.name } else { BEFORE };
                    self.source = Some((folder, study, arm.to_owned()));
                }
                step
            }
        };
        self.tuning.steps.push(step);
        measuring.tried(&self.tuning);
        Ok(Some(()))
    }

    /// A step with its ruling; `None` if it was interrupted.
    fn measured<M: Measuring>(
        &self,
        step: Step,
        folder: String,
        study: &Plan,
        measuring: &mut M,
    ) -> Result<Option<Step>, M::Error> {
        let measured = measuring.measure(&folder, study)?;
        let step = Step { folder: Some(folder), ..step };
        Ok(match measured {
            Measured::Interrupted => None,
            Measured::Failed(sentence) => Some(Step { ruling: Ruling::Failed, sentence, ..step }),
            Measured::Findings(findings) => {
                let changes = if step.is_confirmation() { 1 } else { self.plan.most_changes() };
                let (ruling, judged) = judge(&findings, &self.plan.rules, changes);
                let sentence = said(self.plan, findings.verdict.sentence);
                Some(Step { ruling, judged, sentence, ..step })
            }
        })
    }

    /// Tries advised changes one after the other, each chosen by the exits of the best configuration so far.
    fn advised<M: Measuring>(&mut self, rules: &Advised, measuring: &mut M) -> Result<Going, M::Error> {
        for number in 0..=rules.steps {
            let (folder, study, arm) = self
                .source
                .clone()
                .unwrap_or_else(|| (folder_of_baseline(), baseline(&self.plan.base), BEFORE.to_owned()));
            let recorded = match measuring.exits(&folder, &study, &arm)? {
                Seen::Interrupted => return Ok(None),
                Seen::Exits(recorded) => recorded,
                Seen::Nothing(why) => {
                    self.tuning.notes.push(format!("Nothing more was advised: {why}"));
                    return Ok(Some(()));
                }
            };
            let found = match next(&self.best, &recorded, rules, &self.tried) {
                Ok(found) => found,
                Err(why) => {
                    self.tuning.notes.push(format!("Nothing more was advised: {why}"));
                    return Ok(Some(()));
                }
            };
            // Replaced in each round, so that the advice in the result is that for the final state.
            self.tuning.left = found.left;
            match found.next {
                None => return Ok(Some(())),
                Some((change, _)) if number == rules.steps => {
                    let name = change.level.name;
                    self.tuning.notes.push(format!(
                        "{name} is advised too, after {}, the most of this plan",
                        counted(u64::from(number), "step")
                    ));
                }
                Some((change, advised)) => {
                    if self.change(&change, Some(advised), measuring)?.is_none() {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(()))
    }

    /// Compares all kept changes together with the baseline.
    fn confirm<M: Measuring>(&mut self, measuring: &mut M) -> Result<Going, M::Error> {
        if !self.plan.rules.confirm || !self.tuning.needs_confirmation() {
            return Ok(Some(()));
        }
        // Cannot fail: each kept change was valid.
        let Ok(study) = confirmation(&self.plan.base, &self.best) else { return Ok(Some(())) };
        let step = Step {
            name: TUNED.to_owned(),
            why: "All kept changes together against the baseline.".to_owned(),
            advised: None,
            ruling: Ruling::NotConfirmed,
            sentence: String::new(),
            folder: None,
            judged: Vec::new(),
        };
        let folder = folder_of(self.tuning.steps.len(), TUNED);
        let Some(mut step) = self.measured(step, folder, &study, measuring)? else { return Ok(None) };
        step.ruling = match step.ruling {
            Ruling::Kept => Ruling::Confirmed,
            ruling @ (Ruling::Failed | Ruling::Worse | Ruling::Mixed) => ruling,
            _ => Ruling::NotConfirmed,
        };
        self.tuning.steps.push(step);
        Ok(Some(()))
    }
}

/// A step before it is carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preview {
    /// The change.
    pub name: String,
    /// The reason to try it.
    pub why: String,
    /// The guest's definition with only this change; unchanged if it cannot be applied.
    pub after: Vec<String>,
    /// The number of runs of its study, in both arms.
    pub runs: u64,
}

/// The guest's definition, and the steps that the plan lists. Each is applied to the baseline, because it is not yet
/// known which changes will be kept.
#[must_use]
pub fn preview(plan: &TuningPlan) -> (Vec<String>, Vec<Preview>) {
    let best = Best::of(&plan.base);
    let before = definition(&best);
    let one = |change: &Candidate| Preview {
        name: change.level.name.clone(),
        why: change.why.clone(),
        after: best.with(&change.level).map_or_else(|_| before.clone(), |after| definition(&after)),
        runs: step(&plan.base, &best, &change.level).map_or(0, |study| runs(&study)),
    };
    let steps = plan.changes.iter().map(one).collect();
    (before, steps)
}

/// The least number of runs of a step's study.
fn runs(study: &Plan) -> u64 {
    u64::from(Schedule::new(study, 0).runs_per_block()) * u64::from(study.order.repeats)
}

/// The folder of a step's study below the result's.
fn folder_of(index: usize, name: &str) -> String {
    format!("steps/{}-{name}", index + 1)
}

fn folder_of_baseline() -> String {
    "steps/0-baseline".to_owned()
}

/// The sentence of a step: the study's verdict, unless other figures than the main ones decide, which it could
/// contradict.
fn said(plan: &TuningPlan, verdict: String) -> String {
    match &plan.rules.judge[..] {
        [] => verdict,
        named => format!("Judged by {}.", named.join(", ")),
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
