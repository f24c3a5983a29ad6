//! A profile as rows: grouped, ordered, and cut to the most important ones.

use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::{AccessKind, Exits, Grouping, Key, Profile, What};

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// What tells it from the others.
    pub key: Key,
    /// Its exits, or accesses.
    pub exits: Exits,
}

/// The rows that [`Table::keep_top`] took out, in one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rest {
    /// How many they were.
    pub rows: usize,
    /// Their exits, or accesses.
    pub exits: Exits,
}

/// What rows are ordered by: the largest first, those without the figure last; names in their own order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Order {
    /// Exits with a handling time.
    #[default]
    Samples,
    /// Exits.
    Exits,
    /// The sum of handling times.
    Time,
    /// The shortest handling time.
    Min,
    /// The longest.
    Max,
    /// Their mean.
    Mean,
    /// Their 99th percentile.
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

    /// The figure that the largest of comes first; `None` for names, and for a row that has none.
    fn figure(self, exits: &Exits) -> Option<u64> {
        let times = &exits.handling;
        match self {
            Self::Samples => Some(times.count()),
            Self::Exits => Some(exits.count),
            Self::Time => Some(times.total_ns()),
            Self::Min => times.min_ns(),
            Self::Max => times.max_ns(),
            // The bits of numbers that are not negative are ordered as the numbers are.
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

/// A word that is no [`Order`].
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
}

impl Table {
    /// The exits of `profile`, or its accesses, by `grouping`; ordered by samples.
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
        let mut table = Self { grouping, rows, rest: None, total, unsorted };
        table.sort(Order::default());
        table
    }

    /// Orders the rows. Rows of equal figures are ordered by samples, then by exits, then by key.
    pub fn sort(&mut self, order: Order) {
        // A quantile is a walk over a histogram and a name an allocation: once a row, not once a comparison.
        self.rows.sort_by_cached_key(|Row { key, exits }| {
            let name = (order == Order::Name).then(|| (key.whose, key.what.to_string()));
            let figures = [order.figure(exits), Some(exits.handling.count()), Some(exits.count)];
            (name, figures.map(Reverse), *key)
        });
    }

    /// Keeps the first `count` rows as they are ordered now; the others become one.
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

    /// What the rows are told apart by.
    #[must_use]
    pub fn grouping(&self) -> &Grouping {
        &self.grouping
    }

    /// The rows, in order.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// What [`Self::keep_top`] left out.
    #[must_use]
    pub fn rest(&self) -> Option<&Rest> {
        self.rest.as_ref()
    }

    /// All rows together, those of the rest included.
    #[must_use]
    pub fn total(&self) -> &Exits {
        &self.total
    }

    /// Accesses that belong to no row: the reader keeps so many different ones apart and no more. Of which
    /// kind they were is not known.
    #[must_use]
    pub fn unsorted(&self) -> &Exits {
        &self.unsorted
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.rest.is_none()
    }

    /// Which part of all samples these are, in percent; `None` without any.
    #[must_use]
    pub fn samples_percent(&self, exits: &Exits) -> Option<f64> {
        percent(exits.handling.count(), self.total.handling.count())
    }

    /// Which part of all handling time these took, in percent; `None` without any.
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
