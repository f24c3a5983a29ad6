use super::*;
use proptest::prelude::*;

const GOOD: &str = r#"name = "small"
title = "A small study"
question = "Is it?"

[guests]
kind = "host"
counts = [1]

[[factors]]
name = "arm"
baseline = "off"
[[factors.levels]]
name = "off"
[[factors.levels]]
name = "on"

[[workloads]]
name = "load"
tool = "command"
script = "echo 1"
metrics = [{ name = "said", unit = "count", better = "higher", combine = "sum", regex = "(1)" }]
"#;

fn problems(text: &str) -> Vec<String> {
    Plan::read(text, "p.toml").unwrap_err().to_string().lines().map(str::to_owned).collect()
}

#[test]
fn a_plan_is_read_with_defaults() {
    let plan = Plan::read(GOOD, "p.toml").unwrap();
    assert_eq!((plan.order.repeats, plan.order.attempts), (4, 3));
    let labels: Vec<_> = plan.arms().iter().map(|arm| plan.arm_label(arm)).collect();
    assert_eq!(labels, ["off", "on"]);
}

#[test]
fn text_that_is_no_toml_is_refused_with_its_line() {
    let found = problems(&GOOD.replace("kind = \"host\"", "kind ="));
    assert!(found[0].starts_with("p.toml:6: "), "{found:?}");
}

#[test]
fn a_field_that_does_not_exist_is_refused_with_its_line_and_those_that_do() {
    let found = problems(&GOOD.replace("[guests]", "colour = 1\n[guests]"));
    assert!(found[0].starts_with("p.toml:5: ") && found[0].contains("`colour`"), "{found:?}");
    assert!(found[0].contains("expected") && found[0].contains("`workloads`"), "{found:?}");
}

#[test]
fn every_impossible_value_is_named_with_its_line() {
    let text = GOOD
        .replace("baseline = \"off\"", "baseline = \"none\"")
        .replace("[guests]", "[order]\nrepeats = 0\nuntil = { interval_percent = -1.0 }\n[guests]");
    let found = problems(&text);
    assert_eq!(
        found,
        [
            "p.toml:6: order.repeats: expected a number from 1 to 10000, found 0",
            "p.toml:7: order.until: expected budget (\"6h\") or blocks (20): an interval may never become narrow enough",
            "p.toml:7: order.until.interval_percent: expected a number above 0, found -1",
            "p.toml:14: factors[0].baseline: expected the name of a level (off, on), found \"none\"",
        ]
    );
}

#[test]
fn a_figure_that_no_run_has_is_refused_with_those_that_it_may_have() {
    let until = |names: &str| {
        let until =
            format!("[order]\nuntil = {{ interval_percent = 2.0, blocks = 9, metrics = [{names}] }}\n");
        GOOD.replace("[guests]", &format!("{until}[guests]"))
    };
    Plan::read(&until("\"said\", \"cpu.busy\", \"exits.HLT\""), "p.toml").unwrap();
    let found = problems(&until("\"said\", \"thruput\", \"exits.\""));
    assert!(found[0].contains("order.until.metrics[1]: expected a figure of the"), "{found:?}");
    assert!(
        found[0].contains("(said) or of the host (cpu.busy, ") && found[0].ends_with("found \"thruput\"")
    );
    assert!(found.len() == 2 && found[1].ends_with("found \"exits.\""), "{found:?}");
}

#[test]
fn a_stop_rule_without_a_throughput_or_a_latency_needs_names() {
    let text = |unit: &str, better: &str, metrics: &str| {
        let until = format!("[order]\nuntil = {{ interval_percent = 2.0, blocks = 9{metrics} }}\n[guests]");
        let figure = format!("unit = \"{unit}\", better = \"{better}\"");
        GOOD.replace("[guests]", &until).replace("unit = \"count\", better = \"higher\"", &figure)
    };
    for (unit, better) in [("count", "higher"), ("seconds", "lower"), ("cycles", "lower")] {
        Plan::read(&text(unit, better, ""), "p.toml").unwrap();
    }
    for (unit, better) in [("count", "lower"), ("percent", "lower"), ("seconds", "neither")] {
        let found = problems(&text(unit, better, ""));
        assert!(found[0].contains("order.until.metrics: expected names of figures"), "{found:?}");
        Plan::read(&text(unit, better, ", metrics = [\"said\"]"), "p.toml").unwrap();
    }
}

#[test]
fn the_number_of_runs_is_limited_by_all_guests_and_without_a_number_of_blocks_by_the_blocks() {
    let counts: Vec<String> = (1..=120).map(|count: u32| count.to_string()).collect();
    let many = format!("name = \"on\"\nguests = {{ counts = [{}] }}", counts.join(", "));
    let text = |order: &str| {
        let order = format!("[order]\n{order}\n[guests]");
        GOOD.replace("name = \"on\"", &many).replace("[guests]", &order)
    };
    let found = problems(&text("repeats = 10000"));
    assert_eq!(found, ["p.toml:5: order: expected at most 1000000 runs in all, found 1210000"]);
    let plan = Plan::read(&text("until = { budget = \"6h\" }"), "p.toml").unwrap();
    assert_eq!(plan.most_blocks(), 1_000_000 / 121);
}

#[test]
fn names_that_are_no_file_names_and_double_ones_are_refused() {
    let found = problems(&GOOD.replace("name = \"on\"", "name = \"../on\""));
    assert!(found[0].starts_with("p.toml:15: factors[0].levels[1].name: expected lower-case"), "{found:?}");
    let found = problems(&GOOD.replace("name = \"on\"", "name = \"off\""));
    assert!(found[0].contains("\"off\" again"), "{found:?}");
}

proptest! {
    #[test]
    fn any_text_is_a_plan_or_a_refusal(cut in 0..GOOD.len(), insert in "[\\[\\]=\"a-z0-9.\n{}]{0,20}") {
        let text = format!("{}{insert}{}", &GOOD[..cut], &GOOD[cut..]);
        if let Err(bad) = Plan::read(&text, "p.toml") {
            prop_assert!(!bad.problems.is_empty());
            prop_assert!(bad.problems.iter().all(|problem| problem.line.is_none_or(|line| line <= 80)));
        }
    }
}
