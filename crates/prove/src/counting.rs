//! Exits counted by the tracepoints and by KVM itself.

use std::borrow::Cow;
use std::collections::BTreeSet;

use conclusions::RelativeChange;
use exits::{ExitCounts, ExitReason, HandlingTime};
use probe::measure::Measure;
use probe::run::Arm;

use super::outcome::{ExitTotals, PerOperation, ReasonRow};
use super::recording::arms_of;
use super::{ArmPair, CountedRun, Disagreement, Recording, Tracing, Warning};

/// The difference between both counts that is no disagreement: they do not start and stop at exactly the same exit.
const TOLERATED_EXITS: u64 = 20;
const TOLERATED_SHARE: f64 = 0.02;

/// Discards the tracepoints' counts if they saw nothing while KVM counted exits. Then the tracepoints belong to another KVM
/// than the one that answers `/dev/kvm`, or the event is never reached, and their zeros are wrong.
pub(super) fn without_silent_tracepoints(recording: &Recording) -> Cow<'_, Recording> {
    let sum = |count: fn(&CountedRun) -> Option<u64>| -> u64 {
        recording.counted.iter().filter_map(count).fold(0, u64::saturating_add)
    };
    let counted = sum(counted_by_kvm);
    let attached = matches!(recording.tracing, Tracing::Tracepoints { .. });
    if !attached || sum(traced) > 0 || counted <= TOLERATED_EXITS {
        return Cow::Borrowed(recording);
    }
    let mut recording = recording.clone();
    let why = format!("the tracepoints saw none of {counted} exits that KVM counted");
    recording.tracing = Tracing::Statistics { why };
    for counted in &mut recording.counted {
        counted.exits = None;
    }
    Cow::Owned(recording)
}

/// Warnings of lost events, and of disagreement between the two counts.
pub(super) fn warnings(recording: &Recording) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut disagreements = Vec::new();
    for counted in &recording.counted {
        let (measure, arm) = (counted.run.measure, counted.run.arm);
        match &counted.exits {
            Some(exits) if exits.lost > 0 => {
                warnings.push(Warning::Lost { measure, arm, events: exits.lost });
            }
            _ => {}
        }
        if let (Some(traced), Some(statistics)) = (traced(counted), counted_by_kvm(counted)) {
            let distance = traced.abs_diff(statistics);
            if distance > TOLERATED_EXITS && distance as f64 > TOLERATED_SHARE * statistics as f64 {
                disagreements.push(Disagreement { measure, arm, traced, statistics });
            }
        }
    }
    if !disagreements.is_empty() {
        warnings.push(Warning::CountsDisagree { found: disagreements });
    }
    warnings
}

/// Exits for each operation of `measure`.
pub(super) fn per_operation(recording: &Recording, measure: Measure) -> PerOperation {
    let runs = ArmPair::each(|arm| recording.counted_run(measure, arm));
    let rate = |arm, count: fn(&CountedRun) -> Option<u64>| {
        let counted = (*runs.of(arm))?;
        let operations = counted.operations();
        (operations > 0).then_some(())?;
        Some(count(counted)? as f64 / operations as f64)
    };
    PerOperation {
        reasons: match (runs.off, runs.on) {
            (None, None) => Vec::new(),
            (off, on) => rows(off.as_slice(), on.as_slice()),
        },
        traced: ArmPair::each(|arm| rate(arm, traced)),
        statistics: ArmPair::each(|arm| rate(arm, counted_by_kvm)),
    }
}

fn traced(counted: &CountedRun) -> Option<u64> {
    counted.exits.as_ref().map(ExitCounts::total)
}

fn counted_by_kvm(counted: &CountedRun) -> Option<u64> {
    counted.run.statistics.get("exits").copied()
}

/// Counted runs of one arm together.
struct Side {
    counts: ExitCounts,
    operations: u64,
}

impl Side {
    fn rate(&self, reason: ExitReason) -> f64 {
        share(self.counts.get(reason), self.operations)
    }
}

