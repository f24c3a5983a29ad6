//! Compares exits before and after a change of a host's kernel.
//!
//! Exits come in bursts, so neighbouring intervals are correlated. Therefore hours are compared: each gives
//! one rate, and the hours of both sides are compared like runs ([`stats::contrast`]). With fewer than three
//! hours on a side there is no interval.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stats::contrast::{Scale, unpaired};
use stats::{Contrast, LEVEL};

use crate::views::sleep_reasons;

/// The hours of each host and kernel, in chronological order. Handling excludes time in which guests slept; it is null if
/// some of the time is of exits without a reason, which may be sleep.
pub(super) const HOURS: &str = concat!(
    "SELECT host, ran AS kernel, CAST(began AS BIGINT) AS hour, exits, \
     CASE WHEN coalesce(unknown_ns, 0) = 0 THEN all_ns - coalesce(asleep_ns, 0) END AS handling_ns, \
     observed_ns FROM (SELECT host_name AS host, kernel AS ran, date_trunc('hour', interval_start) AS began, \
       sum(exits) AS exits, sum(handling_ns) AS all_ns, sum(observed_ns) AS observed_ns FROM raw.intervals \
       WHERE kernel IS NOT NULL AND observed_ns > 0 GROUP BY 1, 2, 3) \
     LEFT JOIN (SELECT host_name AS of_host, kernel AS of_kernel, date_trunc('hour', interval_start) AS of_hour, \
       sum(handling_ns) FILTER (WHERE reason IS NULL) AS unknown_ns, sum(handling_ns) FILTER (WHERE reason IN ",
    sleep_reasons!(),
    ") AS asleep_ns FROM raw.exits GROUP BY 1, 2, 3) ON of_host = host AND of_kernel = ran AND of_hour = began \
     ORDER BY host, hour"
);

/// The seed of permutation tests, constant so that results are reproducible.
const SEED: u64 = 1;

#[derive(Debug, Deserialize)]
pub(super) struct Hour {
    host: String,
    kernel: String,
    hour: i64,
    exits: i64,
    handling_ns: Option<i64>,
    observed_ns: i64,
}

/// Selects a figure of an hour; `None` if it is not known.
type Figure = fn(&Hour) -> Option<i64>;

/// The exits of a host under two kernels in succession.
#[derive(Debug, Serialize)]
pub struct KernelChange {
    /// The host.
    pub host: String,
    /// The kernel before.
    pub before: String,
    /// The kernel after.
    pub after: String,
    /// The number of hours under each that are compared.
    pub hours: [usize; 2],
    /// The exits per second under each.
    pub exits_per_second: [f64; 2],
    /// The change of the exits.
    pub exits: Option<Change>,
    /// The handling time under each, in percent of a CPU, without time in which guests slept; null if that is not known.
    pub handling_percent: [Option<f64>; 2],
    /// The change of the handling time.
    pub handling: Option<Change>,
}

/// A change in percent.
#[derive(Debug, Serialize)]
pub struct Change {
    /// The estimate.
    pub percent: f64,
    /// The lower bound of the 95 % interval; null if there is no interval, or no bound.
    pub low: Option<f64>,
    /// The upper bound.
    pub high: Option<f64>,
    /// The p value.
    pub p_value: Option<f64>,
    /// The finding: `more`, `fewer`, `not-seen`, or `too-few` hours.
    pub finding: &'static str,
}

impl Change {
    fn of(contrast: Contrast) -> Self {
        let interval = contrast.interval;
        let finding = match (interval, contrast.is_seen(LEVEL)) {
            (None, _) => "too-few",
            (Some(_), false) => "not-seen",
            (Some(_), true) if contrast.estimate > 0.0 => "more",
            (Some(_), true) => "fewer",
        };
        let end = |end: f64| Some(end).filter(|end| end.is_finite());
        Self {
            percent: contrast.estimate,
            low: interval.and_then(|interval| end(interval.low)),
            high: interval.and_then(|interval| end(interval.high)),
            p_value: contrast.p_value,
            finding,
        }
    }
}

/// The last change of each host's kernel.
pub(super) fn changes(hours: &[Hour]) -> Vec<KernelChange> {
    let mut hosts: BTreeMap<&str, Vec<&Hour>> = BTreeMap::new();
    for hour in hours {
        hosts.entry(&hour.host).or_default().push(hour);
    }
    hosts.into_values().filter_map(|hours| change(&hours)).collect()
}

fn change(hours: &[&Hour]) -> Option<KernelChange> {
    let last = hours.iter().max_by_key(|hour| hour.hour)?;
    let under = |kernel: &str| hours.iter().copied().filter(|hour| hour.kernel == kernel).collect::<Vec<_>>();
    let after = under(&last.kernel);
    let first = after.iter().map(|hour| hour.hour).min()?;
    // The last kernel to run before this one first ran. All hours of a kernel count, even if another one ran
    // in between.
    let before = hours
        .iter()
        .filter(|hour| hour.kernel != last.kernel && hour.hour <= first)
        .max_by_key(|hour| hour.hour)?;
    let sides = [usual(under(&before.kernel)), usual(after)];
    let exits: Figure = |hour| Some(hour.exits);
    let handling: Figure = |hour| hour.handling_ns;
    let on_each = |figure: Figure, scale: f64| sides.each_ref().map(|side| overall(side, figure, scale));
    Some(KernelChange {
        host: last.host.clone(),
        before: before.kernel.clone(),
        after: last.kernel.clone(),
        hours: [sides[0].len(), sides[1].len()],
        exits_per_second: on_each(exits, 1e9).map(Option::unwrap_or_default),
        exits: ratio(&sides, exits),
        handling_percent: on_each(handling, 100.0),
        handling: ratio(&sides, handling),
    })
}

