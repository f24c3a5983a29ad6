//! The decision to keep a change.

use super::outcome::{Judged, Ruling};
use super::plan::Rules;
use crate::analysis::{Figure, Finding, Findings};

/// Figures that are reported in addition to those that decide.
const BESIDE: [&str; 4] = ["exits.total", "accesses.port", "accesses.mmio", "cpu.busy"];

/// The ruling on a study of two arms, and its figures, the deciding ones first.
pub(super) fn judge(findings: &Findings, rules: &Rules) -> (Ruling, Vec<Judged>) {
    let main = findings.main();
    let named = |figure: &&Figure| rules.judge.contains(&figure.metric);
    let deciding: Vec<&Figure> =
        if rules.judge.is_empty() { main.clone() } else { findings.figures.iter().filter(named).collect() };
    let is_among = |figure: &Figure, some: &[&Figure]| some.iter().any(|one| std::ptr::eq(*one, figure));
    let mut judged: Vec<Judged> = deciding.iter().flat_map(|figure| told(figure, true)).collect();
    let guarding = main.iter().filter(|figure| !is_among(figure, &deciding));
    let guards: Vec<Judged> = guarding.flat_map(|figure| told(figure, false)).collect();
    let some =
        |good: bool, from: &[Judged]| from.iter().any(|one| one.finding.is_good(one.better) == Some(good));
    let ruling = match (some(true, &judged), some(false, &judged) || some(false, &guards)) {
        (true, false) => Ruling::Kept,
        (true, true) => Ruling::Mixed,
        (false, true) => Ruling::Worse,
        (false, false) if judged.iter().all(|one| one.finding == Finding::TooFew) => Ruling::TooFew,
        (false, false) => Ruling::NoDifference,
    };
    judged.extend(guards);
    let beside = findings.figures.iter().filter(|figure| BESIDE.contains(&figure.metric.as_str()));
    let beside = beside.filter(|figure| !is_among(figure, &deciding) && !is_among(figure, &main));
    judged.extend(beside.flat_map(|figure| told(figure, false)));
    (ruling, judged)
}

fn told(figure: &Figure, decides: bool) -> Vec<Judged> {
    let one = |comparison: &crate::analysis::Comparison| Judged {
        figure: figure.name(),
        metric: figure.metric.clone(),
        workload: figure.workload.clone(),
        unit: figure.unit,
        better: figure.better,
        decides,
        before: comparison.levels.map(|levels| levels[0]),
        after: comparison.levels.map(|levels| levels[1]),
        change: comparison.change,
        finding: comparison.finding,
    };
    figure.summary().iter().map(one).collect()
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
