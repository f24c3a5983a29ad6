//! The values that timelines show.

use exits::{Column, Slice, TimelineFigure};
use traces::Recordings;

use crate::format::{per_second, share};

/// Converts exits to a rate, and handling times to a share of the time of vCPUs in percent.
pub(crate) struct Scale {
    figure: TimelineFigure,
    vcpus: f64,
    observed_ns: f64,
}

impl Scale {
    /// The scale for so many vCPUs.
    pub(crate) fn new(recordings: &Recordings, figure: TimelineFigure, vcpus: f64) -> Self {
        Self { figure, vcpus, observed_ns: recordings.observed_ns().max(1) as f64 }
    }

    fn value(&self, per_ns: f64) -> f64 {
        match self.figure {
            TimelineFigure::Exits => per_ns * 1e9,
            TimelineFigure::Time => per_ns / self.vcpus * 100.0,
        }
    }

    /// The value of each column.
    pub(crate) fn values(&self, columns: &[Column], slices: &[Slice]) -> Vec<f64> {
        columns.iter().map(|column| self.value(column.per_ns(slices, self.figure))).collect()
    }

    /// The mean over the whole recorded time, of which `total` is the sum.
    pub(crate) fn mean(&self, total: u64) -> f64 {
        self.value(total as f64 / self.observed_ns)
    }

    /// A value with its unit.
    pub(crate) fn shown(&self, value: f64) -> String {
        match self.figure {
            TimelineFigure::Exits => per_second(value),
            TimelineFigure::Time => share(value),
        }
    }
}
