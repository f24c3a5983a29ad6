//! Properties of the workloads of all tools.

use std::process::Command;

use load::Protocol;
use proptest::prelude::*;

use super::testing::{fixture, loaded, outputs, plan, probed, refused};
use super::{Output, Place, Scene, WorkloadPlan};
use crate::factor::Switch;
use ::probe::measure::Measure;
use ::probe::run::Arm;

/// At least one plan for each tool, with a real output if there is one.
const PLANS: [(&str, &str); 12] = [
    (
        "tool = \"iozone\"\nfile_size = \"1M\"\nrecord_size = \"64K\"\ntests = [\"random-read\", \"pwrite\", \"fread\"]",
        "iozone-seed.out",
    ),
    (
        "tool = \"iozone\"\nfile_size = \"1M\"\nrecord_size = \"64K\"\ntests = [\"random-read\"]\nprocesses = 2",
        "iozone-processes.out",
    ),
    ("tool = \"netperf\"\ntest = \"tcp-rr\"", "netperf-tcp-rr-omni.out"),
    ("tool = \"netperf\"\ntest = \"udp-stream\"\noutput = \"classic\"", "netperf-udp-stream-classic.out"),
    ("tool = \"sysbench\"\ntest = \"threads\"", "sysbench-threads.out"),
    (
        "tool = \"sysbench\"\ntest = \"fileio\"\noptions = { file-test-mode = \"rndrw\" }",
        "sysbench-fileio.out",
    ),
    ("tool = \"fio\"\npattern = \"random-read-write\"", "fio-random-read-write.json"),
    ("tool = \"http\"", "wrk.out"),
    ("tool = \"http\"\ngenerator = \"ab\"\nserver = \"apache2\"", "ab.out"),
    ("tool = \"mqtt\"\nconnections = 10\nrate = 100", "load-mqtt.json"),
    ("tool = \"probe\"\nmeasure = \"eoi\"", "probe-eoi.json"),
    (
        "tool = \"command\"\nscript = \"x\"\n[[metrics]]\nname = \"a\"\nunit = \"count\"\nbetter = \"lower\"\n\
         combine = \"worst\"\nregex = '([0-9.]+) MiB transferred'",
        "sysbench-memory.out",
    ),
];

fn plans() -> impl Iterator<Item = (WorkloadPlan, String)> {
    PLANS.iter().map(|(settings, name)| (plan(settings), printed(name)))
}

/// A synthetic output of this program's own tools.
fn printed(name: &str) -> String {
    match name {
        "probe-eoi.json" => probed(Measure::Eoi, Arm::On),
        "load-mqtt.json" => loaded(Protocol::Mqtt),
        other => fixture(other),
    }
}

#[test]
fn each_figure_is_one_that_was_described() {
    for (plan, stdout) in plans() {
        let described = plan.metrics();
        let found = plan.parse(&outputs(&plan, &stdout)).unwrap();
        assert!(!found.is_empty());
        for metric in &found {
            let by: Vec<_> = described.iter().filter(|by| by.covers(&metric.name)).collect();
            assert_eq!(by.len(), 1, "{metric:?}");
            assert_eq!(
                (by[0].unit, by[0].better, by[0].combine),
                (metric.unit, metric.better, metric.combine)
            );
            assert!(metric.value.is_finite() && metric.value >= 0.0, "{metric:?}");
        }
        for by in &described {
            assert!(by.meaning.chars().count() <= 60, "{}", by.meaning);
            assert!(found.iter().any(|metric| by.covers(&metric.name)), "{} of {plan:?}", by.name);
        }
    }
}

#[test]
fn plans_are_written_as_they_are_read() {
    for (plan, _) in plans() {
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<WorkloadPlan>(&json).unwrap(), plan, "{json}");
    }
}

#[test]
fn every_script_is_one_that_the_shell_reads() {
    for (plan, _) in plans() {
        for (guest, virtualization) in [(0, None), (11, Some(Switch::Off))] {
            let scene = Scene { guest, interrupt_virtualization: virtualization, ..Scene::default() };
            let steps = plan.steps(&scene);
            assert!(!steps.run.is_empty());
            for step in steps.prepare.iter().chain(&steps.serve).chain(&steps.run) {
                let read = Command::new("sh").args(["-n", "-c", &step.script]).output().unwrap();
                assert!(read.status.success(), "{}: {}", step.script, String::from_utf8_lossy(&read.stderr));
                assert!(step.limit >= plan.steps(&scene).run[0].limit, "{}", step.name);
            }
        }
    }
}

