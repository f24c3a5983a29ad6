//! One row: its figures on both sides and their changes.

use serde::{Deserialize, Serialize};

use super::estimate::{OneSide, Pair};
use super::interval::Estimate;
use super::side::Sums;
use super::subject::Subject;

/// The figures of a row on one side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The number of exits.
    pub exits: u64,
    /// Exits per unit ([`super::Per`]).
    pub rate: f64,
    /// The 95 % upper bound of the exits per unit if none was seen: the rule of three. `None` also if no time was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bound: Option<f64>,
    /// Exits with a handling time. In rows of several reasons idle ones are excluded.
    pub timed: u64,
    /// The sum of their handling times, in nanoseconds.
    pub time_ns: u64,
    /// The handling time per unit, in nanoseconds.
    pub time_rate_ns: f64,
    /// Its share of the handling time of all exits except idle ones, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_percent: Option<f64>,
    /// The mean handling time, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ns: Option<f64>,
    /// The 50th percentile, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    /// The 99th percentile, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
}

/// A row of both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedRow {
    /// The subject.
    #[serde(flatten)]
    pub subject: Subject,
    /// True if the guest slept in these exits, so that their time is no cost.
    pub idle: bool,
    /// Before.
    pub before: Figures,
    /// After.
    pub after: Figures,
    /// The change of the exits per unit.
    pub rate: Estimate,
    /// The change of the handling time per unit; `None` without times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Estimate>,
    /// The change of the mean handling time; `None` unless both sides have times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<Estimate>,
}

/// The sum of the exits of several rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    /// Exits.
    pub exits: u64,
    /// Exits per unit.
    pub rate: f64,
    /// The handling time in nanoseconds, without idle exits.
    pub time_ns: u64,
    /// The handling time per unit, in nanoseconds.
    pub time_rate_ns: f64,
}

/// Rows that are not listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Remainder {
    /// The number of rows.
    pub rows: usize,
    /// Their exits before.
    pub before: Sum,
    /// Their exits after.
    pub after: Sum,
}

impl ComparedRow {
    /// The estimate that tells whether the row changed: that of its time if times are known, or else that of its rate. A
    /// row without exits on one side has no interval for its time, so its rate is used too.
    #[must_use]
    pub fn telling(&self, has_times: bool) -> Estimate {
        let of_time = if has_times { self.time } else { None };
        of_time.filter(|estimate| estimate.interval.is_some()).unwrap_or(self.rate)
    }

    pub(super) fn new(pair: &Pair<'_>, totals: [&Sums; 2]) -> Self {
        let idle = pair.subject.reason.is_some_and(exits::ExitReason::is_sleep);
        let figures = |one: &OneSide<'_>, total: &Sums| {
            let mut figures = Figures::new(one, total, idle);
            let is_none_of_some = one.sums.count == 0 && !one.side.is_unobserved();
            figures.rate_bound = is_none_of_some.then(|| pair.bound_of_none(one));
            figures
        };
        Self {
            subject: pair.subject,
            idle,
            before: figures(&pair.before, totals[0]),
            after: figures(&pair.after, totals[1]),
            rate: pair.rate(),
            time: pair.time(),
            mean: pair.mean(),
        }
    }
}

impl Figures {
    fn new(one: &OneSide<'_>, total: &Sums, idle: bool) -> Self {
        let Sums { count, times, .. } = one.sums;
        let all_ns = total.times.total_ns();
        Self {
            exits: *count,
            rate: *count as f64 / one.units,
            rate_bound: None,
            timed: times.count(),
            time_ns: times.total_ns(),
            time_rate_ns: times.total_ns() as f64 / one.units,
            time_percent: (!idle && all_ns > 0).then(|| times.total_ns() as f64 / all_ns as f64 * 100.0),
            mean_ns: times.mean_ns(),
            p50_ns: (times.count() > 0).then(|| times.quantile_ns(0.5)).flatten(),
            p99_ns: (times.count() > 0).then(|| times.quantile_ns(0.99)).flatten(),
        }
    }
}

impl Remainder {
    pub(super) fn add(&mut self, row: &ComparedRow) {
        self.rows += 1;
        for (sum, figures) in [(&mut self.before, &row.before), (&mut self.after, &row.after)] {
            sum.exits = sum.exits.saturating_add(figures.exits);
            sum.rate += figures.rate;
            if !row.idle {
                sum.time_ns = sum.time_ns.saturating_add(figures.time_ns);
                sum.time_rate_ns += figures.time_rate_ns;
            }
        }
    }
}
