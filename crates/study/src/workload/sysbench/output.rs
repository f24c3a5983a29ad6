//! Parsing the output of sysbench at the end of a test: sections of `NAME: NUMBER` lines.

use super::{Sysbench, SysbenchTest};
use crate::Metric;
use crate::workload::NotUnderstood;
use crate::workload::adapter::{Adapter, Figures, Text};

const MILLISECOND: f64 = 1e-3;
const MEBIBYTE: f64 = 1024.0 * 1024.0;

pub(super) fn parse(sysbench: &Sysbench, text: &Text<'_>) -> Result<Vec<Metric>, NotUnderstood> {
    let mut figures = Figures::new(sysbench.metrics());
    let seconds = number(text, "total time:", "s")?;
    let events = events(text)?;
    if seconds <= 0.0 || events <= 0.0 {
        return Err(text.missing("a time and a number of events above 0"));
    }
    figures.add("events", events / seconds);
    // Compute the mean from the sum: sysbench prints only two decimals, which are enough for a sum.
    figures.add("latency.mean", number(text, "sum:", "")? * MILLISECOND / events);
    figures.add("latency.max", number(text, "max:", "")? * MILLISECOND);
    let percentile = sysbench.percentile;
    let label = format!("{percentile}th percentile:");
    figures.add(&format!("latency.p{percentile}"), number(text, &label, "")? * MILLISECOND);
    if figures.wants("throughput") {
        figures.add("throughput", transferred(text)? * MEBIBYTE);
    }
    if sysbench.test == SysbenchTest::Fileio {
        for (name, label, factor) in [
            ("reads", "reads/s:", 1.0),
            ("writes", "writes/s:", 1.0),
            ("fsyncs", "fsyncs/s:", 1.0),
            ("read.throughput", "read, MiB/s:", MEBIBYTE),
            ("write.throughput", "written, MiB/s:", MEBIBYTE),
        ] {
            figures.add(name, number(text, label, "")? * factor);
        }
    }
    figures.all(text)
}

pub(super) fn events(text: &Text<'_>) -> Result<f64, NotUnderstood> {
    number(text, "total number of events:", "")
}

/// The number on the line that begins with `label`.
fn number(text: &Text<'_>, label: &str, unit: &str) -> Result<f64, NotUnderstood> {
    let line = text.stdout().lines().find(|line| line.trim_start().starts_with(label));
    let line = line.ok_or_else(|| text.missing(format!("a line that begins with {label:?}")))?;
    let value = line.trim().strip_prefix(label).and_then(|rest| rest.trim().strip_suffix(unit));
    text.number(value.unwrap_or_default(), label, line)
}

/// Parses `64.00 MiB transferred (1984.64 MiB/sec)`, in MiB per second.
fn transferred(text: &Text<'_>) -> Result<f64, NotUnderstood> {
    let line = text.stdout().lines().find(|line| line.contains(" MiB transferred ("));
    let line = line.ok_or_else(|| text.missing("a line with \"MiB transferred\""))?;
    let value = line.split_once('(').and_then(|(_, rest)| rest.trim_end().strip_suffix(" MiB/sec)"));
    text.number(value.unwrap_or_default().trim(), "MiB/sec", line)
}
