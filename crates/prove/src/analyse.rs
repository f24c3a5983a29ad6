//! Analysis of a recording.

use host::Fingerprint;
use probe::Arms;
use probe::measure::Measure;
use probe::run::Arm;

use super::difference::{Difference, MINIMUM_PAIRS, p_value};
use super::evidence::Evidence;
use super::outcome::{AtCost, Cost, Effect, MeasureOutcome, Method, OUTCOME_FORMAT, Proof};
use super::pairing::{Pairing, Statistic, pair};
use super::recording::arms_of;
use super::{ArmPair, Disturbed, Recording, Tracing, Warning, counting, verdict};
use stats::{CONFIDENCE, Summary, half_shift, median, permutation};

/// The seed is fixed so that the same recording always gives the same outcome.
const SEED: u64 = 0x0070_726f_7665;

/// The difference in percent below which a difference does not matter in practice, even if it is significant.
const NEGLIGIBLE_PERCENT: f64 = 1.0;

const DRIFT_PERCENT: f64 = 5.0;
/// The drift in cycles that is ignored even if the percentage is high: it may be one or two steps of the TSC.
const DRIFT_CYCLES: f64 = 10.0;
const OUTLIER_SHARE: f64 = 0.01;

/// Measures without interrupts, so that a difference in them is an artefact of the experiment.
const CONTROLS: [Measure; 2] = [Measure::Floor, Measure::Cpuid];

/// The reason why a recording cannot be analysed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnalysed {
    /// No run has samples.
    #[error("The recording holds no samples{}", first_cause(.why))]
    Empty {
        /// The errors of the measures that failed.
        why: Vec<String>,
    },
}

fn first_cause(why: &[String]) -> String {
    why.first().map(|cause| format!(": {cause}")).unwrap_or_default()
}

/// Analyses `recording`.
///
/// The host counts as emulated if the recording or the fingerprint names an emulator.
///
/// # Errors
/// If the recording holds no samples.
pub fn analyse(recording: &Recording) -> Result<Proof, NotAnalysed> {
    let recording = counting::without_silent_tracepoints(recording);
    let recording = recording.as_ref();
    let mut warnings: Vec<Warning> = Vec::new();
    let evidence = Evidence::of(recording);
    warnings.extend(evidence.warnings(recording));
    if let Tracing::Statistics { why } = &recording.tracing {
        warnings.push(Warning::NoTracepoints { why: why.clone() });
    }
    warnings.extend(recording.failures.iter().map(|failure| Warning::Failed {
        measure: failure.measure,
        arm: failure.arm,
        why: failure.why.clone(),
        counted: failure.counted,
    }));
    let mut measures = Vec::new();
    for &measure in &recording.plan.measures {
        measures.extend(measure_outcome(recording, measure, &mut warnings));
    }
    warnings.extend(counting::warnings(recording));
    warnings.extend(disturbances(recording));
    if measures.is_empty() {
        let why = recording.failures.iter().map(|failure| format!("{}: {}", failure.measure, failure.why));
        return Err(NotAnalysed::Empty { why: why.collect() });
    }
    let emulated = recording.emulated.clone().or_else(|| emulator(&recording.fingerprint));
    match &recording.fingerprint.virtualization {
        Some(below) if emulated.is_none() => warnings.push(Warning::Nested { below: below.clone() }),
        _ => {}
    }
    warnings.sort_by_key(|warning| !warning.is_grave());
    let exits = counting::totals(recording);
    let verdict::Conclusion { judgement, sentence, headline } = verdict::verdict(
        &recording.arms,
        &measures,
        &exits,
        &warnings,
        emulated.as_deref(),
        recording.switch_cycles,
    );
    Ok(Proof {
        format: OUTCOME_FORMAT,
        version: recording.version.clone(),
        started: recording.started,
        took_ms: recording.took_ms,
        verdict: sentence,
        judgement,
        headline,
        fingerprint: recording.fingerprint.clone(),
        emulated,
        switch_cycles: recording.switch_cycles,
        tsc_khz: recording.tsc_khz,
        plan: recording.plan.clone(),
        arms: recording.arms.clone(),
        evidence,
        measures,
        at_other_costs: at_other_costs(recording),
        exits,
        warnings,
        method: method(),
    })
}

/// The measures at other costs of a switch between guest and host. Recordings without samples are left out.
fn at_other_costs(recording: &Recording) -> Vec<AtCost> {
    let outcome = |other: &Recording| {
        let measures = analyse(other).ok()?.measures;
        Some(AtCost { switch_cycles: other.switch_cycles?, measures })
    };
    recording.at_other_costs.iter().filter_map(outcome).collect()
}

fn method() -> Method {
    Method {
        confidence: CONFIDENCE,
        interval:
            "Student's t over the logarithms of the ratios of neighbouring runs, one of each arm, reduced \
                   to their medians; runs are taken in blocks of off, on, on, off"
                .to_owned(),
        p_value: format!(
            "permutation of the arms' names within blocks: every dealing, or {} at random where there are more",
            permutation::DEALINGS
        ),
        seed: SEED,
        negligible_percent: NEGLIGIBLE_PERCENT,
    }
}

