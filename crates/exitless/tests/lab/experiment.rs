//! Whole studies in the laboratories: from a shipped plan to the finished report.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command::run;

/// A shipped plan with parts of its text replaced: repeats take minutes in an emulator.
pub(crate) fn shortened(plan: &str, changes: &[(&str, &str)], folder: &Path) -> PathBuf {
    let mut shortened = plan.to_owned();
    for (from, to) in changes {
        assert!(shortened.contains(from), "{from}");
        shortened = shortened.replace(from, to);
    }
    let path = folder.join("shortened.toml");
    std::fs::write(&path, shortened).unwrap();
    path
}

/// Runs the plan in the laboratory, and returns the findings of its report.
pub(crate) fn study(plan: &str, lab: &str, runs: u64, folder: &Path) -> Value {
    let result = folder.join("result");
    let result = result.to_str().unwrap();
    let target = format!("lab:{lab}");
    let said = run(&["experiment", "run", plan, "--target", &target, "--output", result, "--json"]);
    assert_eq!(said.status, 0, "{}\n{}", said.out, said.err);
    let summary = said.json();
    assert_eq!(summary["complete"], true, "{summary}");
    assert_eq!(summary["runs"], runs, "{summary}");
    assert_eq!(summary["failed_attempts"], 0, "{summary}");
    assert_eq!(summary["not_undone"], serde_json::json!([]), "{summary}");

    let page = run(&["experiment", "report", result]);
    assert_eq!(page.status, 0, "{}\n{}", page.out, page.err);
    println!("{}", page.out);
    let html = std::fs::read_to_string(Path::new(result).join("report.html")).unwrap();
    assert!(html.contains("<svg") && html.contains("href=\"runs/"), "no charts or no links");
    run(&["experiment", "report", result, "--json"]).json()
}

/// The mean of a metric in an arm, at a number of guests.
pub(crate) fn figure(findings: &Value, workload: &str, metric: &str, arm: &str, guests: u64) -> Option<f64> {
    let figures = findings["figures"].as_array().unwrap();
    let figure = figures.iter().find(|one| one["workload"] == workload && one["metric"] == metric)?;
    let point = figure["points"].as_array().unwrap().iter().find(|point| point["guests"] == guests)?;
    let arms = point["arms"].as_array().unwrap();
    let number = findings["arms"].as_array().unwrap().iter().position(|one| one["name"] == arm)?;
    arms[number]["mean"].as_f64()
}

const SUITE: &str = r#"
name = "small"
title = "Self-IPIs where a switch costs something"
[[studies]]
name = "ipi"
plan = "ipi-cost-lab"
target = "lab:amd-avic+switch-cycles=1200"
repeats = 1
[[studies.figures]]
figure = "a self-IPI"
workload = "self-ipi"
metric = "cycles.median"
published = [-90.0]
[[studies]]
name = "later"
plan = "ipi-cost-lab"
target = "lab:amd-avic"
"#;

/// A suite of two studies, one of which is run, on a target that sets the cost of a VM exit.
#[test]
fn a_suite_makes_its_studies_on_their_targets_and_compares_them_with_published_figures() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, result) = (folder.path().join("suite.toml"), folder.path().join("result"));
    std::fs::write(&suite, SUITE).unwrap();
    let (suite, result_name) = (suite.to_str().unwrap(), result.to_str().unwrap());
    let said = run(&["experiment", "run", suite, "--only", "ipi", "--output", result_name, "--json"]);
    assert_eq!(said.status, 0, "{}\n{}", said.out, said.err);
    let outcome = said.json();
    let study = &outcome["studies"][0];
    assert_eq!((study["runs"].as_u64(), study["planned"].as_u64()), (Some(6), Some(6)), "{outcome}");
    let figure = &study["figures"][0];
    assert_eq!(figure["agreement"], "too-few", "{outcome}");
    // One exit: handling takes about 41,300 cycles, and the switch of 1,200 instructions takes 9,600.
    let [off, on] = [0, 1].map(|arm| figure["measured"]["levels"][arm].as_f64().unwrap());
    assert!(off > 50_000.0 && on < off / 10.0, "{outcome}");
    assert_eq!(outcome["studies"][1]["why_not"], "it was not made yet", "{outcome}");
    assert!(result.join("ipi/report.html").exists());
    let markdown = std::fs::read_to_string(result.join("report.md")).unwrap();
    assert!(
        markdown.contains(&format!(
            "exitless experiment run {result_name}/suite.toml --output {result_name} --only ipi"
        )),
        "{markdown}"
    );
    // The plan that the suite left there runs the study alone.
    let plan = result.join("ipi/plan.toml");
    let checked = run(&["experiment", "check", plan.to_str().unwrap(), "--json"]);
    assert_eq!(checked.json()["forecast"]["blocks"], 1, "{}\n{}", checked.out, checked.err);
    let report = run(&["experiment", "report", result_name]);
    assert!(report.out.contains("a self-IPI"), "{}\n{}", report.out, report.err);
    for wrong in [&["--only", "none"][..], &["--target", "local"]] {
        let said = run(&[&["experiment", "run", suite, "--output", result_name], wrong].concat());
        assert_eq!(said.status, 2, "{}\n{}", said.out, said.err);
    }
}

