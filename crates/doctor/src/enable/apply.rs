//! Executes a plan.

use super::plan::{Plan, Step};
use exits::with_causes_in_brackets;
use host::switch;
use knobs::{Actions, After, Before, Change, Changes, Error, Lasting, Made, Outcome};
use serde::Serialize;

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum StepOutcome {
    /// The step was made.
    Made,
    /// The host was already in the requested state.
    AlreadySo,
    /// The step failed or had no effect, and was undone.
    Failed {
        /// Why.
        why: String,
    },
    /// An earlier step failed, or the execution was stopped.
    NotReached,
}

/// A step with its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AppliedStep {
    /// The name of the step.
    pub name: String,
    /// The result.
    #[serde(flatten)]
    pub outcome: StepOutcome,
}

/// The result of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// The steps that were ready, in order.
    pub steps: Vec<AppliedStep>,
    /// The value that the running kernel reports afterwards, if the module was reloaded.
    pub reads: Option<String>,
    /// Other results that differ from the state before.
    pub notes: Vec<String>,
}

impl Applied {
    /// Tests whether all steps were made.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.steps.iter().all(|step| matches!(step.outcome, StepOutcome::Made | StepOutcome::AlreadySo))
    }
}

/// Makes the steps that are ready, each through the journal, until one fails or `stop` returns true.
///
/// After a reload it checks that the module accepted the parameter; if not, the module is loaded again with the
/// former parameters.
pub fn apply<A: Actions>(plan: &Plan, changes: &mut Changes<A>, stop: &dyn Fn() -> bool) -> Applied {
    let mut applied = Applied::default();
    let mut failed = false;
    for step in plan.ready() {
        let outcome = if failed || stop() {
            StepOutcome::NotReached
        } else {
            make(plan, step, changes, &mut applied).unwrap_or_else(|why| StepOutcome::Failed { why })
        };
        failed |= !matches!(outcome, StepOutcome::Made | StepOutcome::AlreadySo);
        applied.steps.push(AppliedStep { name: step.name.clone(), outcome });
    }
    applied
}

fn make<A: Actions>(
    plan: &Plan,
    step: &Step,
    changes: &mut Changes<A>,
    applied: &mut Applied,
) -> Result<StepOutcome, String> {
    let mut made = Vec::new();
    let mut outcome = StepOutcome::AlreadySo;
    for change in &step.changes {
        // Another process may have changed the file since the plan was made.
        let found = match change {
            Change::File { path, .. } => step.found.get(path),
            _ => None,
        };
        let made_so = match found {
            Some(old) => changes.make_from(old.as_ref(), change.clone(), Lasting::UntilRestored),
            None => changes.make(change.clone(), Lasting::UntilRestored),
        };
        let so_far = match made_so {
            Ok(Made::AlreadySo) => Ok(()),
            Ok(Made::Changed(entry)) => {
                outcome = StepOutcome::Made;
                let took = took(plan, &entry.before, entry.after(), applied);
                made.push(*entry);
                took
            }
            Err(error) => Err(with_causes_in_brackets(&error)),
        };
        let Err(mut why) = so_far else { continue };
        // A step is made completely or not at all: undo its changes.
        for undone in changes.undo_together(&made) {
            let left = match undone {
                Ok(Outcome::ChangedSince { what }) => format!("others changed it since: {what}"),
                Ok(_) => continue,
                Err(error @ Error::JournalUndone { .. }) => {
                    why = format!("{why}; {}", with_causes_in_brackets(&error));
                    continue;
                }
                Err(error) => with_causes_in_brackets(&error),
            };
            why = format!("{why}; and what it had changed is left, run `exitless restore`: {left}");
        }
        return Err(why);
    }
    Ok(outcome)
}

/// Checks that the module accepted its parameter.
fn took(plan: &Plan, before: &Before, after: Option<&After>, applied: &mut Applied) -> Result<(), String> {
    let Some(After::Module { parameters }) = after else { return Ok(()) };
    let Some(name) = plan.place.rsplit('/').next() else { return Ok(()) };
    let reads = parameters.as_ref().and_then(|all| all.get(name)).cloned();
    applied.reads.clone_from(&reads);
    let Some(reads) = reads else {
        return Err(format!("{} was loaded, and has no readable parameter {name}", plan.module));
    };
    if switch(&reads) != Some(plan.wanted) {
        return Err(format!(
            "{} was loaded and reads {name} {reads}: the CPU or the firmware does not support it (see `dmesg | grep -i kvm`)",
            plan.module
        ));
    }
    if let (Before::Module { parameters: Some(old) }, Some(new)) = (before, parameters) {
        for (other, was) in old.iter().filter(|(other, was)| *other != name && new.get(*other) != Some(was)) {
            let is = new.get(other).map_or("not there", String::as_str);
            applied.notes.push(format!("{} had {other} {was}, and has {is} now.", plan.module));
        }
    }
    Ok(())
}
