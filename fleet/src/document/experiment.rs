//! `exitless experiment report --json`: the findings of a study.

use serde::Deserialize;
use serde_json::{Value, json};

use super::fingerprint::Fingerprint;
use super::prove::Interval;
use super::{FORMAT, Fault, Gathered, seconds, typed};

#[derive(Deserialize)]
struct Findings {
    format: i64,
    study: Study,
    arms: Vec<Arm>,
    figures: Vec<Figure>,
    method: Method,
}

#[derive(Deserialize)]
struct Study {
    name: String,
    target: String,
    emulated: Option<String>,
    version: Option<String>,
}

#[derive(Deserialize)]
struct Arm {
    full_name: String,
}

#[derive(Deserialize)]
struct Method {
    started: i64,
    fingerprint: Fingerprint,
}

#[derive(Deserialize)]
struct Figure {
    workload: String,
    metric: String,
    source: String,
    unit: String,
    better: String,
    points: Vec<Point>,
}

#[derive(Deserialize)]
struct Point {
    guests: i64,
    arms: Vec<Option<Values>>,
    comparisons: Vec<Comparison>,
}

#[derive(Deserialize)]
struct Values {
    values: Vec<(i64, f64)>,
    mean: f64,
    median: f64,
    interval: Option<Interval>,
}

#[derive(Deserialize)]
struct Comparison {
    arm: usize,
    #[serde(default)]
    baseline: usize,
    change: Option<Change>,
    finding: String,
    p_holm: Option<f64>,
}

#[derive(Deserialize)]
struct Change {
    scale: String,
    estimate: Option<f64>,
    interval: Option<Interval>,
    p_value: Option<f64>,
}

/// The host of an ssh target, without the user.
fn host_of(target: &str) -> Option<String> {
    let host = target.strip_prefix("ssh://")?.split('/').next()?;
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    Some(host.to_owned()).filter(|host| !host.is_empty())
}

pub(super) fn gather(value: &Value) -> Result<Gathered, Fault> {
    let findings: Findings = typed(value)?;
    if findings.format != FORMAT {
        return Err(Fault::new(
            "format",
            format!("it is {}, and this program reads {FORMAT}", findings.format),
        ));
    }
    let study = findings.study;
    let mut gathered = Gathered {
        host: host_of(&study.target),
        time: Some(seconds("method.started", findings.method.started)?),
        version: study.version.clone(),
        ..Gathered::default()
    };
    if study.emulated.is_none() {
        findings.method.fingerprint.gather(&mut gathered)?;
    }
    for figure in &findings.figures {
        for point in &figure.points {
            for (number, values) in point.arms.iter().enumerate() {
                let Some(values) = values else { continue };
                let Some(arm) = findings.arms.get(number) else {
                    return Err(Fault::new(
                        "figures.points.arms",
                        format!("there is no arm {number} in `arms`"),
                    ));
                };
                let comparison = point.comparisons.iter().find(|comparison| comparison.arm == number);
                let is_baseline = point.comparisons.iter().any(|comparison| comparison.baseline == number);
                let change = comparison.and_then(|comparison| comparison.change.as_ref());
                let interval = change.and_then(|change| change.interval.as_ref());
                gathered.row(
                    "experiments",
                    json!({
                        "study": study.name,
                        "target": study.target,
                        "emulated": study.emulated,
                        "kernel": findings.method.fingerprint.kernel_release,
                        "workload": figure.workload,
                        "metric": figure.metric,
                        "metric_source": figure.source,
                        "unit": figure.unit,
                        "better": figure.better,
                        "guests": point.guests,
                        "arm": arm.full_name,
                        "is_baseline": is_baseline,
                        "runs": values.values.len(),
                        "mean": values.mean,
                        "median": values.median,
                        "low": values.interval.as_ref().and_then(|interval| interval.low),
                        "high": values.interval.as_ref().and_then(|interval| interval.high),
                        "change": change.and_then(|change| change.estimate),
                        "change_low": interval.and_then(|interval| interval.low),
                        "change_high": interval.and_then(|interval| interval.high),
                        "change_scale": change.map(|change| &change.scale),
                        "p_value": change.and_then(|change| change.p_value),
                        "p_holm": comparison.and_then(|comparison| comparison.p_holm),
                        "finding": comparison.map(|comparison| &comparison.finding),
                    }),
                )?;
            }
        }
    }
    Ok(gathered)
}
