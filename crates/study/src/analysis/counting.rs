//! The cost of counting exits. It is part of the workloads' figures, and an arm with more exits pays more of it.

use super::figure::{Comparison, Figure};
use super::finding::Source;
use super::findings::Findings;
use super::warning::Warning;

/// The run time of the programs that count exits. They run on the threads of the vCPUs.
const PROGRAMS: &str = "sampling.programs";
/// The run time of the vCPUs' threads, which contains that of the programs.
const VCPUS: &str = "vcpu.cpu";
/// The difference between the arms' costs, in percent of the vCPUs' run time, that always matters: as much as a change
/// needs to be reported.
const MUCH_PERCENT: f64 = 1.0;
/// The share of a reported change that the cost of counting may explain without a warning.
const SMALL_SHARE: f64 = 0.25;

/// Warnings of arms whose cost of counting exits differs from the baseline's by so much that it explains a good part of
/// a change of a main figure, or could hide one.
pub(super) fn warnings(findings: &Findings) -> Vec<Warning> {
    let main = findings.main().into_iter();
    let all = main.flat_map(|figure| figure.summary().iter().map(move |one| (figure, one)));
    let warning = |(figure, one): (&Figure, &Comparison)| {
        let percent = costs(findings, &figure.workload, [one.baseline, one.arm])?;
        let differs = (percent[1] - percent[0]).abs();
        let change = one.percent.filter(|_| one.finding.is_found());
        let explains = change.is_some_and(|change| differs > change.abs() * SMALL_SHARE);
        let name = |arm: usize| findings.arms.get(arm).map(|arm| arm.full_name.clone());
        (explains || differs > MUCH_PERCENT).then_some(Warning::CountingDiffers {
            workload: figure.workload.clone(),
            arms: [name(one.baseline)?, name(one.arm)?],
            percent,
        })
    };
    all.filter_map(warning).collect()
}

/// The cost of counting exits in two arms, in percent of the run time of their vCPUs; `None` if it was not measured.
fn costs(findings: &Findings, workload: &str, arms: [usize; 2]) -> Option<[f64; 2]> {
    let sums = |metric: &str| {
        let is_it = |figure: &&Figure| {
            figure.source == Source::Host && figure.workload == workload && figure.metric == metric
        };
        let points = findings.figures.iter().find(is_it)?.points.iter();
        let means = points.filter_map(|point| {
            let mean = |arm: usize| Some(point.arms.get(arm)?.as_ref()?.mean);
            Some([mean(arms[0])?, mean(arms[1])?])
        });
        means.reduce(|sum, more| [sum[0] + more[0], sum[1] + more[1]])
    };
    let (programs, vcpus) = (sums(PROGRAMS)?, sums(VCPUS)?);
    let ran = vcpus.iter().all(|share| *share > 0.0);
    ran.then(|| [0, 1].map(|side| programs[side] * 100.0 / vcpus[side]))
}
