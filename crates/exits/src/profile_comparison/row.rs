//! One row: its figures on both sides and how they changed.

use serde::{Deserialize, Serialize};

use super::estimate::{OneSide, Pair};
use super::interval::Estimate;
use super::side::{Sums, is_idle};
use super::subject::Subject;

/// The figures of a row on one side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Exits that were seen.
    pub exits: u64,
    /// Exits a unit ([`super::Per`]).
    pub rate: f64,
    /// At most so many exits a unit, with 95 % certainty, where none was seen: the rule of three.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bound: Option<f64>,
    /// Exits whose handling time is known; in rows of several reasons without those that idle.
    pub timed: u64,
    /// The sum of their handling times, nanoseconds.
    pub time_ns: u64,
    /// The same a unit, nanoseconds.
    pub time_rate_ns: f64,
    /// Its share of the handling time of all exits but those that idle, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_percent: Option<f64>,
    /// The mean handling time, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ns: Option<f64>,
    /// The 50th percentile, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    /// The 99th percentile, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
}

/// A row of both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedRow {
    /// What it is about.
    #[serde(flatten)]
    pub subject: Subject,
    /// Whether the guest slept in these exits, so that their time is nobody's work.
    pub idle: bool,
    /// Before.
    pub before: Figures,
    /// After.
    pub after: Figures,
    /// How the exits a unit changed.
    pub rate: Estimate,
    /// How the handling time a unit changed; `None` without times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Estimate>,
    /// How the mean handling time changed; `None` unless there are times on both sides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<Estimate>,
}

/// Exits of several rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    /// Exits.
    pub exits: u64,
    /// Exits a unit.
    pub rate: f64,
    /// Handling time, nanoseconds; without exits that idle.
    pub time_ns: u64,
    /// The same a unit, nanoseconds.
    pub time_rate_ns: f64,
}

/// Rows that are not listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Remainder {
    /// How many.
    pub rows: usize,
    /// Their exits before.
    pub before: Sum,
    /// Their exits after.
    pub after: Sum,
}

impl ComparedRow {
    /// The estimate that says whether it changed: of its time where times are known. What is new or gone has no interval for
    /// its time; its count has one.
    #[must_use]
    pub fn telling(&self, has_times: bool) -> Estimate {
        let of_time = if has_times { self.time } else { None };
        of_time.filter(|estimate| estimate.interval.is_some()).unwrap_or(self.rate)
    }

    pub(super) fn new(pair: &Pair<'_>, totals: [&Sums; 2]) -> Self {
        let idle = pair.subject.reason.is_some_and(is_idle);
        let figures = |one: &OneSide<'_>, total: &Sums| {
            let mut figures = Figures::new(one, total, idle);
            figures.rate_bound = (one.sums.count == 0).then(|| pair.bound_of_none(one));
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
