//! Multiple comparisons, of which some look significant by chance.

use serde::Serialize;

use super::figure::{Comparison, Figure};
use super::finding::Source;
use crate::workload::exits_of_which_work;

/// The number of comparisons, and the number expected to look significant by chance. Comparisons of equal arms are not
/// counted, nor those of exits for each unit of work, which are the exits a second in another unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Multiplicity {
    /// Comparisons with a p value.
    pub made: usize,
    /// The level of the first gate.
    pub level: f64,
    /// The expected number of p values below the level if nothing differs: `made` times `level`. Figures of one run are
    /// correlated, so such p values may come in groups.
    pub expected: f64,
    /// The number of p values below the level.
    pub below: usize,
    /// The number of comparisons that passed all gates.
    pub found: usize,
    /// Of these, the number that is still significant after Holm's adjustment for all comparisons of their source.
    pub found_by_holm: usize,
}

/// Differences between equal arms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FalseAlarms {
    /// The number of comparisons with a p value.
    pub comparisons: usize,
    /// The number of p values below the level.
    pub below: usize,
    /// Their share in percent; the expected share is the level.
    pub below_percent: f64,
    /// The number of comparisons that passed all gates: false alarms.
    pub found: usize,
    /// Their share in percent.
    pub found_percent: f64,
}

/// All comparisons of all figures.
pub(super) fn all(figures: &[Figure]) -> impl Iterator<Item = &Comparison> {
    figures.iter().flat_map(of)
}

fn of(figure: &Figure) -> impl Iterator<Item = &Comparison> {
    figure.points.iter().flat_map(|point| &point.comparisons).chain(&figure.overall)
}

/// Tests whether comparisons of the metric count: exits for each unit of work do not.
pub(super) fn is_of_its_own(metric: &str) -> bool {
    exits_of_which_work(metric).is_none()
}

pub(super) fn count(figures: &[Figure], level: f64) -> (Multiplicity, Option<FalseAlarms>) {
    let counted: Vec<&Figure> = figures.iter().filter(|figure| is_of_its_own(&figure.metric)).collect();
    let tally = |is_aa: bool| {
        let tested = || {
            counted
                .iter()
                .flat_map(|figure| of(figure))
                .filter(move |one| one.is_aa == is_aa && p_value(one).is_some())
        };
        let below = tested().filter(|one| p_value(one).is_some_and(|p| p < level)).count();
        let found = tested().filter(|one| one.finding.is_found()).count();
        let holm =
            tested().filter(|one| one.finding.is_found() && one.p_holm.is_some_and(|p| p < level)).count();
        (tested().count(), below, found, holm)
    };
    let (made, below, found, found_by_holm) = tally(false);
    let multiplicity =
        Multiplicity { made, level, expected: made as f64 * level, below, found, found_by_holm };
    let (comparisons, below, found, _) = tally(true);
    let percent = |count: usize| count as f64 / comparisons as f64 * 100.0;
    let false_alarms = (comparisons > 0).then(|| FalseAlarms {
        comparisons,
        below,
        below_percent: percent(below),
        found,
        found_percent: percent(found),
    });
    (multiplicity, false_alarms)
}

/// Sets the adjusted p values. The comparisons of all figures of one source form a family.
pub(super) fn adjust(figures: &mut [Figure]) {
    for source in [Source::Workload, Source::Host] {
        let mut family: Vec<&mut Comparison> = figures
            .iter_mut()
            .filter(|figure| figure.source == source && is_of_its_own(&figure.metric))
            .flat_map(|figure| {
                figure.points.iter_mut().flat_map(|point| &mut point.comparisons).chain(&mut figure.overall)
            })
            .filter(|one| p_value(one).is_some() && !one.is_aa)
            .collect();
        let adjusted = stats::holm(&family.iter().filter_map(|one| p_value(one)).collect::<Vec<_>>());
        for (one, p) in family.iter_mut().zip(adjusted) {
            one.p_holm = Some(p);
        }
    }
}

fn p_value(comparison: &Comparison) -> Option<f64> {
    comparison.change.and_then(|change| change.p_value)
}