/// The emulator that the host's fingerprint names, if any.
fn emulator(fingerprint: &Fingerprint) -> Option<String> {
    let names =
        [fingerprint.virtualization.clone(), fingerprint.cpu.as_ref().and_then(|cpu| cpu.name.clone())];
    let names = names.into_iter().flatten().collect::<Vec<_>>().join(" ").to_lowercase();
    [("bochs", "Bochs"), ("tcg", "QEMU TCG")]
        .into_iter()
        .find(|(word, _)| names.contains(word))
        .map(|(_, name)| name.to_owned())
}

fn measure_outcome(
    recording: &Recording,
    measure: Measure,
    warnings: &mut Vec<Warning>,
) -> Option<MeasureOutcome> {
    let cost = ArmPair::each(|arm| cost(recording, measure, arm));
    if cost.off.is_none() && cost.on.is_none() {
        return None;
    }
    let both = matches!(recording.arms, Arms::Both { .. });
    let of = |statistic| pair(recording.timed_runs(measure), statistic);
    let medians =
        if both { of(Statistic::Median) } else { Pairing { pairs: Vec::new(), broken: Vec::new() } };
    let difference = super::difference(&medians.pairs);
    let effect = effect(difference);
    if both {
        doubts(measure, &medians, difference, effect, warnings);
    }
    Some(MeasureOutcome {
        measure,
        cost,
        difference,
        mean_difference: both.then(|| super::difference(&of(Statistic::Mean).pairs)).flatten(),
        p99_difference: both.then(|| super::difference(&of(Statistic::P99).pairs)).flatten(),
        p_value: p_value(&medians.pairs, SEED),
        effect,
        exits: counting::per_operation(recording, measure),
    })
}

fn cost(recording: &Recording, measure: Measure, arm: Arm) -> Option<Cost> {
    let medians = medians(recording, measure, arm);
    let pooled = Summary::of(&recording.cycles(measure, arm))?;
    Some(Cost { runs: medians.len(), median: median(&medians)?, pooled })
}

fn medians(recording: &Recording, measure: Measure, arm: Arm) -> Vec<f64> {
    let runs = recording.timed_runs(measure).filter(|timed| timed.run.arm == arm);
    runs.filter_map(|timed| Statistic::Median.of(&timed.run)).collect()
}

/// Disturbances of the runs, one warning for each kind: one for each measure would bury other warnings.
fn disturbances(recording: &Recording) -> Vec<Warning> {
    let (mut drifts, mut outliers) = (Vec::new(), Vec::new());
    for &measure in &recording.plan.measures {
        for &arm in arms_of(&recording.arms) {
            let medians = medians(recording, measure, arm);
            let shift = half_shift(&medians).unwrap_or(0.0);
            let cycles = median(&medians).unwrap_or(0.0) * shift.abs() / 100.0;
            if shift.abs() > DRIFT_PERCENT && cycles > DRIFT_CYCLES {
                drifts.push(Disturbed { measure, arm, percent: shift });
            }
            let share = stats::outliers(&recording.cycles(measure, arm)).share();
            if share > OUTLIER_SHARE {
                outliers.push(Disturbed { measure, arm, percent: share * 100.0 });
            }
        }
    }
    let mut warnings = Vec::new();
    if !drifts.is_empty() {
        warnings.push(Warning::Drift { found: drifts });
    }
    if !outliers.is_empty() {
        warnings.push(Warning::Outliers { found: outliers });
    }
    warnings
}

fn effect(difference: Option<Difference>) -> Effect {
    let Some(Difference { percent, interval: Some(interval), .. }) = difference else {
        return Effect::Unknown;
    };
    if interval.holds_zero() {
        Effect::Indistinguishable
    } else if percent.abs() < NEGLIGIBLE_PERCENT {
        Effect::Negligible
    } else if percent < 0.0 {
        Effect::Fewer
    } else {
        Effect::More
    }
}

fn doubts(
    measure: Measure,
    pairing: &Pairing,
    difference: Option<Difference>,
    effect: Effect,
    warnings: &mut Vec<Warning>,
) {
    if !pairing.broken.is_empty() {
        warnings.push(Warning::BrokenBlocks { measure, blocks: pairing.broken.len() });
    }
    if pairing.pairs.len() < MINIMUM_PAIRS {
        warnings.push(Warning::TooFewRuns { measure, runs: pairing.pairs.len() });
        return;
    }
    let first = pairing.pairs[0];
    if pairing.pairs.iter().all(|pair| (pair.off, pair.on) == (first.off, first.on)) {
        let said = warnings.iter_mut().find_map(|warning| match warning {
            Warning::NoVariation { others, .. } => Some(others),
            _ => None,
        });
        match said {
            Some(others) => others.push(measure),
            None => warnings.push(Warning::NoVariation { measure, others: Vec::new() }),
        }
    }
    match difference {
        Some(Difference { percent, .. })
            if CONTROLS.contains(&measure) && matches!(effect, Effect::Fewer | Effect::More) =>
        {
            warnings.push(Warning::ControlMoved { measure, percent });
        }
        _ => {}
    }
}

#[cfg(test)]
#[path = "analyse_tests.rs"]
mod tests;
