//! Parsing the output of ApacheBench 2.3, followed by the table of -e.

use crate::workload::NotUnderstood;
use crate::workload::adapter::{Figures, Text};

/// A "Kbyte" of ab, which divides by 1024 (ab.c).
const KIBIBYTE: f64 = 1024.0;
const MILLISECOND: f64 = 1e-3;

const TABLE: &str = "Percentage served,Time in ms";
const PERCENTILES: [(&str, &str); 4] =
    [("50", "latency.p50"), ("90", "latency.p90"), ("95", "latency.p95"), ("99", "latency.p99")];

pub(super) fn parse(text: &Text<'_>, figures: &mut Figures) -> Result<(), NotUnderstood> {
    let number = |label: &str, unit: &str| number(text, label, unit);
    figures.add("requests", number("Requests per second:", "[#/sec] (mean)")?);
    figures.add("throughput", number("Transfer rate:", "[Kbytes/sec] received")? * KIBIBYTE);
    let failed = number("Failed requests:", "")?;
    // ab counts such responses as complete, and prints this line only if there are some.
    let refused =
        if find(text, "Non-2xx responses:").is_some() { number("Non-2xx responses:", "")? } else { 0.0 };
    figures.add("errors", failed + refused);
    let mut lines = text.stdout().lines().skip_while(|line| line.trim() != TABLE);
    lines.next().ok_or_else(|| text.missing(TABLE))?;
    for line in lines.filter(|line| !line.is_empty()) {
        let (percent, time) = line.split_once(',').ok_or_else(|| text.not_understood(TABLE, line))?;
        let time = text.number(time.trim(), "a time in ms", line)?;
        if let Some((_, name)) = PERCENTILES.iter().find(|(written, _)| *written == percent) {
            figures.add(name, time * MILLISECOND);
        }
    }
    Ok(())
}

pub(super) fn requests(text: &Text<'_>) -> Result<f64, NotUnderstood> {
    number(text, "Complete requests:", "")
}

/// The rest of the line that begins with `label`, and the whole line.
fn find<'a>(text: &Text<'a>, label: &str) -> Option<(&'a str, &'a str)> {
    text.stdout().lines().find_map(|line| Some((line.strip_prefix(label)?.trim(), line)))
}

fn number(text: &Text<'_>, label: &str, unit: &str) -> Result<f64, NotUnderstood> {
    let (value, line) = find(text, label).ok_or_else(|| text.missing(format!("a line with {label:?}")))?;
    let value = value.strip_suffix(unit).ok_or_else(|| text.not_understood(unit, line))?;
    text.number(value.trim(), label, line)
}
