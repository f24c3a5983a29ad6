//! Parsing the output of `fio --output-format=json`, versions 2 and 3.

use serde_json::Value;

use super::Fio;
use crate::Metric;
use crate::workload::NotUnderstood;
use crate::workload::adapter::{Adapter, Figures, Text};

const KIBIBYTE: f64 = 1024.0;

pub(super) fn parse(fio: &Fio, text: &Text<'_>) -> Result<Vec<Metric>, NotUnderstood> {
    let mut figures = Figures::new(fio.metrics());
    let job = &job(text)?;
    for direction in fio.pattern.directions() {
        let of = job.get(direction).ok_or_else(|| text.missing(format!("{direction:?} in the job")))?;
        one_direction(direction, of, text, &mut figures)?;
    }
    for (name, pointer) in [("cpu.user", "/usr_cpu"), ("cpu.system", "/sys_cpu")] {
        figures.add(name, wanted(job, pointer, text)?);
    }
    figures.all(text)
}

/// The number of reads and writes.
pub(super) fn operations(fio: &Fio, text: &Text<'_>) -> Result<f64, NotUnderstood> {
    let job = job(text)?;
    let of = |direction: &&str| wanted(&job, &format!("/{direction}/total_ios"), text);
    fio.pattern.directions().iter().map(of).sum()
}

/// The only job of the document.
fn job(text: &Text<'_>) -> Result<Value, NotUnderstood> {
    let stdout = text.stdout();
    // Warnings may precede the document.
    let begin = if stdout.starts_with('{') { Some(0) } else { stdout.find("\n{").map(|before| before + 1) };
    let begin = begin.ok_or_else(|| text.missing("a JSON document"))?;
    let document = serde_json::Deserializer::from_str(&stdout[begin..]).into_iter::<Value>().next();
    let document = match document {
        Some(Ok(document)) => document,
        Some(Err(error)) => {
            let line = stdout[begin..].lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
            return Err(text.not_understood(format!("a whole JSON document ({error})"), line));
        }
        None => return Err(text.missing("a JSON document")),
    };
    let jobs = document.get("jobs").and_then(Value::as_array).filter(|jobs| !jobs.is_empty());
    let jobs = jobs.ok_or_else(|| text.missing("\"jobs\" in the document"))?;
    let Some([job]) = jobs.get(..).filter(|jobs| jobs.len() == 1) else {
        let why = "one job, or group_reporting=1 in the job file, which makes one of several";
        return Err(text.not_understood(why, &format!("{} jobs", jobs.len())));
    };
    let error = number(job, "/error").unwrap_or(0.0);
    if error != 0.0 {
        return Err(text.not_understood("\"error\" : 0", &format!("\"error\" : {error}")));
    }
    Ok(job.clone())
}

fn one_direction(
    direction: &str,
    of: &Value,
    text: &Text<'_>,
    figures: &mut Figures,
) -> Result<(), NotUnderstood> {
    let operations = wanted(of, "/total_ios", text)?;
    if operations <= 0.0 {
        let expected = format!("operations in {direction:?}");
        return Err(text.not_understood(expected, "\"total_ios\" : 0"));
    }
    figures.add(&format!("{direction}.iops"), wanted(of, "/iops", text)?);
    // Versions before 3 print KiB only.
    let bytes = number(of, "/bw_bytes").map_or_else(|| Ok(wanted(of, "/bw", text)? * KIBIBYTE), Ok)?;
    figures.add(&format!("{direction}.throughput"), bytes);
    // Versions before 3 print latencies in microseconds, under another name.
    let (name, unit) = if of.get("clat_ns").is_some() { ("clat_ns", 1e-9) } else { ("clat", 1e-6) };
    figures.add(&format!("{direction}.latency.mean"), wanted(of, &format!("/{name}/mean"), text)? * unit);
    for (metric, key) in [("p50", "50.000000"), ("p99", "99.000000"), ("p99.9", "99.900000")] {
        let value = wanted(of, &format!("/{name}/percentile/{key}"), text)?;
        figures.add(&format!("{direction}.latency.{metric}"), value * unit);
    }
    Ok(())
}

fn number(of: &Value, pointer: &str) -> Option<f64> {
    of.pointer(pointer)?.as_f64().filter(|value| value.is_finite() && *value >= 0.0)
}

fn wanted(of: &Value, pointer: &str, text: &Text<'_>) -> Result<f64, NotUnderstood> {
    number(of, pointer).ok_or_else(|| text.missing(format!("a number at {pointer} of the job")))
}
