//! Figures of comparisons as text with their units, the same in every medium.

use std::collections::BTreeSet;

use conclusions::profile_comparison::{Basis, Estimate, Per, ProfileComparison};

use crate::format::{self, NONE, count, per_second};

/// The unit of rates: "a second".
pub(crate) fn unit(per: Per) -> &'static str {
    match per {
        Per::Second => "a second",
        Per::Operation => "an operation",
        Per::Recording => "a recording",
    }
}

/// Exits per unit: "6,670/s", "2.002", "34,592".
pub(crate) fn rate(value: f64, per: Per) -> String {
    match per {
        Per::Second => per_second(value),
        Per::Operation if value < 0.1 && value > 0.0 => format::small(value),
        Per::Operation if value < 10.0 => format::per_operation(value),
        Per::Operation if value < 100.0 => format!("{value:.1}"),
        Per::Operation | Per::Recording => count(value.round() as u64),
    }
}

/// The change in percent, or a word if it cannot be given in percent.
pub(crate) fn change(estimate: Option<Estimate>) -> String {
    format::change(estimate.map(|estimate| estimate.change))
}

/// The interval of an estimate: "-71.6 to -71.0 %", "+200 % or more", or a dash.
pub(crate) fn interval(estimate: Option<Estimate>) -> String {
    format::interval_of(estimate.and_then(|estimate| estimate.interval))
}

/// The method of an interval, in a word.
pub(crate) fn basis(estimate: Option<Estimate>) -> &'static str {
    match estimate.and_then(|estimate| estimate.basis) {
        Some(Basis::Recordings { .. }) => "runs",
        Some(Basis::Blocks { .. }) => "blocks",
        Some(Basis::Poisson { measured: true, .. }) => "counts",
        Some(Basis::Poisson { measured: false, .. }) => "counts*",
        Some(Basis::Times) => "times",
        None => NONE,
    }
}

/// Explanations of the words of [`basis`] that occur.
pub(crate) fn methods(comparison: &ProfileComparison) -> Vec<String> {
    let rows = comparison.rows.iter().chain([&comparison.total]);
    let words: BTreeSet<&str> = rows
        .flat_map(|row| [Some(row.rate), row.time, row.mean])
        .map(basis)
        .filter(|&word| word != NONE)
        .collect();
    let meant = |word: &str| match word {
        "runs" => "runs: Student's t over the recordings, each of which is one figure".to_owned(),
        "blocks" => format!(
            "blocks: {} draws of blocks of time slices, each a tenth of a recording (seed {})",
            count(comparison.resamples as u64),
            comparison.seed
        ),
        "counts" => "counts: exact for Poisson counts, widened by how clumped the exits are".to_owned(),
        "counts*" => "counts*: the same, supposing that exits are not clumped, as nothing is known of that: \
             likely too narrow"
            .to_owned(),
        _ => "times: Welch's, supposing that handling times are independent of each other".to_owned(),
    };
    words.into_iter().map(meant).collect()
}

/// A note if the intervals do not include variation between runs.
pub(crate) fn scope(comparison: &ProfileComparison) -> Option<&'static str> {
    let alone = !matches!(comparison.total.rate.basis, Some(Basis::Recordings { .. }));
    alone.then_some(
        "Intervals speak of these recordings alone. What differs from run to run is not in them; for that give three \
         recordings or more a side.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_exits_of_an_operation_keep_two_digits() {
        let shown =
            [2.8214, 0.126, 0.0421, 0.000_234, 0.0, 53.0, 1234.4].map(|value| rate(value, Per::Operation));
        assert_eq!(shown, ["2.821", "0.126", "0.042", "0.00023", "0.000", "53.0", "1,234"]);
    }
}
