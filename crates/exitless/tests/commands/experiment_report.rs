//! `exitless experiment report` and `diff` on results that a generator wrote.

use std::path::Path;
use std::process::{Command, Output};

use study::analysis::synthetic::{Made, write};

use crate::command::run;

fn experiment(arguments: &[&str]) -> Output {
    run(&[&["experiment"][..], arguments].concat())
}

fn result(folder: &Path, seed: u64) -> String {
    let made = Made { counts: vec![1, 2], workloads: vec!["random-read", "pread"], seed, ..Made::default() };
    write(folder, &made).unwrap();
    folder.to_str().unwrap().to_owned()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_report_is_tables_here_and_a_page_in_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let result = result(folder.path(), 1);
    let output = experiment(&["report", &result]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("apicv on raised random-read throughput with 1 and 2 VMs by"), "{shown}");
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("href=\"plan.toml\"") && page.contains("href=\"runs/"), "no links");
}

#[test]
fn programs_get_json_and_csv_and_the_folder_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let result = result(folder.path(), 1);
    let output = experiment(&["report", &result, "--json"]);
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(findings["verdict"]["judgement"], "better");
    assert_eq!(findings["figures"][0]["points"][0]["comparisons"][0]["finding"], "raised");
    let output = experiment(&["report", &result, "--csv"]);
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert!(lines[0].starts_with("workload,metric,source,unit,guests,arm,") && lines.len() > 20, "{lines:?}");
    let fields = |line: &str| line.matches(',').count();
    assert!(lines.iter().all(|line| fields(line) == fields(lines[0])));
    assert!(!folder.path().join("report.html").exists());
}

#[test]
fn a_page_does_not_replace_a_file_of_the_study() {
    let folder = tempfile::tempdir().unwrap();
    let result = result(folder.path(), 1);
    let link = folder.path().join("link.html");
    std::os::unix::fs::symlink(folder.path().join("study.json"), &link).unwrap();
    for name in ["study.json", "./runs/../plan.toml", "runs/new.html", "failed/new.html", "link.html"] {
        let path = folder.path().join(name);
        let before = std::fs::read(&path).ok();
        let output = experiment(&["report", &result, "--output", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{name}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("name another file with --output"), "{name}");
        assert_eq!(std::fs::read(&path).ok(), before, "{name}");
    }
    let page = folder.path().join("other.html");
    let output = experiment(&["report", &result, "--output", page.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(page.is_file());
}

#[test]
fn two_results_of_one_plan_are_compared_and_others_are_not() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let made = Made { counts: vec![1], workloads: vec!["fread"], ..Made::default() };
    write(folders[2].path(), &made).unwrap();
    let [before, after] = [result(folders[0].path(), 1), result(folders[1].path(), 2)];
    let output = experiment(&["diff", &before, &after, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let difference: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(difference["rows"].as_array().is_some_and(|rows| rows.len() > 20));
    let shown = experiment(&["diff", &before, &after]);
    assert!(text(&shown.stdout).contains("Figures before and after"));
    let output = experiment(&["diff", &before, folders[2].path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("different plans"), "{}", text(&output.stderr));
}

#[test]
fn several_results_on_a_side_are_separated_by_commas() {
    let folders: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
    let results: Vec<_> =
        folders.iter().zip(1..).map(|(folder, seed)| result(&folder.path().join("a,b"), seed)).collect();
    let compared = |before: &str, after: &str| {
        let output = experiment(&["diff", before, after, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let difference: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (difference["results"].clone(), difference["doubts"].as_array().unwrap().len())
    };
    // A comma in the name of a folder separates nothing.
    assert_eq!(compared(&results[0], &results[1]), (serde_json::json!([1, 1]), 1));
    let renamed: Vec<_> = folders.iter().map(|folder| folder.path().join("result")).collect();
    results.iter().zip(&renamed).for_each(|(result, to)| std::fs::rename(result, to).unwrap());
    let joined: Vec<_> = renamed.iter().map(|folder| folder.to_str().unwrap()).collect();
    let [before, after] = [&joined[..3], &joined[1..]].map(|side| side.join(","));
    assert_eq!(compared(&before, &after), (serde_json::json!([3, 3]), 0));
    // The same result again would be no repeat.
    let twice = format!("{},{}/.", joined[0], joined[0]);
    let output = experiment(&["diff", &twice, &after]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("is given twice on one side"), "{}", text(&output.stderr));
}

#[test]
fn results_with_unlike_hosts_in_one_arm_are_compared_on_request_only() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [before, after] = [result(folders[0].path(), 1), result(folders[1].path(), 2)];
    for run in std::fs::read_dir(folders[1].path().join("runs")).unwrap().take(3) {
        let file = run.unwrap().path().join("run.json");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("6.12.0-example\",", "6.13.0-example\",")).unwrap();
    }
    let output = experiment(&["diff", &before, &after]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    let told = text(&output.stderr);
    assert!(told.contains("kernel_release (") && told.contains("--allow-unlike"), "{told}");
    let output = experiment(&["diff", &before, &after, "--allow-unlike"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("after: Runs of one arm differ in"), "{}", text(&output.stdout));
}

#[test]
fn each_command_that_names_allow_unlike_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let shipped = study::suite::ShippedSuite::find("seeds").unwrap();
    std::fs::write(folder.path().join("suite.toml"), shipped.text).unwrap();
    let report = experiment(&["report", folder.path().to_str().unwrap(), "--allow-unlike"]);
    assert_eq!(report.status.code(), Some(0), "{}", text(&report.stderr));
    let tune = run(&["tune", "tune-old-guest", "--allow-unlike", "--dry-run"]);
    assert_eq!(tune.status.code(), Some(0), "{}", text(&tune.stderr));
}

#[test]
fn what_is_no_result_is_refused_and_what_is_damaged_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    for nothing in [empty, "/does/not/exist"] {
        let output = experiment(&["report", nothing]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(nothing), "{}", text(&output.stderr));
    }
    let result = result(folder.path(), 1);
    let run = std::fs::read_dir(folder.path().join("runs")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(run.join("run.json"), "{").unwrap();
    let output = experiment(&["report", &result]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("run.json"), "{}", text(&output.stdout));
}

/// The results of `docs/published.md` have every figure of every run.
#[test]
fn the_results_that_are_kept_are_whole_and_of_the_suite() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = std::fs::read_to_string(docs.join("published.md")).unwrap();
    for shipped in study::suite::SUITES {
        let folder = tempfile::tempdir().unwrap();
        let packed = format!("results/{}.tar.gz", shipped.name);
        let kept = docs.join(&packed);
        let unpacked =
            Command::new("tar").arg("-xzf").arg(kept).arg("-C").arg(folder.path()).status().unwrap();
        assert!(unpacked.success());
        let kept = folder.path().join(shipped.name);
        let output = experiment(&["report", kept.to_str().unwrap(), "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let suite = shipped.suite().unwrap();
        let studies = outcome["studies"].as_array().unwrap();
        let of = |field: &str| studies.iter().map(|study| study[field].as_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(of("name"), suite.studies.iter().map(|study| study.name.as_str()).collect::<Vec<_>>());
        assert_eq!(of("target"), suite.studies.iter().map(|study| study.target.as_str()).collect::<Vec<_>>());
        for study in studies {
            assert!(study["runs"].as_u64() > Some(0) && study["failed"] == 0, "{study:#}");
            let figures = study["figures"].as_array().unwrap();
            assert!(figures.iter().all(|figure| figure["measured"].is_object()), "{study:#}");
        }
        assert!(page.contains(&packed));
    }
}