/// Leaves out hours that were observed for less than a tenth of the usual time, such as the one in which the host
/// started: a few seconds would count as much as the others' hour.
fn usual(mut hours: Vec<&Hour>) -> Vec<&Hour> {
    let mut observed: Vec<i64> = hours.iter().map(|hour| hour.observed_ns).collect();
    observed.sort_unstable();
    let median = observed.get(observed.len() / 2).copied().unwrap_or_default();
    hours.retain(|hour| hour.observed_ns >= median / 10);
    hours
}

/// The figure of all hours that have it together, relative to their observed time.
fn overall(hours: &[&Hour], figure: Figure, scale: f64) -> Option<f64> {
    let known = hours.iter().filter_map(|hour| Some((figure(hour)? as f64, hour.observed_ns as f64)));
    let (sum, observed) = known.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
    (observed > 0.0).then(|| sum * scale / observed)
}

/// The change in percent; `None` if any hour has zero, because ratios need positive values, or if a side has no hour with
/// this figure.
fn ratio(sides: &[Vec<&Hour>; 2], figure: Figure) -> Option<Change> {
    let rate = |hour: &&Hour| Some(figure(hour)? as f64 / hour.observed_ns as f64);
    let [before, after] = sides.each_ref().map(|side| side.iter().filter_map(rate).collect::<Vec<f64>>());
    let enter = |values: &[f64]| values.iter().map(|value| Scale::Ratio.enter(*value)).collect::<Vec<_>>();
    let positive = before.iter().chain(&after).all(|value| *value > 0.0);
    positive.then(|| unpaired(&enter(&before), &enter(&after), Scale::Ratio, SEED)).flatten().map(Change::of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(kernel: &str, from: i64, exits: &[i64]) -> Vec<Hour> {
        let hour = |(number, exits): (i64, &i64)| Hour {
            host: "web-1".to_owned(),
            kernel: kernel.to_owned(),
            hour: from + number * 3_600_000_000,
            exits: *exits,
            handling_ns: Some(exits * 2_000),
            observed_ns: 3_600_000_000_000,
        };
        (0..).zip(exits).map(hour).collect()
    }

    #[test]
    fn twice_the_exits_after_a_new_kernel_are_found_with_an_interval() {
        let mut all = hours("6.1", 0, &[1_000_000, 1_020_000, 990_000, 1_010_000, 1_005_000]);
        all.extend(hours("6.12", 20_000_000_000, &[2_000_000, 2_040_000, 1_980_000, 2_010_000, 2_015_000]));
        let [found] = changes(&all).try_into().unwrap();
        let exits = found.exits.unwrap();
        assert_eq!((found.before.as_str(), found.after.as_str(), found.hours), ("6.1", "6.12", [5, 5]));
        assert_eq!(exits.finding, "more");
        assert!(exits.low.unwrap() > 90.0 && exits.high.unwrap() < 110.0, "{exits:?}");
        assert_eq!(found.handling.unwrap().finding, "more");
    }

    #[test]
    fn two_hours_are_too_few_and_one_kernel_is_no_change() {
        let mut all = hours("6.1", 0, &[1_000_000, 1_020_000]);
        assert!(changes(&all).is_empty());
        all.extend(hours("6.12", 20_000_000_000, &[2_000_000, 2_040_000]));
        let [found] = changes(&all).try_into().unwrap();
        assert_eq!(found.exits.unwrap().finding, "too-few");
    }

    #[test]
    fn a_few_seconds_are_no_hour() {
        let full = [3_600_000, 3_650_000, 3_550_000, 3_620_000, 3_580_000];
        let mut all = hours("6.1", 0, &full);
        all.extend(hours("6.12", 40_000_000_000, &full));
        let of_start =
            Hour { observed_ns: 10_000_000_000, ..hours("6.12", 36_000_000_000, &[1_000_000]).remove(0) };
        all.push(of_start);
        let [found] = changes(&all).try_into().unwrap();
        assert_eq!((found.hours, found.exits_per_second), ([5, 5], [1000.0, 1000.0]));
        assert_eq!(found.exits.unwrap().finding, "not-seen");
    }

    #[test]
    fn hours_without_handling_are_not_compared_by_it() {
        let exits = [1_000_000, 1_020_000, 990_000];
        let mut all = hours("6.1", 0, &exits);
        all.iter_mut().for_each(|hour| hour.handling_ns = None);
        all.extend(hours("6.12", 20_000_000_000, &exits));
        let [found] = changes(&all).try_into().unwrap();
        assert!(found.exits.is_some() && found.handling.is_none());
        assert!(found.handling_percent[0].is_none() && found.handling_percent[1].is_some());
    }

    #[test]
    fn hours_alike_show_no_difference() {
        let exits = [1_000_000, 1_200_000, 900_000, 1_100_000, 1_050_000, 980_000];
        let mut all = hours("6.1", 0, &exits);
        all.extend(hours("6.12", 40_000_000_000, &exits));
        let [found] = changes(&all).try_into().unwrap();
        assert_eq!(found.exits.unwrap().finding, "not-seen");
    }
}
