//! A short run of a micro VM, which shows whether a new VM on this host gets interrupt virtualization.

use conclusions::activation::Status;
use probe::measure::Measure;
use probe::run::Arm;
use probe::{Agreement, Arms};

use super::Provoked;
use prove::{ArmPair, CollectError, Plan, Recording, analyse, collect};

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
            why: Some(in_one_line(&error)),
            exits_per_eoi: ArmPair { off: None, on: None },
            exits_per_ipi: ArmPair { off: None, on: None },
            checks: Vec::new(),
        },
    }
}

fn judge(recording: &Recording) -> Provoked {
    let worst = |verdicts: &[Agreement]| {
        let found = |wanted| verdicts.contains(&wanted);
        if found(Agreement::Contradicted) {
            Status::Inhibited
        } else if found(Agreement::Confirmed) && !found(Agreement::Unknown) {
            Status::Active
        } else {
            Status::Unknown
        }
    };
    let on = recording.arm_checks.iter().filter(|check| check.arm == Arm::On);
    let verdicts: Vec<Agreement> = on.clone().map(|check| check.verdict).collect();
    let (status, why) = match &recording.arms {
        Arms::OnlyOff { why } => (Status::Inhibited, Some(why.clone())),
        Arms::Both { .. } | Arms::OnlyOn { .. } => match worst(&verdicts) {
            Status::Active => (Status::Active, None),
            status => {
                let of = |verdict| on.clone().find(|check| check.verdict == verdict);
                let worst = of(Agreement::Contradicted).or_else(|| of(Agreement::Unknown));
                (status, worst.map(|check| check.note.clone()))
            }
        },
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

fn in_one_line(error: &CollectError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        text.push_str(": ");
        text.push_str(&source.to_string());
        cause = source.source();
    }
    text
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
