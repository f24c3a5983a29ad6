use super::*;
use crate::{Better, Combine};
use stats::MINIMUM_REPEATS;

fn plan(until: &str) -> Plan {
    let text = include_str!("../plan/small.toml").replace("repeats = 2", &format!("repeats = 2\n{until}"));
    Plan::read(&text, "small.toml").unwrap()
}

/// A run with one guest and one throughput.
fn run(block: u32, level: &str, value: f64) -> Run {
    let metric = Metric {
        name: "said".to_owned(),
        unit: Unit::PerSecond,
        better: Better::Higher,
        combine: Combine::Sum,
        value,
    };
    let cell = Cell {
        block,
        arm: BTreeMap::from([("switch".to_owned(), level.to_owned())]),
        guests: 1,
        workload: "first".to_owned(),
    };
    Run { started: 0, took: 1.0, guests: vec![vec![metric]], ..Run::begun(cell, 0, 0) }
}

/// Blocks whose change is 10 % plus or minus `spread`.
fn runs(blocks: u32, spread: f64) -> Vec<Run> {
    (0..blocks)
        .flat_map(|block| {
            let change = 1.1 + if block % 2 == 0 { spread } else { -spread };
            [run(block, "off", 100.0), run(block, "on", 100.0 * change)]
        })
        .collect()
}

const LONG: Duration = Duration::from_secs(100_000);

#[test]
fn without_a_stop_rule_the_repeats_are_all() {
    assert_eq!(enough(&plan(""), 1, LONG, &[]), None);
    assert_eq!(enough(&plan(""), 2, Duration::ZERO, &[]), Some(Enough::Repeats));
}

#[test]
fn narrow_intervals_end_a_study_and_wide_ones_do_not() {
    let plan = plan("until = { interval_percent = 2.0, blocks = 40 }");
    assert_eq!(enough(&plan, 8, Duration::ZERO, &runs(8, 0.001)), Some(Enough::Narrow));
    assert_eq!(enough(&plan, 8, Duration::ZERO, &runs(8, 0.05)), None);
    assert_eq!(enough(&plan, 40, Duration::ZERO, &runs(40, 0.2)), Some(Enough::Blocks));
}

#[test]
fn too_few_pairs_are_never_narrow() {
    let plan = plan("until = { interval_percent = 50.0, blocks = 40 }");
    assert_eq!(enough(&plan, 2, Duration::ZERO, &runs(2, 0.0)), None);
    assert_eq!(enough(&plan, 3, Duration::ZERO, &[]), None);
}

#[test]
fn widths_are_looked_at_from_the_eighth_block_on() {
    let plan = plan("until = { interval_percent = 2.0, blocks = 40 }");
    assert_eq!(enough(&plan, 7, Duration::ZERO, &runs(7, 0.001)), None);
    assert_eq!(enough(&plan, LEAST_FOR_WIDTH, Duration::ZERO, &runs(8, 0.001)), Some(Enough::Narrow));
    let said = include_str!("../../../../docs/experiment.md");
    assert!(said.contains(&format!("with fewer than {MINIMUM_REPEATS} there is no interval")));
    assert!(said.contains(&format!("looked at from {LEAST_FOR_WIDTH} blocks on")));
}

#[test]
fn an_arm_with_too_few_pairs_is_not_narrow_and_one_without_any_neither() {
    let plan = plan("until = { interval_percent = 2.0, blocks = 40 }");
    let without = |from: u32, to: u32| -> Vec<Run> {
        let failed = |run: &Run| run.cell.arm["switch"] == "on" && (from..to).contains(&run.cell.block);
        runs(to, 0.001).into_iter().filter(|run| !failed(run)).collect()
    };
    assert_eq!(enough(&plan, 8, Duration::ZERO, &without(3, 8)), None);
    assert_eq!(enough(&plan, 13, Duration::ZERO, &without(8, 13)), Some(Enough::Narrow));
    assert_eq!(enough(&plan, 8, Duration::ZERO, &without(0, 8)), None);
    // The limit of blocks still ends such a study.
    assert_eq!(enough(&plan, 40, Duration::ZERO, &without(0, 40)), Some(Enough::Blocks));
}

