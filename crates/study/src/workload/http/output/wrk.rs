//! Parsing the output of wrk 4 with --latency.

use crate::workload::NotUnderstood;
use crate::workload::adapter::{Figures, Text};

const TIMES: [(&str, f64); 5] = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
/// Units in steps of 1024 (units.c of wrk, "binary").
const BYTES: [(&str, f64); 5] =
    [("B", 1.0), ("KB", 1024.0), ("MB", 1_048_576.0), ("GB", 1_073_741_824.0), ("TB", 1_099_511_627_776.0)];

const PERCENTILES: [(&str, &str); 4] =
    [("50%", "latency.p50"), ("75%", "latency.p75"), ("90%", "latency.p90"), ("99%", "latency.p99")];

pub(super) fn parse(text: &Text<'_>, figures: &mut Figures) -> Result<(), NotUnderstood> {
    // wrk omits the lines about errors if there are none.
    let mut errors = 0.0;
    for line in text.stdout().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["Requests/sec:", value] => figures.add("requests", text.number(value, "a rate", line)?),
            ["Transfer/sec:", value] => figures.add("throughput", scaled(value, &BYTES, text, line)?),
            [percentile, value] => {
                if let Some((_, name)) = PERCENTILES.iter().find(|(written, _)| written == percentile) {
                    figures.add(name, scaled(value, &TIMES, text, line)?);
                }
            }
            ["Socket", "errors:", kinds @ ..] => {
                for kind in kinds.chunks(2) {
                    let count = kind.get(1).map_or("", |count| count.trim_end_matches(','));
                    errors += text.number(count, "a number of errors", line)?;
                }
            }
            ["Non-2xx", "or", "3xx", "responses:", count] => {
                errors += text.number(count, "a number of responses", line)?;
            }
            _ => {}
        }
    }
    figures.add("errors", errors);
    Ok(())
}

/// Parses `  8428 requests in 1.02s, 10.16MB read`.
pub(super) fn requests(text: &Text<'_>) -> Result<f64, NotUnderstood> {
    let line = text.stdout().lines().find(|line| line.contains(" requests in "));
    let line = line.ok_or_else(|| text.missing("a line with \"requests in\""))?;
    text.number(line.split_whitespace().next().unwrap_or_default(), "a number of requests", line)
}

fn scaled(value: &str, units: &[(&str, f64)], text: &Text<'_>, line: &str) -> Result<f64, NotUnderstood> {
    let end = value.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(value.len());
    let (number, unit) = value.split_at(end);
    let known = units.iter().find(|(name, _)| *name == unit);
    let (_, factor) = known.ok_or_else(|| text.not_understood("a number with a unit of wrk", line))?;
    Ok(text.number(number, "a number with a unit", line)? * factor)
}