#[test]
fn a_script_enters_no_folder_of_another_user() {
    let folder = tempfile::tempdir().unwrap();
    let script = &plan(PLANS[0].0).steps(&Scene::default()).prepare[0].script;
    let (enter, _) = script.split_once("iozone").unwrap();
    let user = rustix::process::geteuid().as_raw();
    let all = folder.path().join(format!("exitless-study-{user}"));
    let run = || {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{enter}pwd")]).env("TMPDIR", folder.path());
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    for _ in 0..2 {
        let (status, said, _) = run();
        assert!(status == Some(0) && said.starts_with(all.to_str().unwrap()), "{status:?}: {said}");
    }
    let elsewhere = folder.path().join("elsewhere");
    std::fs::rename(&all, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &all).unwrap();
    let (status, said, why) = run();
    assert!(status == Some(73) && said.is_empty() && why.contains("belongs to another user"), "{said}{why}");
    if user != 0 {
        println!("not tested: a folder of another user, because this user cannot give one away");
        return;
    }
    std::fs::remove_file(&all).unwrap();
    std::fs::create_dir(&all).unwrap();
    std::os::unix::fs::chown(&all, Some(65_534), None).unwrap();
    assert_eq!(run().0, Some(73));
}

#[test]
fn a_step_that_failed_is_told_with_what_it_said() {
    let plan = plan(PLANS[0].0);
    let mut outputs = outputs(&plan, &fixture("iozone-missing-file.out"));
    let failed = outputs.steps.get_mut("iozone").unwrap();
    *failed = Output { status: 70, stderr: "read: Success\n\n".to_owned(), ..failed.clone() };
    let error = plan.parse(&outputs).unwrap_err().to_string();
    assert_eq!(
        error,
        "Could not read what iozone printed in step \"iozone\": expected status 0, found \"status 70: read: Success\""
    );
    outputs.steps.clear();
    assert_eq!(plan.parse(&outputs).unwrap_err().expected, "the step to have run");
}

#[test]
fn a_server_that_was_ended_is_no_failure() {
    let plan = plan("tool = \"http\"");
    let mut outputs = outputs(&plan, &fixture("wrk.out"));
    outputs.steps.insert("http-server".to_owned(), Output { status: 143, ..Output::default() });
    assert!(plan.parse(&outputs).is_ok());
}

#[test]
fn names_and_limits_are_checked() {
    for name in ["", "A", "a b", "-a", "a/b", &"a".repeat(65)] {
        let text = format!("name = {name:?}\n{}", PLANS[0].0);
        let bad = toml::from_str::<WorkloadPlan>(&text).unwrap().check().unwrap_err();
        assert_eq!(bad.field, "name");
    }
    assert!(refused("tool = \"netperf\"\ntest = \"tcp-rr\"\nlimit = \"0s\"").contains("found \"0s\""));
    assert!(refused("tool = \"spec\"").contains("unknown variant `spec`"));
    assert!(refused("").contains("missing field `tool`"));
    let limited = plan("tool = \"netperf\"\ntest = \"tcp-rr\"\nlimit = \"9m\"");
    assert_eq!(limited.steps(&Scene::default()).run[0].limit.as_secs(), 540);
    assert_eq!(limited.needs()[0].place, Place::Guest);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_is_figures_or_an_error(text in "(?s).{0,400}") {
        for (plan, _) in plans() {
            let _ = plan.parse(&outputs(&plan, &text));
        }
    }

    /// A truncated or overwritten output gives the same figures or an error.
    #[test]
    fn a_damaged_output_panics_nowhere(which in 0..PLANS.len(), cut in 0.0..1.0f64, length in 0..40usize, by in ".{0,8}") {
        let (plan, whole) = plans().nth(which).unwrap();
        let text: Vec<char> = whole.chars().collect();
        let begin = (text.len() as f64 * cut) as usize;
        let end = (begin + length).min(text.len());
        let damaged: String =
            text[..begin].iter().copied().chain(by.chars()).chain(text[end..].iter().copied()).collect();
        for text in [damaged, text[..begin].iter().collect()] {
            if let Ok(found) = plan.parse(&outputs(&plan, &text)) {
                prop_assert!(found.iter().all(|metric| metric.value.is_finite()));
            }
        }
    }
}
