//! The order of rows, and the selection of the first ones.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::interval::{Effect, Estimate};
use super::row::ComparedRow;
use super::{ProfileComparison, Subject};

/// The order of rows. For changes, significant ones come first, by size in either direction; then the others,
/// in the same order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ComparisonOrder {
    /// The change of the handling time per unit, or of the exits per unit if no times are known. Idle exits come last.
    #[default]
    Time,
    /// The change of the exits per unit.
    Rate,
    /// The change of the mean handling time.
    Mean,
    /// The exits of both sides, most first.
    Exits,
    /// The name.
    Name,
}

impl ComparisonOrder {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Time, "time"),
        (Self::Rate, "rate"),
        (Self::Mean, "mean"),
        (Self::Exits, "exits"),
        (Self::Name, "name"),
    ];
}

impl fmt::Display for ComparisonOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::ALL.iter().find(|(order, _)| order == self).map_or("", |(_, name)| name))
    }
}

/// The error of a word that is not a [`ComparisonOrder`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is nothing to sort a comparison by; write time, rate, mean, exits or name")]
pub struct UnknownComparisonOrder(pub String);

impl FromStr for ComparisonOrder {
    type Err = UnknownComparisonOrder;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().find(|(_, name)| *name == text);
        found.map(|&(order, _)| order).ok_or_else(|| UnknownComparisonOrder(text.to_owned()))
    }
}

impl ProfileComparison {
    /// Sorts the rows. Rows with equal figures are sorted by their exits, then by subject.
    pub fn sort(&mut self, order: ComparisonOrder) {
        let has_times = self.has_times();
        // Names are allocated: make one for each row, not one for each comparison of the sort.
        let keyed = self.rows.drain(..).map(|row| {
            let name = if order == ComparisonOrder::Name { name(&row.subject) } else { String::new() };
            (name, figure(&row, order, has_times), row)
        });
        let mut keyed: Vec<_> = keyed.collect();
        let exits = |row: &ComparedRow| row.before.exits.saturating_add(row.after.exits);
        keyed.sort_by(|a, b| {
            let by_figure = a.0.cmp(&b.0).then(first(a.1, b.1));
            by_figure.then(exits(&b.2).cmp(&exits(&a.2))).then(a.2.subject.cmp(&b.2.subject))
        });
        self.rows = keyed.into_iter().map(|(_, _, row)| row).collect();
    }

    /// Keeps the first `count` rows in this order. The others become [`Self::rest`].
    pub fn keep_top(&mut self, count: usize, order: ComparisonOrder) {
        if self.rows.len() <= count {
            return;
        }
        let has_times = self.has_times();
        let weight = |at: usize| figure(&self.rows[at], order, has_times);
        let mut by_size: Vec<usize> = (0..self.rows.len()).collect();
        by_size.sort_by(|&a, &b| first(weight(a), weight(b)).then(a.cmp(&b)));
        let kept: std::collections::BTreeSet<usize> = by_size.into_iter().take(count).collect();
        let mut rest = self.rest.take().unwrap_or_default();
        let rows = std::mem::take(&mut self.rows);
        for (at, row) in rows.into_iter().enumerate() {
            if kept.contains(&at) {
                self.rows.push(row);
            } else {
                rest.add(&row);
            }
        }
        self.rest = Some(rest);
    }
}

/// The sort key of a row: the significance of its change, and the size of its figure.
type Weight = Option<(bool, f64)>;

/// Compares sort keys: significant ones first, by size; rows without a key last.
fn first(a: Weight, b: Weight) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)),
        _ => b.is_some().cmp(&a.is_some()),
    }
}

fn figure(row: &ComparedRow, order: ComparisonOrder, has_times: bool) -> Weight {
    let changed = |estimate: Option<Estimate>, by: f64| {
        let is_certain = estimate.is_some_and(|one| matches!(one.effect(), Effect::Less | Effect::More));
        (is_certain, by.abs())
    };
    match order {
        ComparisonOrder::Time if row.idle => None,
        ComparisonOrder::Time if has_times => {
            Some(changed(Some(row.telling(has_times)), row.after.time_rate_ns - row.before.time_rate_ns))
        }
        ComparisonOrder::Time | ComparisonOrder::Rate => {
            Some(changed(Some(row.rate), row.after.rate - row.before.rate))
        }
        ComparisonOrder::Mean => Some(changed(row.mean, row.after.mean_ns? - row.before.mean_ns?)),
        ComparisonOrder::Exits => Some((true, row.before.exits.saturating_add(row.after.exits) as f64)),
        ComparisonOrder::Name => None,
    }
}

fn name(subject: &Subject) -> String {
    let reason = subject.reason.map(|reason| reason.to_string());
    reason.or_else(|| subject.access.map(|access| access.to_string())).unwrap_or_default()
}
