//! A profile as rows: grouped, sorted, and reduced to the most important ones.

use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::{AccessKind, Exits, Grouping, Key, Profile, What};

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its key.
    pub key: Key,
    /// Its exits, or accesses.
    pub exits: Exits,
}

/// The rows that [`Table::keep_top`] removed, as one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rest {
    /// The number of rows.
    pub rows: usize,
    /// Their exits, or accesses.
    pub exits: Exits,
}

/// The order of rows: the largest figure first, rows without it last; names in alphabetical order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Order {
    /// The number of exits with a handling time.
    #[default]
    Samples,
    /// The number of exits.
    Exits,
    /// The sum of handling times.
    Time,
    /// The shortest handling time.
    Min,
    /// The longest handling time.
    Max,
    /// The mean handling time.
    Mean,
    /// The 99th percentile of handling times.
    P99,
    /// The name.
    Name,
}

impl Order {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Samples, "samples"),
        (Self::Exits, "exits"),
        (Self::Time, "time"),
        (Self::Min, "min"),
        (Self::Max, "max"),
        (Self::Mean, "mean"),
        (Self::P99, "p99"),
        (Self::Name, "name"),
    ];

    /// The figure of a row; `None` if the row has none, and for the order by name.
    fn figure(self, exits: &Exits) -> Option<u64> {
        let times = &exits.handling;
        match self {
            Self::Samples => Some(times.count()),
            Self::Exits => Some(exits.count),
            Self::Time => Some(times.total_ns()),
            Self::Min => times.min_ns(),
            Self::Max => times.max_ns(),
            // Non-negative floating-point numbers sort like their bit patterns.
            Self::Mean => times.mean_ns().map(f64::to_bits),
            Self::P99 => times.quantile_ns(0.99),
            Self::Name => None,
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::ALL.iter().find(|(order, _)| order == self).map_or("", |(_, name)| name))
    }
}

/// The error of a word that is not an [`Order`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is nothing to sort by; write samples, exits, time, min, max, mean, p99 or name")]
pub struct UnknownOrder(pub String);

impl FromStr for Order {
    type Err = UnknownOrder;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().find(|(_, name)| *name == text);
        found.map(|&(order, _)| order).ok_or_else(|| UnknownOrder(text.to_owned()))
    }
}

/// Rows of exits, or of accesses, with their sums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    grouping: Grouping,
    rows: Vec<Row>,
    rest: Option<Rest>,
    total: Exits,
    unsorted: Exits,
    threshold_ns: Option<u64>,
}

impl Table {
    /// The exits of `profile`, or its accesses, by `grouping`; sorted by samples.
    #[must_use]
    pub fn new(profile: &Profile, grouping: Grouping) -> Self {
        let kinds = grouping.access_kinds();
        let mut rows: BTreeMap<Key, Exits> = BTreeMap::new();
        let mut unsorted = Exits::default();
        for vcpu in profile.vcpus() {
            let whose = grouping.whose(vcpu.vcpu);
            if kinds.is_empty() {
                for (&reason, exits) in &vcpu.reasons {
                    rows.entry(Key { whose, what: grouping.what(reason) }).or_default().merge(exits);
                }
                continue;
            }
            for (&access, exits) in &vcpu.accesses {
                if kinds.contains(&access.kind()) {
                    rows.entry(Key { whose, what: What::Access(access) }).or_default().merge(exits);
                } else if access.kind() == AccessKind::Other {
                    unsorted.merge(exits);
                }
            }
        }
        let mut total = Exits::default();
        rows.values().for_each(|exits| total.merge(exits));
        let rows = rows.into_iter().map(|(key, exits)| Row { key, exits }).collect();
        let mut table = Self { grouping, rows, rest: None, total, unsorted, threshold_ns: None };
        table.sort(Order::default());
        table
    }

    /// Sets a handling time: tables show how many exits took at least that long.
    pub const fn set_threshold(&mut self, ns: u64) {
        self.threshold_ns = Some(ns);
    }

    /// The bound of [`Self::set_threshold`].
    #[must_use]
    pub const fn threshold_ns(&self) -> Option<u64> {
        self.threshold_ns
    }

    /// Sorts the rows. Rows with equal figures are sorted by samples, then by exits, then by key.
    pub fn sort(&mut self, order: Order) {
        // Cached, because a quantile scans a histogram and a name is an allocation.
        self.rows.sort_by_cached_key(|Row { key, exits }| {
            let name = (order == Order::Name).then(|| (key.whose, key.what.to_string()));
            let figures = [order.figure(exits), Some(exits.handling.count()), Some(exits.count)];
            (name, figures.map(Reverse), *key)
        });
    }

    /// Keeps the first `count` rows in their current order; the others become one.
    pub fn keep_top(&mut self, count: usize) {
        if self.rows.len() <= count {
            return;
        }
        let rest = self.rest.get_or_insert_default();
        for row in self.rows.drain(count..) {
            rest.rows += 1;
            rest.exits.merge(&row.exits);
        }
    }

    /// The grouping of the rows.
    #[must_use]
    pub fn grouping(&self) -> &Grouping {
        &self.grouping
    }

    /// The rows, in order.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows that [`Self::keep_top`] removed.
    #[must_use]
    pub fn rest(&self) -> Option<&Rest> {
        self.rest.as_ref()
    }

    /// The total, including the rest.
    #[must_use]
    pub fn total(&self) -> &Exits {
        &self.total
    }

    /// Accesses that are in no row, because the reader distinguishes only a limited number. Their kinds are unknown.
    #[must_use]
    pub fn unsorted(&self) -> &Exits {
        &self.unsorted
    }

    /// Tests whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.rest.is_none()
    }

    /// The share of all samples, in percent; `None` without samples.
    #[must_use]
    pub fn samples_percent(&self, exits: &Exits) -> Option<f64> {
        percent(exits.handling.count(), self.total.handling.count())
    }

    /// The share of all handling time, in percent; `None` without handling time.
    #[must_use]
    pub fn time_percent(&self, exits: &Exits) -> Option<f64> {
        percent(exits.handling.total_ns(), self.total.handling.total_ns())
    }
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64 * 100.0)
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
