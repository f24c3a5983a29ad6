//! Words and figures of a comparison of two arms by `prove`, the same in every medium.

use conclusions::RelativeChange;
use probe::Arms;
use probe::run::Arm;
use prove::{ArmPair, Difference, Judgement};

use crate::format::{self, NONE, percent};

/// The percentage with its sign and unit, or a dash.
pub(crate) fn percent_of(difference: Option<Difference>) -> String {
    difference.map_or_else(|| NONE.to_owned(), |difference| format!("{} %", percent(difference.percent)))
}

/// The interval, or a dash.
pub(crate) fn interval_of(difference: Option<Difference>) -> String {
    format::interval_of(difference.and_then(|difference| difference.interval))
}

/// The change of exits per operation; `None` without both arms.
pub(crate) fn change_between(
    exits: ArmPair<Option<u64>>,
    operations: ArmPair<u64>,
) -> Option<RelativeChange> {
    let rate = |exits: Option<u64>, operations: u64| {
        (operations > 0).then_some(())?;
        Some(exits? as f64 / operations as f64)
    };
    Some(RelativeChange::between(rate(exits.off, operations.off)?, rate(exits.on, operations.on)?))
}

/// The interval of a change of exits per operation, from the numbers of exits only.
pub(crate) fn interval_between(exits: ArmPair<Option<u64>>, operations: ArmPair<u64>) -> String {
    let interval = exits
        .off
        .zip(exits.on)
        .and_then(|(off, on)| stats::poisson::rate_change([off, on], [operations.off, operations.on]));
    format::interval_of(interval)
}

/// The only arm; `None` if there are both.
pub(crate) fn only_arm(arms: &Arms) -> Option<Arm> {
    match arms {
        Arms::Both { .. } => None,
        Arms::OnlyOff { .. } => Some(Arm::Off),
        Arms::OnlyOn { .. } => Some(Arm::On),
    }
}

/// The arm as a word.
pub(crate) fn arm(arm: Arm) -> &'static str {
    match arm {
        Arm::Off => "off",
        Arm::On => "on",
    }
}

/// The judgement as a label.
pub(crate) fn judgement(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::WorthIt => "Worth it",
        Judgement::Mixed => "Gives and takes",
        Judgement::Worse => "Costs more than it saves",
        Judgement::NoDifference => "No difference",
        Judgement::TooFewRuns => "Too few runs",
        Judgement::OneArm => "One arm only",
        Judgement::Contradicted => "Contradicted",
        Judgement::Nothing => "Nothing of interrupts measured",
    }
}
