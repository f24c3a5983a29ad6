//! Evidence that interrupt virtualization was in fact on and off in the arms.

use exits::ExitCounts;
use probe::measure::Measure;
use probe::run::Arm;
use probe::{Agreement, ArmEvidence, Arms, InhibitMechanism};
use serde::Serialize;

use super::{ArmPair, Recording, Tracing, Warning};

/// The largest plausible share of exits per EOI that remain with interrupt virtualization on.
const MOST_OF_OFF: f64 = 0.5;

/// Evidence that interrupt virtualization was in fact on and off in the arms.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evidence {
    /// The mechanism of the Off arm, if there are both arms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<InhibitMechanism>,
    /// The kernel's name of the inhibit reason that the mechanism sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Changes of inhibit reasons that the kernel reported; `None` if it reports none, or if tracepoints
    /// cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inhibit_events: Option<u64>,
    /// VM exits for each interrupt that a vCPU sends itself and ends, in the counted runs.
    pub exits_per_eoi: ArmPair<Option<f64>>,
    /// The worst verdict of the checks of each arm before and after the experiment.
    pub checked: ArmPair<Option<Agreement>>,
    /// Expectations and findings of those checks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Evidence {
    pub(super) fn of(recording: &Recording) -> Self {
        let mechanism = match recording.arms {
            Arms::Both { mechanism } => Some(mechanism),
            Arms::OnlyOff { .. } | Arms::OnlyOn { .. } => None,
        };
        let inhibit_events = match recording.tracing {
            Tracing::Tracepoints { inhibits: true } => {
                Some(recording.counted.iter().map(|counted| counted.inhibits.len() as u64).sum())
            }
            Tracing::Tracepoints { inhibits: false } | Tracing::Statistics { .. } => None,
        };
        Self {
            mechanism,
            reason: mechanism.map(|mechanism| mechanism.reason().to_owned()),
            inhibit_events,
            exits_per_eoi: ArmPair::each(|arm| exits_per_eoi(recording, arm)),
            checked: ArmPair::each(|arm| gravest(recording, arm).map(|check| check.verdict)),
            notes: notes(recording, |check| check.verdict != Agreement::Confirmed),
        }
    }

    /// Warnings for missing evidence and for evidence that contradicts the arms.
    pub(super) fn warnings(&self, recording: &Recording) -> Vec<Warning> {
        let mut warnings = Vec::new();
        for arm in [Arm::Off, Arm::On] {
            let contradicts =
                |check: &ArmEvidence| check.arm == arm && check.verdict == Agreement::Contradicted;
            let notes = notes(recording, contradicts);
            if !notes.is_empty() {
                warnings.push(Warning::ArmContradicted { arm, why: notes.join("; ") });
            }
        }
        if self.mechanism.is_none() {
            return warnings;
        }
        let confirmed = [self.checked.off, self.checked.on] == [Some(Agreement::Confirmed); 2];
        match (self.exits_per_eoi.off, self.exits_per_eoi.on) {
            (Some(off), Some(on)) if on > off * MOST_OF_OFF || off == 0.0 => {
                warnings.push(Warning::ArmsAlike { off, on });
            }
            (Some(_), Some(_)) => {}
            _ if confirmed => {}
            _ => warnings.push(Warning::ArmsUnproved),
        }
        if self.inhibit_events == Some(0) {
            warnings.push(Warning::SwitchUnseen);
        }
        warnings
    }
}

/// The notes of those checks for which `is_one` holds, each once.
fn notes(recording: &Recording, is_one: impl Fn(&ArmEvidence) -> bool) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for check in recording.arm_checks.iter().filter(|check| is_one(check)) {
        if !notes.contains(&check.note) {
            notes.push(check.note.clone());
        }
    }
    notes
}

/// The first of an arm's checks with the gravest verdict.
#[must_use]
pub fn gravest(recording: &Recording, arm: Arm) -> Option<&ArmEvidence> {
    [Agreement::Contradicted, Agreement::Unknown, Agreement::Confirmed].into_iter().find_map(|verdict| {
        recording.arm_checks.iter().find(|check| check.arm == arm && check.verdict == verdict)
    })
}

fn exits_per_eoi(recording: &Recording, arm: Arm) -> Option<f64> {
    let counted = recording.counted_run(Measure::Eoi, arm)?;
    let exits = counted.exits.as_ref().map(ExitCounts::total);
    let exits = exits.or_else(|| counted.run.statistics.get("exits").copied())?;
    (counted.operations() > 0).then(|| exits as f64 / counted.operations() as f64)
}
