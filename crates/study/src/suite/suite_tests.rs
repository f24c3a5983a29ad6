use super::*;

#[test]
fn every_shipped_suite_is_right_and_has_the_name_of_its_file() {
    for shipped in SUITES {
        let suite = shipped.suite().unwrap_or_else(|bad| panic!("{bad}"));
        assert_eq!(suite.name, shipped.name);
        assert!(Shipped::find(shipped.name).is_none(), "{} is the name of a plan as well", shipped.name);
    }
}

const STUDY: &str = r#"
name = "small"
title = "One study"
[[studies]]
name = "ipi"
plan = "ipi-cost-lab"
target = "lab:intel-apicv+switch-cycles=500"
[[studies.figures]]
figure = "an IPI to a running vCPU"
workload = "ipi-running"
metric = "cycles.median"
published = [-47.0]
"#;

#[test]
fn a_suite_sets_repeats_and_the_stop_rule_of_its_plans() {
    let text =
        STUDY.replace("target =", "repeats = 5\nuntil = { interval_percent = 5.0, blocks = 20 }\ntarget =");
    let suite = Suite::read(&text, "small.toml").unwrap();
    let plan = suite.studies[0].plan().unwrap();
    assert_eq!((plan.order.repeats, plan.most_blocks()), (5, 20));
    assert_eq!(plan.name, "ipi-cost-lab");
}

#[test]
fn a_suite_merges_settings_over_the_guests_of_its_plans() {
    let with = |guests: &str| {
        let plan = STUDY
            .split_once("[[studies.figures]]")
            .unwrap()
            .0
            .replace("ipi-cost-lab", "netperf-xen-apicv-lab");
        Suite::read(&format!("{plan}guests = {guests}"), "small.toml")
    };
    let plan = with("{ net_rate = \"5M\", counts = [2] }").unwrap().studies[0].plan().unwrap();
    let own = Shipped::find("netperf-xen-apicv-lab").unwrap().plan().unwrap();
    assert_eq!((own.guests.counts(), plan.guests.counts()), (vec![1], vec![2]));
    let [own, laid] = [&own, &plan].map(|plan| toml::Table::try_from(&plan.guests).unwrap());
    assert_eq!((laid["net_rate"].as_str(), &laid["memory"]), (Some("5M"), &own["memory"]));
    let bad = with("{ net_rate = 5 }").unwrap_err().to_string();
    assert!(bad.contains("studies[0].plan: guests: "), "{bad}");
}

#[test]
fn a_figure_against_another_study_names_one_of_several_numbers_of_guests() {
    let study = |name: &str, more: &str| {
        format!("[[studies]]\nname = {name:?}\nplan = \"iozone-disk-lab\"\ntarget = \"local\"\n{more}\n")
    };
    let plan = Shipped::find("iozone-disk-lab").unwrap().plan().unwrap();
    let suite = |guests: &str| {
        let levels = plan.arm_names(&plan.arms()[0]);
        let figure = format!(
            "[[studies.figures]]\nfigure = \"x\"\nworkload = {:?}\nmetric = \"cpu.busy\"\narm = {levels:?}\n{guests}",
            plan.workloads[0].name
        );
        let figure = figure.replace("\": \"", "\" = \"");
        let text = study("off", "") + &study("on", &format!("against = \"off\"\n{figure}"));
        Suite::read(&format!("name = \"x\"\ntitle = \"x\"\n{text}"), "x.toml")
    };
    let bad = suite("").unwrap_err().to_string();
    assert!(bad.contains("studies[1].figures[0].guests: expected one of {"), "{bad}");
    suite(&format!("guests = {}", plan.guests.counts()[0])).unwrap();
}

#[test]
fn what_is_wrong_is_named_with_its_field() {
    for (from, to, why) in [
        ("name = \"ipi\"", "name = \"../x\"", "studies[0].name: expected lower-case letters"),
        ("plan = \"ipi-cost-lab\"", "plan = \"ipi\"", "studies[0].plan: expected the name of a shipped plan"),
        ("lab:intel", "intel", "studies[0].target: \"intel-apicv+switch-cycles=500\" is not a target"),
        ("\"ipi-running\"", "\"reads\"", "studies[0].figures[0].workload: expected one of "),
        ("cycles.median", "cycle.median", "studies[0].figures[0].metric: expected a figure of the workloads"),
        ("metric =", "guests = 7\nmetric =", "studies[0].figures[0].guests: expected one of {"),
        ("[-47.0]", "[1.0, 2.0, 3.0]", "studies[0].figures[0].published: expected a value, or"),
        (
            "metric =",
            "arm = { speed = \"low\" }\nmetric =",
            "studies[0].figures[0].arm: expected levels of one arm",
        ),
        ("target =", "against = \"ipi\"\ntarget =", "studies[0].against: expected an earlier study"),
        ("target =", "repeats = 0\ntarget =", "studies[0].plan: order.repeats: expected"),
        ("target =", "colour = 1\ntarget =", "unknown field `colour`"),
    ] {
        let bad = Suite::read(&STUDY.replacen(from, to, 1), "small.toml").unwrap_err().to_string();
        assert!(bad.contains(why), "{bad}");
    }
    let none = Suite::read("name = \"x\"\ntitle = \"x\"\nstudies = []", "x.toml").unwrap_err().to_string();
    assert_eq!(none, "x.toml: studies: expected at least one, found none");
}

#[test]
fn the_name_of_a_suite_cannot_leave_the_folder_end_a_comment_or_control_a_terminal() {
    for name in ["a\\u001b", "x/../y", "a\\nb", ""] {
        let text = STUDY.replacen("\"small\"", &format!("\"{name}\""), 1);
        let BadPlan { problems, .. } = Suite::read(&text, "small.toml").unwrap_err();
        let [Problem { field, what, .. }] = &problems[..] else { panic!("{problems:?}") };
        assert!(field == "name" && what.starts_with("expected lower-case letters"), "{field}: {what}");
    }
}
