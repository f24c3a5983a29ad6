//! A short run of a micro VM, which shows whether a new VM on this host gets interrupt virtualization.

use conclusions::activation::Status;
use exits::with_causes;
use probe::measure::Measure;
use probe::run::Arm;
use probe::{Agreement, Arms};

use super::Provoked;
use prove::{ArmPair, Plan, Recording, analyse, collect, gravest};

/// A few hundred IPIs and EOIs, which take less than a second on hardware.
fn plan() -> Plan {
    Plan {
        measures: vec![Measure::IpiRunning, Measure::Eoi],
        samples: 200,
        counted_samples: 200,
        warm_up: 20,
        blocks: 1,
        ..Plan::full()
    }
}

/// Runs the micro VM on this machine's `/dev/kvm`. If it cannot run, the status is unknown, with the error as
/// the reason.
#[must_use]
pub fn provoke() -> Provoked {
    match collect(&plan(), &mut |_| {}) {
        Ok(recording) => judge(&recording),
        Err(error) => Provoked {
            status: Status::Unknown,
            why: Some(with_causes(&error)),
            exits_per_eoi: ArmPair { off: None, on: None },
            exits_per_ipi: ArmPair { off: None, on: None },
            checks: Vec::new(),
        },
    }
}

fn judge(recording: &Recording) -> Provoked {
    let (status, why) = match &recording.arms {
        Arms::OnlyOff { why } => (Status::Inhibited, Some(why.clone())),
        Arms::Both { .. } | Arms::OnlyOn { .. } => {
            let gravest = gravest(recording, Arm::On);
            let why = gravest.map(|check| check.note.clone());
            match gravest.map(|check| check.verdict) {
                Some(Agreement::Contradicted) => (Status::Inhibited, why),
                Some(Agreement::Confirmed) => (Status::Active, None),
                Some(Agreement::Unknown) | None => (Status::Unknown, why),
            }
        }
    };
    let outcome = analyse(recording).ok();
    let evidence = outcome.as_ref().map(|outcome| outcome.evidence.exits_per_eoi);
    let per_ipi = |arm: Arm| {
        let measures = &outcome.as_ref()?.measures;
        let measure = measures.iter().find(|one| one.measure == Measure::IpiRunning)?;
        *measure.exits.traced.of(arm)
    };
    Provoked {
        status,
        why,
        exits_per_eoi: evidence.unwrap_or(ArmPair { off: None, on: None }),
        exits_per_ipi: ArmPair::each(per_ipi),
        checks: recording.arm_checks.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_that_of_the_check_that_disagrees() {
        let mut recording = prove::synthetic::recording(plan(), 1);
        let mut second = recording.arm_checks[0].clone();
        assert_eq!((second.arm, second.verdict), (Arm::On, Agreement::Confirmed));
        assert_eq!(judge(&recording).why, None);
        second.verdict = Agreement::Contradicted;
        second.note = "an inhibit reason came".to_owned();
        recording.arm_checks.push(second);
        let provoked = judge(&recording);
        assert_eq!(provoked.status, Status::Inhibited);
        assert_eq!(provoked.why.as_deref(), Some("an inhibit reason came"));
    }
}
