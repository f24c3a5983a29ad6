//! The verdict of a comparison, in a sentence or two.

use conclusions::profile_comparison::{ComparedRow, Effect, Estimate, Overall, ProfileComparison};

use super::compared::Compared;
use super::figures::{change, interval, unit};
use crate::format::{self, time};
use crate::text::capital;

/// The verdict on the total, and the rows that changed most in either direction.
pub(crate) fn verdict(compared: &Compared<'_>) -> String {
    let mut said = vec![whole(compared, true)];
    said.extend(extremes(compared));
    said.join(" ")
}

/// The verdict without intervals and rows, for output that shows both elsewhere.
pub(crate) fn headline(compared: &Compared<'_>) -> String {
    whole(compared, false)
}

/// The rows that changed most, a sentence each.
pub(crate) fn extremes(compared: &Compared<'_>) -> Vec<String> {
    let comparison = compared.comparison;
    let unit = unit(comparison.per);
    let most = [(extreme(comparison, Effect::More), "grew"), (extreme(comparison, Effect::Less), "shrank")];
    let said = most.into_iter().filter_map(|(row, word)| {
        let row = row?;
        Some(format!("{} {word} most: {}.", compared.name(&row.subject), by_how_much(row, unit)))
    });
    said.collect()
}

fn whole(compared: &Compared<'_>, with_intervals: bool) -> String {
    let comparison = compared.comparison;
    if comparison.verdict == Overall::Nothing {
        return match (comparison.total.before.exits, comparison.total.after.exits) {
            (0, 0) => "There is no exit on either side.",
            (0, _) => "Nothing was recorded before, so there is nothing to compare.",
            _ => "Nothing was recorded after, so there is nothing to compare.",
        }
        .to_owned();
    }
    let unit = unit(comparison.per);
    let clause = |estimate, nouns: [&str; 3]| clause(estimate, nouns, unit, with_intervals);
    let mut said = capital(&clause(comparison.total.rate, ["fewer exits", "more exits", "exits"]));
    if let Some(total) = comparison.total.time {
        let times = clause(total, ["less handling time", "more handling time", "handling time"]);
        let joint = if comparison.verdict == Overall::Mixed { ", but " } else { ", and " };
        said = format!("{said}{joint}{times}");
    }
    said + "."
}

/// The text for a change without an interval.
const NO_INTERVAL: &str = "no interval";

/// A change in words: "95.6 % fewer exits a second (95 % interval -96.0 to -95.1 %)".
fn clause(estimate: Estimate, nouns: [&str; 3], unit: &str, with_interval: bool) -> String {
    let [less, more, neither] = nouns;
    let effect = estimate.effect();
    let is_unknown = effect == Effect::Unknown;
    let Some(percent) = estimate.change.percent() else {
        return match effect {
            Effect::Indistinguishable => {
                format!("no significant change in {neither} {unit}, of which there were none before")
            }
            Effect::Unknown => format!("{more} {unit}, from none before ({NO_INTERVAL})"),
            _ => format!("{more} {unit}, from none before"),
        };
    };
    let within = match estimate.interval {
        Some(_) => format!("95 % interval {}", interval(Some(estimate))),
        None => NO_INTERVAL.to_owned(),
    };
    let found = change(Some(estimate));
    let size = found.trim_start_matches(['-', '+']);
    let (aside, joined) = if with_interval || is_unknown {
        (format!(" ({within})"), format!(" ({found}; {within})"))
    } else {
        Default::default()
    };
    match effect {
        Effect::Indistinguishable => format!("no significant change in {neither} {unit}{joined}"),
        Effect::Negligible => format!("next to no change in {neither} {unit}{joined}"),
        _ if percent <= -100.0 => format!("no {neither} {unit} any more"),
        _ if percent < 0.0 => format!("{size} {less} {unit}{aside}"),
        _ => format!("{size} {more} {unit}{aside}"),
    }
}

/// The row with the largest significant change of host time, or of its rate if no times are known.
fn extreme(comparison: &ProfileComparison, effect: Effect) -> Option<&ComparedRow> {
    let has_times = comparison.has_times();
    let by = |row: &ComparedRow| {
        if has_times {
            row.after.time_rate_ns - row.before.time_rate_ns
        } else {
            row.after.rate - row.before.rate
        }
    };
    let sure = |row: &&ComparedRow| !row.idle && row.telling(has_times).effect() == effect;
    let rows = comparison.rows.iter().filter(sure);
    let most = rows.max_by(|a, b| by(a).abs().total_cmp(&by(b).abs()))?;
    // A single row equals the total.
    (comparison.rows.len() > 1).then_some(most)
}

fn by_how_much(row: &ComparedRow, unit: &str) -> String {
    let by = row.after.time_rate_ns - row.before.time_rate_ns;
    if by != 0.0 {
        let sign = if by < 0.0 { "-" } else { "+" };
        return format!("{sign}{} of handling {unit}", time(by.abs()));
    }
    let by = row.after.rate - row.before.rate;
    let sign = if by < 0.0 { "-" } else { "+" };
    format!("{sign}{} exits {unit}", format::per_operation(by.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use conclusions::RelativeChange;
    use stats::Interval;

    fn said(change: RelativeChange, interval: Option<(f64, f64)>) -> [String; 2] {
        let interval = interval.map(|(low, high)| Interval { low, high });
        let estimate = Estimate { change, interval, basis: None };
        let nouns = ["fewer exits", "more exits", "exits"];
        [true, false].map(|with_interval| clause(estimate, nouns, "a second", with_interval))
    }

    #[test]
    fn a_change_is_more_or_less_only_if_its_interval_says_so() {
        let [long, short] = said(RelativeChange::Percent(-50.0), Some((-60.0, 5.0)));
        assert!(
            long.starts_with("no significant change in exits a second (-50.0 %; 95 % interval"),
            "{long}"
        );
        assert_eq!(short, "no significant change in exits a second");
        let [long, short] = said(RelativeChange::FromNothing, Some((-81.0, f64::INFINITY)));
        assert_eq!(long, "no significant change in exits a second, of which there were none before");
        assert_eq!(long, short);
        let [long, short] = said(RelativeChange::FromNothing, Some((20.0, f64::INFINITY)));
        assert_eq!([&*long, &*short], ["more exits a second, from none before"; 2]);
        let [long, short] = said(RelativeChange::Percent(-50.0), Some((-60.0, -40.0)));
        assert!(long.starts_with("50.0 % fewer exits a second (95 % interval"), "{long}");
        assert_eq!(short, "50.0 % fewer exits a second");
    }

    #[test]
    fn a_change_without_an_interval_says_so_everywhere() {
        let without = said(RelativeChange::Percent(-50.0), None);
        assert_eq!(without, ["50.0 % fewer exits a second (no interval)"; 2]);
        let without = said(RelativeChange::FromNothing, None);
        assert_eq!(without, ["more exits a second, from none before (no interval)"; 2]);
        assert_eq!(said(RelativeChange::Percent(-100.0), None), ["no exits a second any more"; 2]);
    }
}