#[test]
fn an_arm_whose_runs_all_failed_holds_up_the_others() {
    let third = "name = \"on\"\n[[factors.levels]]\nname = \"third\"";
    let text = include_str!("../plan/small.toml")
        .replace("repeats = 2", "repeats = 2\nuntil = { interval_percent = 2.0, blocks = 40 }")
        .replace("name = \"on\"", third);
    let plan = Plan::read(&text, "small.toml").unwrap();
    let mut runs = runs(8, 0.001);
    assert_eq!(enough(&plan, 8, Duration::ZERO, &runs), None);
    runs.extend((0..8).map(|block| run(block, "third", 105.0)));
    assert_eq!(enough(&plan, 8, Duration::ZERO, &runs), Some(Enough::Narrow));
}

#[test]
fn a_figure_that_an_arm_never_counts_holds_nothing_up() {
    let plan = plan("until = { interval_percent = 2.0, blocks = 40, metrics = [\"said\"] }");
    let mut runs = runs(8, 0.001);
    runs.extend((0..8).flat_map(|block| {
        [("off", 3.0), ("on", 0.0)].map(|(level, value)| {
            let run = run(block, level, value);
            Run { cell: Cell { workload: "second".to_owned(), ..run.cell.clone() }, ..run }
        })
    }));
    assert_eq!(enough(&plan, 8, Duration::ZERO, &runs), Some(Enough::Narrow));
}

#[test]
fn a_figure_that_a_guest_lacks_is_not_summed() {
    let plan = plan("until = { interval_percent = 2.0, blocks = 40 }");
    let mut runs = runs(8, 0.001);
    for run in &mut runs {
        run.guests.push(Vec::new());
    }
    assert_eq!(enough(&plan, 8, Duration::ZERO, &runs), None);
}

#[test]
fn exits_for_each_unit_of_work_can_be_narrow() {
    let text = include_str!("../plan/small.toml")
        .replace("repeats = 2", "repeats = 2\nuntil = { interval_percent = 2.0, blocks = 40, metrics = [\"exits-per-event.total\"] }")
        .replace("name = \"said\"", "name = \"work.events\"");
    let plan = Plan::read(&text, "small.toml").unwrap();
    let with_exits = |spread: f64| -> Vec<Run> {
        let mut runs = runs(8, spread);
        for run in &mut runs {
            // The same rate of exits in both arms, so exits for each unit depend on the work.
            let exits = Metric { name: "exits.total".to_owned(), value: 1000.0, ..run.guests[0][0].clone() };
            run.host.push(exits);
            run.guests[0][0].name = "work.events".to_owned();
        }
        runs
    };
    assert_eq!(enough(&plan, 8, Duration::ZERO, &with_exits(0.001)), Some(Enough::Narrow));
    assert_eq!(enough(&plan, 8, Duration::ZERO, &with_exits(0.05)), None);
}

#[test]
fn a_figure_that_is_named_and_never_seen_keeps_the_study_going() {
    let named = |name: &str| {
        let plan = plan(&format!(
            "until = {{ interval_percent = 2.0, blocks = 40, metrics = [\"said\", \"{name}\"] }}"
        ));
        enough(&plan, 8, Duration::ZERO, &runs(8, 0.001))
    };
    assert_eq!(named("cpu.busy"), None);
    assert_eq!(named("said"), Some(Enough::Narrow));
}

