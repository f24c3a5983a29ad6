//! Parsing the output of wrk 4, ApacheBench 2.3 and `exitless load http`.

mod ab;
mod wrk;

use super::{Generator, Http};
use crate::Metric;
use crate::workload::NotUnderstood;
use crate::workload::adapter::{Adapter, Figures, Text};

pub(super) fn parse(http: &Http, text: &Text<'_>) -> Result<Vec<Metric>, NotUnderstood> {
    let mut figures = Figures::new(http.metrics());
    match http.generator {
        Generator::Wrk => wrk::parse(text, &mut figures)?,
        Generator::Ab => ab::parse(text, &mut figures)?,
        Generator::Exitless => own(text, &mut figures)?,
    }
    figures.all(text)
}

/// The number of answered requests.
pub(super) fn requests(http: &Http, text: &Text<'_>) -> Result<f64, NotUnderstood> {
    match http.generator {
        Generator::Wrk => wrk::requests(text),
        Generator::Ab => ab::requests(text),
        Generator::Exitless => Ok(text.load_result()?.answered as f64),
    }
}

fn own(text: &Text<'_>, figures: &mut Figures) -> Result<(), NotUnderstood> {
    let outcome = text.load_result()?;
    figures.add("requests", outcome.attained_rate());
    figures.add("throughput", outcome.bytes_per_second());
    figures.add("attained", outcome.attained_percent());
    figures.add("errors", outcome.failures() as f64);
    // Without any answer there is no latency; the run then fails for lack of figures.
    if let Some(latency) = &outcome.latency {
        for (name, value) in latency.by_name() {
            figures.add(&format!("latency.{name}"), value);
        }
    }
    Ok(())
}