/// Both plans of IOzone, reduced to fit a test, with further changes.
fn small_iozone(plan: &str, guests: &str, more: &[(&str, &str)], folder: &Path) -> PathBuf {
    let changes = [
        ("repeats = 2", "repeats = 1"),
        ("counts = [1, 2]", guests),
        ("file_size = \"4M\"", "file_size = \"1M\""),
    ];
    shortened(plan, &[&changes[..], more].concat(), folder)
}

#[test]
fn a_plan_whose_programs_a_laboratory_lacks_is_refused_before_anything_boots() {
    let folder = tempfile::tempdir().unwrap();
    let result = folder.path().join("result");
    let result = result.to_str().unwrap();
    let said = run(&["experiment", "run", "side-cores", "--target", "lab:amd-svm", "--output", result]);
    assert_eq!(said.status, 125, "{}\n{}", said.out, said.err);
    let lack = "its host lacks wrk (Debian's package wrk), which the workload web needs";
    assert!(said.err.contains(lack), "{}", said.err);
    assert!(!said.err.contains("Starting"), "{}", said.err);
}

#[test]
fn iozone_in_two_guests_on_emulated_amd() {
    let folder = tempfile::tempdir().unwrap();
    let plan = include_str!("../../../../plans/iozone-irqchip-lab.toml");
    let plan = small_iozone(plan, "counts = [2]", &[], folder.path());
    let findings = study(plan.to_str().unwrap(), "amd-svm", 2, folder.path());
    for test in ["random-read", "random-write", "pread", "pwrite", "fread", "fwrite"] {
        for arm in ["kernel", "split"] {
            let throughput = figure(&findings, "iozone", &format!("{test}.throughput"), arm, 2);
            assert!(throughput.is_some_and(|bytes| bytes > 1e5), "{test} {arm}: {throughput:?}");
        }
    }
    for metric in ["cpu.busy", "cpu.iowait", "exits.total"] {
        assert!(figure(&findings, "iozone", metric, "split", 2).is_some(), "{metric}");
    }
}

/// Both plans have the same arms and nearly the same guest, so one guest in each arm is enough.
#[test]
fn iozone_and_sysbench_in_both_apicv_arms_on_emulated_intel() {
    let folder = tempfile::tempdir().unwrap();
    let threads = include_str!("../../../../plans/sysbench-threads-lab.toml");
    let end = "[samples]";
    let (_, threads) = threads.split_once("[[workloads]]").unwrap();
    let (threads, _) = threads.split_once(end).unwrap();
    let both = format!("[[workloads]]{threads}{end}");
    let plan = include_str!("../../../../plans/iozone-apicv-lab.toml");
    let more = [("vcpus = 1", "vcpus = 2"), (end, both.as_str())];
    let plan = small_iozone(plan, "counts = [1]", &more, folder.path());
    let findings = study(plan.to_str().unwrap(), "intel-apicv", 4, folder.path());
    for arm in ["off", "on"] {
        let throughput = figure(&findings, "iozone", "fwrite.throughput", arm, 1);
        assert!(throughput.is_some_and(|bytes| bytes > 1e5), "{arm}: {throughput:?}");
    }
    let windows = |arm| figure(&findings, "iozone", "exits.INTERRUPT_WINDOW", arm, 1);
    assert!(windows("off").is_some_and(|rate| rate > 0.0), "{:?}", windows("off"));
    assert_eq!(windows("on"), Some(0.0), "APICv opens no windows");

    let exits = |reason: &str, arm| figure(&findings, "threads", &format!("exits.{reason}"), arm, 1);
    let off = exits("INTERRUPT_WINDOW", "off");
    assert!(off.is_some_and(|rate| rate > 10.0), "without APICv no interrupt waited for its window: {off:?}");
    assert_eq!(exits("INTERRUPT_WINDOW", "on"), Some(0.0), "APICv opens no windows");
    for arm in ["off", "on"] {
        let (total, events) = (exits("total", arm), figure(&findings, "threads", "events", arm, 1));
        assert!(total.is_some_and(|rate| rate > 100.0) && events.is_some_and(|rate| rate > 0.0), "{arm}");
    }
}
