//! A figure measured by a workload or a sampler.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One figure of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Stable name within its source, in words joined by dots: `random-read.throughput`, `cpu.guest`.
    pub name: String,
    /// The unit of the value.
    pub unit: Unit,
    /// The better direction.
    pub better: Better,
    /// The way of combining the figures of several guests into that of the run.
    pub combine: Combine,
    /// The value.
    pub value: f64,
}

/// The unit of a [`Metric`], always without a prefix: prefixes are for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Bytes per second.
    BytesPerSecond,
    /// Bits per second.
    BitsPerSecond,
    /// Events, requests, messages or exits per second.
    PerSecond,
    /// Seconds.
    Seconds,
    /// Percent of a whole: of all CPU time, of all requests.
    Percent,
    /// A plain number.
    Count,
    /// Events for each operation of the workload.
    PerOperation,
    /// Cycles of the time-stamp counter.
    Cycles,
    /// Cycles a second: the frequency of a processor.
    Hertz,
}

impl Unit {
    /// Tests whether a figure in this unit is a throughput or a latency: not a number of failures, a share, or a cost
    /// of each operation.
    pub(crate) fn is_of_speed(self, better: Better) -> bool {
        match self {
            Self::Percent | Self::PerOperation | Self::Hertz => false,
            Self::Count => better == Better::Higher,
            _ => better != Better::Neither,
        }
    }
}

/// The better direction of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Throughput.
    Higher,
    /// Latency, exits.
    Lower,
    /// Neither: CPU time may be work or waste.
    Neither,
}

/// The way of combining the figures of guests that ran at once into that of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Combine {
    /// Their sum: throughput.
    Sum,
    /// Their mean: CPU utilisation of guests.
    Mean,
    /// The largest: tail latency.
    Worst,
    /// A single value: a figure of the host.
    Single,
}

impl Combine {
    /// The combined figure; `None` if there are no values.
    pub fn apply(self, values: &[f64]) -> Option<f64> {
        let sum = || values.iter().sum::<f64>();
        (!values.is_empty()).then(|| match self {
            Self::Sum => sum(),
            Self::Mean => sum() / values.len() as f64,
            Self::Worst => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Self::Single => values[0],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_become_one_figure() {
        let values = [1.0, 4.0, 1.0];
        let combined = |how: Combine| how.apply(&values).unwrap();
        assert_eq!([Combine::Sum, Combine::Mean, Combine::Worst].map(combined), [6.0, 2.0, 4.0]);
        assert_eq!(Combine::Sum.apply(&[]), None);
    }
}
