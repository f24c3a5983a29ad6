use super::*;
use crate::tuning::SHIPPED_TUNING;

const PLAN: &str = r#"
name = "small"
title = "A small tuning"
question = "What helps?"
[guests]
kind = "qemu"
machine = "pc"
disk = { bus = "ide" }
[[workloads]]
name = "compute"
tool = "sysbench"
test = "cpu"
[[changes]]
name = "virtio"
why = "Its requests need one exit."
guests = { disk = { bus = "virtio-blk" } }
[[changes]]
name = "numa"
why = "Pages stay where they are."
kernel_settings = { "kernel.numa_balancing" = 0 }
"#;

fn refused(from: &str, to: &str) -> String {
    let text = PLAN.replacen(from, to, 1);
    assert_ne!(text, PLAN, "{from}");
    TuningPlan::read(&text, "small.toml").unwrap_err().to_string()
}

#[test]
fn a_plan_has_a_study_for_its_base_and_changes_with_reasons() {
    let plan = TuningPlan::read(PLAN, "small.toml").unwrap();
    assert_eq!(plan.base.name, "small");
    assert_eq!(plan.rules, Rules::default());
    let names: Vec<_> = plan.changes.iter().map(|change| change.level.name.as_str()).collect();
    assert_eq!(names, ["virtio", "numa"]);
    assert_eq!(plan.changes[0].why, "Its requests need one exit.");
}

#[test]
fn what_cannot_be_tried_is_refused_by_name() {
    for (from, to, part) in [
        ("why = \"Its requests need one exit.\"\n", "", "changes[0]: expected why"),
        ("name = \"numa\"", "name = \"virtio\"", "changes[1].name: expected a name that no other"),
        ("name = \"virtio\"", "name = \"before\"", "changes[0].name: expected another name"),
        ("virtio-blk", "virtio-block", "virtio-block"),
        ("guests = {", "gests = {", "gests"),
        (
            "{ disk = { bus = \"virtio-blk\" } }",
            "{ disk = { iothread = true } }",
            "changes[0]: guests.disk.iothread",
        ),
        ("test = \"cpu\"", "test = \"gpu\"", "gpu"),
        ("[[workloads]]", "[tune]\njudge = [\"exits.total\", \"speed\"]\n[[workloads]]", "speed"),
        // The work of sysbench is in events, not requests.
        (
            "[[workloads]]",
            "[tune]\njudge = [\"exits-per-event.HLT\", \"exits-per-request.HLT\"]\n[[workloads]]",
            "tune.judge[1]: expected",
        ),
        ("[[workloads]]", "[tune]\njuge = []\n[[workloads]]", "juge"),
        ("[guests]", "[[factors]]\n[guests]", "experiment run"),
        ("name = \"small\"", "name = \"small", "small.toml:2"),
    ] {
        let said = refused(from, to);
        assert!(said.contains(part), "{to}: {said}");
    }
    for (tune, part) in [
        ("[tune.advised]\nsteps = 0", "tune.advised.steps: expected 1 to 100"),
        ("[tune.advised]\nworth = -1.0", "tune.advised.worth: expected a percentage"),
        ("[tune.advised]", "expected samples.exits and samples.accesses = true"),
        ("[guests]\naccel = \"tcg\"\n[tune.advised]", "with accel = \"kvm\""),
    ] {
        let said = match tune.strip_prefix("[guests]\n") {
            Some(guests) => {
                let (accelerator, tune) = guests.split_once('\n').unwrap();
                let text = PLAN.replace("machine = \"pc\"", accelerator);
                TuningPlan::read(&format!("{text}{tune}"), "small.toml").unwrap_err().to_string()
            }
            None => TuningPlan::read(&format!("{PLAN}{tune}"), "small.toml").unwrap_err().to_string(),
        };
        assert!(said.contains(part), "{tune}: {said}");
    }
    let none = PLAN.split("[[changes]]").next().unwrap();
    assert!(TuningPlan::read(none, "x").unwrap_err().to_string().contains("expected one [[changes]]"));
}

#[test]
fn every_shipped_tuning_is_right_and_has_the_name_of_its_file() {
    for shipped in SHIPPED_TUNING {
        let plan = TuningPlan::read(shipped.text, shipped.name).unwrap_or_else(|bad| panic!("{bad}"));
        assert_eq!(plan.base.name, shipped.name);
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "(?s).{0,200}", at in 0..PLAN.len()) {
        let _ = TuningPlan::read(&text, "any");
        let mut mixed = PLAN.to_owned();
        mixed.insert_str(at, &text);
        let _ = TuningPlan::read(&mixed, "any");
    }
}
