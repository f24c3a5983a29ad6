//! Helpers for the tests of the tools: plans from TOML, and outputs of real tools.

use std::path::PathBuf;
use std::time::Duration;

use ::probe::measure::Measure;
use ::probe::run::Arm;
use load::{LOAD_FORMAT, Latency, LoadResult, Protocol};

use super::{NotUnderstood, Output, Outputs, Scene, Step, WorkUnit, WorkloadPlan};
use prove::{Plan, Recording, synthetic};

/// A valid workload of a plan with these settings.
pub(super) fn plan(settings: &str) -> WorkloadPlan {
    let plan = toml::from_str::<WorkloadPlan>(&format!("name = \"load\"\n{settings}")).unwrap();
    plan.check().unwrap();
    plan
}

/// The error of a workload that is not valid or cannot be parsed.
pub(super) fn refused(settings: &str) -> String {
    match toml::from_str::<WorkloadPlan>(&format!("name = \"load\"\n{settings}")) {
        Ok(plan) => plan.check().unwrap_err().to_string(),
        Err(error) => error.message().to_owned(),
    }
}

/// The outputs if the measured step printed `stdout`.
pub(super) fn outputs(plan: &WorkloadPlan, stdout: &str) -> Outputs {
    let step = plan.steps(&Scene::default()).run[0].name.to_owned();
    let output = Output { stdout: stdout.to_owned(), ..Output::default() };
    Outputs { steps: [(step, output)].into() }
}

/// The parsed figures, except for that of the work, which has its own tests.
pub(super) fn parsed(plan: &WorkloadPlan, stdout: &str) -> Result<Vec<(String, f64)>, NotUnderstood> {
    let mut metrics = plan.parse(&outputs(plan, stdout))?;
    metrics.retain(|metric| WorkUnit::of_metric(&metric.name).is_none());
    Ok(metrics.into_iter().map(|metric| (metric.name, metric.value)).collect())
}

/// The output of a real tool; tests/fixtures/workload/README.md has its command line.
pub(super) fn fixture(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/workload");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// Asserts that exactly these figures are parsed from a real output.
pub(super) fn assert_figures(settings: &str, name: &str, expected: &[(&str, f64)]) {
    let found = parsed(&plan(settings), &fixture(name)).unwrap();
    let names = |list: &[&str]| list.join(" ");
    let wanted: Vec<&str> = expected.iter().map(|(name, _)| *name).collect();
    let present: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names(&present), names(&wanted), "{name}");
    for ((_, value), (metric, expected)) in found.iter().zip(expected) {
        let error = (value - expected).abs();
        assert!(error <= expected.abs() * 1e-9 + 1e-15, "{name}: {metric} is {value}, not {expected}");
    }
}

/// The error of an output that cannot be parsed.
pub(super) fn not_understood(settings: &str, stdout: &str) -> NotUnderstood {
    parsed(&plan(settings), stdout).unwrap_err()
}

/// The measured step's script of the first guest.
pub(super) fn script(settings: &str) -> String {
    let steps = plan(settings).steps(&Scene::default());
    let last = |steps: &[Step]| steps[0].script.lines().last().unwrap().to_owned();
    assert!(steps.run[0].limit > Duration::ZERO);
    last(&steps.run)
}

/// A synthetic recording of one arm, as `exitless probe --arm --json` prints it.
pub(super) fn probed(measure: Measure, arm: Arm) -> String {
    let plan =
        Plan { measures: vec![measure], blocks: 1, samples: 100, counted_samples: 100, ..Plan::quick() };
    let mut recording = synthetic::recording(plan, 1);
    recording.timed.retain(|timed| timed.run.arm == arm);
    recording.counted.retain(|counted| counted.run.arm == arm);
    as_printed(&recording)
}

pub(super) fn as_printed(recording: &Recording) -> String {
    serde_json::json!({ "result": null, "recording": recording }).to_string()
}

/// A synthetic outcome, as `exitless load --json` prints it.
pub(super) fn loaded(protocol: Protocol) -> String {
    let latency = Latency { mean: 2e-3, p50: 1e-3, p90: 3e-3, p99: 9e-3, p99_9: 0.02, max: 1.5 };
    let outcome = LoadResult {
        format: LOAD_FORMAT,
        protocol,
        connections: 11,
        failed_connections: 1,
        opening: 0.1,
        seconds: 10.0,
        requested_rate: 100.0,
        due: 1000,
        sent: 990,
        answered: 980,
        answered_in_time: 900,
        bytes: 57_600,
        refused: 5,
        lost: 15,
        latency: Some(latency),
    };
    serde_json::to_string(&outcome).unwrap()
}
