//! Plans and their results, for programs.

use doctor::enable::{Applied, Plan, StepOutcome};
use serde::Serialize;

use crate::json::FORMAT;

/// A plan and its result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanDocument<'a> {
    format: u32,
    version: &'static str,
    #[serde(flatten)]
    plan: &'a Plan,
    /// The reason why steps that are ready are not made; `null` if there is none.
    refused: Option<&'a str>,
    /// `null` if there was nothing to do.
    applied: Option<AppliedDocument<'a>>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct AppliedDocument<'a> {
    steps: Vec<StepDocument<'a>>,
    reads: Option<&'a str>,
    notes: &'a [String],
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct StepDocument<'a> {
    name: &'a str,
    #[serde(flatten)]
    outcome: &'a StepOutcome,
}

/// The output of `enable --json` and `disable --json`.
#[must_use]
pub fn json<'a>(plan: &'a Plan, refused: Option<&'a str>, applied: Option<&'a Applied>) -> PlanDocument<'a> {
    let applied = applied.map(|applied| AppliedDocument {
        steps: applied.steps.iter().map(|(name, outcome)| StepDocument { name, outcome }).collect(),
        reads: applied.reads.as_deref(),
        notes: &applied.notes,
    });
    PlanDocument { format: FORMAT, version: env!("CARGO_PKG_VERSION"), plan, refused, applied }
}