#[test]
fn failures_shares_and_exits_of_a_load_hold_nothing_up_unless_they_are_named() {
    let runs = || {
        let mut runs = runs(8, 0.001);
        for (number, run) in runs.iter_mut().enumerate() {
            let value = (number % 3 + 1) as f64;
            for (name, unit) in
                [("errors", Unit::Count), ("cpu.host", Unit::Percent), ("exits.HLT", Unit::PerOperation)]
            {
                let (name, better) = (name.to_owned(), Better::Lower);
                run.guests[0].push(Metric { name, unit, better, combine: Combine::Sum, value });
            }
        }
        runs
    };
    let ended = |metrics: &[&str]| {
        let mut plan = plan("until = { interval_percent = 2.0, blocks = 40 }");
        let until = plan.order.until.as_mut().unwrap();
        until.metrics = metrics.iter().map(ToString::to_string).collect();
        enough(&plan, 8, Duration::ZERO, &runs())
    };
    assert_eq!(ended(&[]), Some(Enough::Narrow));
    for named in ["errors", "cpu.host", "exits.HLT"] {
        assert_eq!(ended(&[named]), None);
    }
}

#[test]
fn the_intervals_of_percentages_are_in_points_as_in_the_report() {
    let plan = plan("until = { interval_percent = 2.0, blocks = 40, metrics = [\"cpu.busy\"] }");
    let ended = |level: f64, spread: f64| {
        let mut runs = runs(8, 0.001);
        for run in &mut runs {
            let is_up = run.cell.arm["switch"] == "on" && run.cell.block % 2 == 0;
            let (name, unit) = ("cpu.busy".to_owned(), Unit::Percent);
            let (better, combine) = (Better::Neither, Combine::Single);
            let value = if is_up { level + spread } else { level };
            run.host.push(Metric { name, unit, better, combine, value });
        }
        enough(&plan, 8, Duration::ZERO, &runs)
    };
    // The intervals of ratios would be wider, or there would be none.
    for (level, spread) in [(1.0, 0.2), (0.0, 0.2), (90.0, 2.1)] {
        assert_eq!(ended(level, spread), Some(Enough::Narrow), "{level}");
    }
    assert_eq!(ended(90.0, 2.4), None);
}

#[test]
fn a_figure_of_the_host_does_not_stand_for_that_of_the_workload() {
    let plan = plan("until = { interval_percent = 2.0, blocks = 40, metrics = [\"said\"] }");
    let with_host = |spread: f64| {
        let mut runs = runs(8, spread);
        for run in &mut runs {
            run.host.push(Metric { value: 100.0, ..run.guests[0][0].clone() });
        }
        runs
    };
    assert_eq!(enough(&plan, 8, Duration::ZERO, &with_host(0.05)), None);
    assert_eq!(enough(&plan, 8, Duration::ZERO, &with_host(0.001)), Some(Enough::Narrow));
}

#[test]
fn the_budget_counts_after_the_repeats() {
    let plan = plan("until = { budget = \"1h\" }");
    assert_eq!(enough(&plan, 1, LONG, &[]), None);
    assert_eq!(enough(&plan, 2, LONG, &[]), Some(Enough::Budget));
    assert_eq!(enough(&plan, 2, Duration::from_secs(60), &[]), None);
}

#[test]
fn a_budget_of_time_does_not_lift_the_limit_of_blocks() {
    let plan = plan("until = { budget = \"1h\" }");
    let at = |blocks| enough(&plan, blocks, Duration::ZERO, &[]);
    assert_eq!((at(9_999), at(10_000)), (None, Some(Enough::Blocks)));
}

#[test]
fn runs_of_later_blocks_do_not_make_an_interval_narrow() {
    let plan = plan("until = { interval_percent = 2.0, blocks = 40 }");
    let mut runs = runs(LEAST_FOR_WIDTH + 1, 0.001);
    runs.retain(|run| run.cell.block != 1);
    assert_eq!(enough(&plan, LEAST_FOR_WIDTH + 1, Duration::ZERO, &runs), Some(Enough::Narrow));
    assert_eq!(enough(&plan, LEAST_FOR_WIDTH, Duration::ZERO, &runs), None);
}
