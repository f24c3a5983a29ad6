//! Descriptions of a workload's figures, known before a run.

use serde::{Deserialize, Serialize};

use super::WorkUnit;
use crate::{Better, Combine, Metric, Unit};

/// The description of a figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricDescription {
    /// The name, as in [`Metric`]. A name that ends with `.*` is a family whose members are known only after a run,
    /// such as exits by reason.
    pub name: String,
    /// The unit, as in [`Metric`].
    pub unit: Unit,
    /// The better direction, as in [`Metric`].
    pub better: Better,
    /// The way to combine guests, as in [`Metric`].
    pub combine: Combine,
    /// Its meaning, in at most 60 characters, for the title of a chart.
    pub meaning: String,
}

impl MetricDescription {
    /// A throughput: more is better, guests' values are added.
    pub(super) fn rate(name: &str, unit: Unit, meaning: impl Into<String>) -> Self {
        Self::new(name, unit, Better::Higher, Combine::Sum, meaning)
    }

    /// A latency: less is better, the slowest guest's value counts.
    pub(super) fn latency(name: &str, meaning: impl Into<String>) -> Self {
        Self::new(name, Unit::Seconds, Better::Lower, Combine::Worst, meaning)
    }

    /// A share of CPU time, which may be work or waste.
    pub(super) fn share_of_cpu(name: &str, meaning: impl Into<String>) -> Self {
        Self::new(name, Unit::Percent, Better::Neither, Combine::Mean, meaning)
    }

    /// A number of failures: less is better, guests' values are added.
    pub(super) fn failures(name: &str, meaning: impl Into<String>) -> Self {
        Self::new(name, Unit::Count, Better::Lower, Combine::Sum, meaning)
    }

    /// The amount of work: no better direction, guests' values are added.
    pub(super) fn work(unit: WorkUnit) -> Self {
        let meaning = format!("Work that was done, in {}", unit.plural());
        Self::new(&unit.metric(), Unit::Count, Better::Neither, Combine::Sum, meaning)
    }

    pub(super) fn new(
        name: &str,
        unit: Unit,
        better: Better,
        combine: Combine,
        meaning: impl Into<String>,
    ) -> Self {
        Self { name: name.to_owned(), unit, better, combine, meaning: meaning.into() }
    }

    /// Tests whether it describes the figure `name`.
    pub fn covers(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(family) => name.len() > family.len() && name.starts_with(family),
            None => self.name == name,
        }
    }

    /// A figure of this description; `name` must be [covered](Self::covers).
    pub fn metric(&self, name: &str, value: f64) -> Metric {
        Metric { name: name.to_owned(), unit: self.unit, better: self.better, combine: self.combine, value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_covers_its_members_alone() {
        let exits =
            MetricDescription::new("exits.*", Unit::PerOperation, Better::Lower, Combine::Single, "Exits");
        assert!(exits.covers("exits.HLT"));
        assert!(!exits.covers("exits."));
        assert!(!exits.covers("exits"));
        assert!(!MetricDescription::latency("latency.p50", "Median").covers("latency.p501"));
    }
}