fn rows(off: &[&CountedRun], on: &[&CountedRun]) -> Vec<ReasonRow> {
    let (side_off, side_on) = (merged(off), merged(on));
    let both = !off.is_empty() && !on.is_empty();
    let each = |arm| match arm {
        Arm::Off => (off, &side_off),
        Arm::On => (on, &side_on),
    };
    let sides = [&side_off, &side_on].into_iter();
    let reasons: BTreeSet<ExitReason> =
        sides.flat_map(|side| side.counts.by_reason()).map(|(reason, _)| reason).collect();
    let mut ordered: Vec<(ExitReason, f64, f64)> =
        reasons.into_iter().map(|reason| (reason, side_off.rate(reason), side_on.rate(reason))).collect();
    // The largest difference first; order unchanged reasons by frequency, not by name.
    let size = |row: &(ExitReason, f64, f64)| (row.2 - row.1).abs();
    ordered.sort_by(|a, b| size(b).total_cmp(&size(a)).then(b.1.total_cmp(&a.1)));
    ordered
        .into_iter()
        .map(|(reason, rate_off, rate_on)| {
            let count = ArmPair::each(|arm| {
                let (runs, side) = each(arm);
                (!runs.is_empty()).then(|| side.counts.get(reason))
            });
            ReasonRow {
                reason,
                count,
                per_operation: ArmPair::each(|arm| count.of(arm).map(|_| each(arm).1.rate(reason))),
                handling: ArmPair::each(|arm| handling(each(arm).0, reason)),
                change: both.then(|| RelativeChange::between(rate_off, rate_on)),
                interval: interval([&side_off, &side_on], reason).filter(|_| both),
                expected: reason.under_interrupt_virtualization(),
            }
        })
        .collect()
}

fn interval(sides: [&Side; 2], reason: ExitReason) -> Option<stats::Interval> {
    stats::poisson::rate_change(sides.map(|side| side.counts.get(reason)), sides.map(|side| side.operations))
}

fn merged(runs: &[&CountedRun]) -> Side {
    let mut counts = ExitCounts::new();
    runs.iter().filter_map(|counted| counted.exits.as_ref()).for_each(|exits| counts.merge(exits));
    Side { counts, operations: runs.iter().map(|counted| counted.operations()).sum() }
}

fn handling(runs: &[&CountedRun], reason: ExitReason) -> Option<HandlingTime> {
    let mut times = runs.iter().filter_map(|counted| counted.handling.get(&reason)).peekable();
    times.peek()?;
    let mut all = HandlingTime::new();
    times.for_each(|time| all.merge(time));
    Some(all)
}

fn share(count: u64, operations: u64) -> f64 {
    if operations > 0 { count as f64 / operations as f64 } else { 0.0 }
}

/// Totals over the measures that were counted in every arm of the recording: a measure that failed in one arm must not
/// count in the other.
pub(super) fn totals(recording: &Recording) -> ExitTotals {
    let arms = arms_of(&recording.arms);
    let whole: Vec<Measure> = recording
        .plan
        .measures
        .iter()
        .copied()
        .filter(|&measure| arms.iter().all(|&arm| recording.counted_run(measure, arm).is_some()))
        .collect();
    let of = |arm| -> Vec<&CountedRun> {
        whole.iter().filter_map(|&measure| recording.counted_run(measure, arm)).collect()
    };
    let sum = |arm, count: fn(&CountedRun) -> Option<u64>| -> Option<u64> {
        let counts: Option<Vec<u64>> = of(arm).into_iter().map(count).collect();
        counts
            .filter(|counts| !counts.is_empty())
            .map(|counts| counts.into_iter().fold(0, u64::saturating_add))
    };
    let traced = ArmPair::each(|arm| sum(arm, traced));
    let statistics = ArmPair::each(|arm| sum(arm, counted_by_kvm));
    let operations = ArmPair::each(|arm| of(arm).iter().map(|counted| counted.operations()).sum::<u64>());
    let lost = ArmPair::each(|arm| {
        of(arm)
            .iter()
            .filter_map(|counted| counted.exits.as_ref())
            .map(|exits| exits.lost)
            .fold(0, u64::saturating_add)
    });
    let change = [traced, statistics].into_iter().find_map(|count| {
        let (off, on) = (count.off?, count.on?);
        Some(RelativeChange::between(share(off, operations.off), share(on, operations.on)))
    });
    ExitTotals { reasons: rows(&of(Arm::Off), &of(Arm::On)), traced, statistics, operations, lost, change }
}
