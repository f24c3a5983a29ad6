//! The evidence for an arm: KVM's own counters.

use serde::{Deserialize, Serialize};

use crate::run::{Arm, Run};

/// The warm-up iterations of the run that confirms an arm.
pub(crate) const WARM_UP: u32 = 16;
/// The samples of that run.
pub(crate) const SAMPLES: u32 = 256;
/// The largest exits per interrupt with interrupt virtualization on: only the host's own interrupts cause
/// exits.
const MOST_WHEN_ON: f64 = 0.1;
/// The smallest exits per interrupt with it off: every EOI exits, and usually the self-IPI before it too.
const LEAST_WHEN_OFF: f64 = 0.9;

/// The result of comparing the expected and the counted exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// The counters agree with the arm.
    Confirmed,
    /// The counters contradict the arm: a comparison of the arms is not valid.
    Contradicted,
    /// There are no counters.
    Unknown,
}

/// The counts of a short run of self-IPIs and EOIs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmEvidence {
    /// The arm to confirm.
    pub arm: Arm,
    /// Self-IPIs sent and EOIs written, warm-up included.
    pub interrupts: u32,
    /// The vCPU's exits during the run, for any reason.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exits: Option<u64>,
    /// Exits per self-IPI and its EOI.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exits_per_interrupt: Option<f64>,
    /// The result of comparing the exits with those expected in the arm.
    pub verdict: Agreement,
    /// The expected exits, and the likely cause of a contradiction.
    pub note: String,
}

/// Compares the exits of a run of [`Measure::Eoi`](crate::measure::Measure::Eoi) with those expected in its arm.
pub(crate) fn judge(run: &Run, hybrid: bool, no_statistics: Option<&str>) -> ArmEvidence {
    let interrupts = run.warm_up + SAMPLES;
    let exits = run.statistics.get("exits").copied();
    let rate = exits.map(|exits| exits as f64 / f64::from(interrupts));
    let (agrees, expected): (fn(f64) -> bool, _) = match run.arm {
        Arm::On => (|rate| rate < MOST_WHEN_ON, format!("below {MOST_WHEN_ON} with virtualization")),
        Arm::Off => {
            (|rate| rate >= LEAST_WHEN_OFF, format!("at least {LEAST_WHEN_OFF} without virtualization"))
        }
    };
    let verdict = match rate {
        None => Agreement::Unknown,
        Some(rate) if agrees(rate) => Agreement::Confirmed,
        Some(_) => Agreement::Contradicted,
    };
    let mut note = format!("expected exits per interrupt: {expected}");
    match (verdict, run.arm) {
        (Agreement::Unknown, _) => {
            let why = no_statistics.unwrap_or("KVM's statistics have no counter \"exits\"");
            note = format!("{note}; {why}");
        }
        (Agreement::Contradicted, Arm::On) if hybrid => {
            note.push_str(
                "; this CPU has no x2AVIC, so in x2APIC mode AVIC delivers interrupts but every register \
                 access exits: measure in xAPIC mode",
            );
        }
        (Agreement::Contradicted, Arm::On) => {
            note.push_str(
                "; an inhibit reason of another kind holds: see the event kvm_apicv_inhibit_changed, or the \
                 host's doctor",
            );
        }
        (Agreement::Contradicted, Arm::Off) => {
            note.push_str("; KVM took the inhibit, yet the vCPU did not leave the guest for its interrupts");
        }
        (Agreement::Confirmed, _) => {}
    }
    ArmEvidence { arm: run.arm, interrupts, exits, exits_per_interrupt: rate, verdict, note }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Measure;

    fn run(arm: Arm, exits: Option<u64>) -> Run {
        Run {
            measure: Measure::Eoi,
            arm,
            target: None,
            warm_up: WARM_UP,
            cycles: vec![1; SAMPLES as usize],
            statistics: exits.map(|exits| ("exits".to_owned(), exits)).into_iter().collect(),
        }
    }

    #[test]
    fn exits_tell_the_arm() {
        for (arm, exits, verdict) in [
            (Arm::On, 3, Agreement::Confirmed),
            (Arm::On, 272, Agreement::Contradicted),
            (Arm::Off, 544, Agreement::Confirmed),
            (Arm::Off, 3, Agreement::Contradicted),
        ] {
            assert_eq!(judge(&run(arm, Some(exits)), false, None).verdict, verdict, "{arm:?} {exits}");
        }
    }

    #[test]
    fn a_contradiction_names_its_cause() {
        let note = judge(&run(Arm::On, Some(600)), true, None).note;
        assert!(note.contains("x2AVIC"), "{note}");
        let note = judge(&run(Arm::On, Some(600)), false, None).note;
        assert!(note.contains("kvm_apicv_inhibit_changed"), "{note}");
    }

    #[test]
    fn no_counters_no_verdict() {
        let evidence = judge(&run(Arm::Off, None), false, Some("no statistics"));
        assert_eq!(evidence.verdict, Agreement::Unknown);
        assert!(evidence.note.ends_with("no statistics"), "{}", evidence.note);
    }
}
