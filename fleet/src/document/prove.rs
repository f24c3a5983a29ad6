//! `exitless prove --json` (`result.json`) and `exitless probe --json`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::fingerprint::Fingerprint;
use super::{FORMAT, Fault, Gathered, seconds, typed};

#[derive(Deserialize)]
struct Outcome {
    format: i64,
    version: String,
    started: i64,
    fingerprint: Fingerprint,
    emulated: Option<String>,
    switch_cycles: Option<i64>,
    tsc_khz: Option<i64>,
    measures: Vec<Measure>,
}

#[derive(Deserialize)]
struct Measure {
    measure: String,
    cost: Pair<Option<Cost>>,
    difference: Option<Difference>,
    effect: Option<String>,
    exits: Exits,
}

#[derive(Deserialize)]
struct Pair<T> {
    off: T,
    on: T,
}

#[derive(Deserialize)]
struct Cost {
    runs: i64,
    median: f64,
    pooled: Pooled,
}

#[derive(Deserialize)]
struct Pooled {
    samples: i64,
    minimum: f64,
    p99: f64,
    maximum: f64,
    mean: f64,
}

#[derive(Deserialize)]
struct Difference {
    percent: f64,
    interval: Option<Interval>,
}

/// An interval. A bound is null if JSON has no value for it.
#[derive(Deserialize)]
pub(super) struct Interval {
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
}

#[derive(Deserialize)]
struct Exits {
    traced: Pair<Option<f64>>,
    statistics: Pair<Option<f64>>,
}

pub(super) fn gather_probe(value: &Value) -> Result<Gathered, Fault> {
    gather(&value["result"]).map_err(|fault| Fault::new(format!("result.{}", fault.field), fault.why))
}

pub(super) fn gather(value: &Value) -> Result<Gathered, Fault> {
    let outcome: Outcome = typed(value)?;
    if outcome.format != FORMAT {
        return Err(Fault::new(
            "format",
            format!("it is {}, and this program reads {FORMAT}", outcome.format),
        ));
    }
    let mut gathered = Gathered {
        time: Some(seconds("started", outcome.started)?),
        version: Some(outcome.version),
        ..Gathered::default()
    };
    // An emulated host is not part of the fleet; its costs name the emulator.
    if outcome.emulated.is_none() {
        outcome.fingerprint.gather(&mut gathered)?;
    }
    for measure in outcome.measures {
        let exits = &measure.exits;
        let arms = [
            ("off", &measure.cost.off, exits.traced.off.or(exits.statistics.off)),
            ("on", &measure.cost.on, exits.traced.on.or(exits.statistics.on)),
        ];
        for (arm, cost, exits) in arms {
            let Some(cost) = cost else { continue };
            let difference = measure.difference.as_ref().filter(|_| arm == "on");
            let interval = difference.and_then(|difference| difference.interval.as_ref());
            gathered.row(
                "costs",
                json!({
                    "measure": measure.measure,
                    "arm": arm,
                    "kernel": outcome.fingerprint.kernel_release,
                    "emulated": outcome.emulated,
                    "switch_cycles": outcome.switch_cycles,
                    "tsc_khz": outcome.tsc_khz,
                    "runs": cost.runs,
                    "samples": cost.pooled.samples,
                    "median_cycles": cost.median,
                    "mean_cycles": cost.pooled.mean,
                    "p99_cycles": cost.pooled.p99,
                    "min_cycles": cost.pooled.minimum,
                    "max_cycles": cost.pooled.maximum,
                    "exits_per_operation": exits,
                    "change_percent": difference.map(|difference| difference.percent),
                    "change_low": interval.and_then(|interval| interval.low),
                    "change_high": interval.and_then(|interval| interval.high),
                    "effect": measure.effect.as_ref().filter(|_| arm == "on"),
                }),
            )?;
        }
    }
    Ok(gathered)
}
