//! The decision to keep a change.

use super::outcome::{Judged, Ruling};
use super::plan::Rules;
use crate::analysis::{Figure, Finding, Findings};
use stats::LEVEL;

/// Figures that are reported in addition to those that decide.
const BESIDE: [&str; 4] = ["exits.total", "accesses.port", "accesses.mmio", "cpu.busy"];

/// The ruling on a study of two arms, and its figures, the deciding ones first. It is one of the studies of this many
/// `changes`, so a figure that improved must be certain among all figures that decide in all of them.
pub(super) fn judge(findings: &Findings, rules: &Rules, changes: usize) -> (Ruling, Vec<Judged>) {
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
    // Half of the differences by chance are in the worse direction, in which no change is kept. So with this level the
    // probability of keeping any change by chance is at most LEVEL over all changes (Bonferroni).
    let level = LEVEL.min(2.0 * LEVEL / (changes * judged.len()) as f64);
    let is_certain = |one: &Judged| {
        let p_value = one.change.and_then(|change| change.student_p_value());
        one.finding.is_good(one.better) == Some(true) && p_value.is_some_and(|p_value| p_value < level)
    };
    let ruling = match (some(true, &judged), some(false, &judged) || some(false, &guards)) {
        (true, false) if judged.iter().any(is_certain) => Ruling::Kept,
        (true, false) => Ruling::Uncertain,
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
