use proptest::prelude::*;

use super::synthetic::{Made, of_two_kinds, study};
use stats::Scale;

use super::*;
use crate::{Better, Combine, Metric, Unit};

/// The comparison of one result on each side.
fn compared(before: &Collected, after: &Collected) -> StudyDifference {
    difference(std::slice::from_ref(before), std::slice::from_ref(after), false).unwrap()
}

fn found(made: &Made) -> Findings {
    analyse(&study(made), false).unwrap()
}

fn figure<'a>(findings: &'a Findings, workload: &str, metric: &str) -> &'a Figure {
    findings.figures.iter().find(|figure| figure.workload == workload && figure.metric == metric).unwrap()
}

#[test]
fn a_gain_that_is_there_is_found_with_its_size() {
    let findings = found(&Made::default());
    assert_eq!(findings.arms.iter().map(|arm| arm.name.as_str()).collect::<Vec<_>>(), ["off", "on"]);
    assert_eq!(findings.verdict.judgement, Judgement::Better);
    for workload in ["random-read", "random-write", "pread"] {
        let throughput = figure(&findings, workload, "throughput");
        let [overall] = &throughput.overall[..] else { panic!("{throughput:?}") };
        let change = overall.change.unwrap();
        let interval = change.interval.unwrap();
        assert!(
            interval.low < 3.0 && 3.0 < interval.high && interval.high - interval.low < 3.0,
            "{change:?}"
        );
        assert_eq!((change.repeats, change.test), (8, Some(Test::Permutation)));
        assert_eq!(overall.finding, Finding::Raised);
        assert_eq!(throughput.points.len(), 3);
        assert_eq!(throughput.points[0].arms[0].as_ref().unwrap().values.len(), 8);
    }
    assert!(findings.verdict.sentence.starts_with("apicv on raised "), "{}", findings.verdict.sentence);
    assert!(findings.verdict.sentence.contains("with 1, 2 and 4 VMs by"), "{}", findings.verdict.sentence);
}

#[test]
fn percentages_are_compared_in_points() {
    let findings = found(&Made::default());
    let change = figure(&findings, "random-read", "cpu.iowait").points[2].comparisons[0].change.unwrap();
    assert_eq!(change.scale, Scale::Difference);
    assert!((change.estimate - -0.68).abs() < 0.2, "{change:?}");
}

#[test]
fn a_reason_that_is_gone_was_seen_no_times() {
    let findings = found(&Made::default());
    let figure = figure(&findings, "pread", "exits.INTERRUPT_WINDOW");
    let on = figure.points[0].arms[1].as_ref().unwrap();
    assert_eq!((on.mean, on.values.len()), (0.0, 8));
    assert_eq!(figure.points[0].comparisons[0].finding, Finding::Lowered);
    assert!((figure.points[0].comparisons[0].percent.unwrap() - -100.0).abs() < 1e-9);
}

/// A study of three blocks with an additional figure of the host that has these values with APICv off and on.
fn with_figure(name: &str, unit: Unit, values: [[f64; 3]; 2]) -> Findings {
    let made = Made { blocks: 3, counts: vec![1], workloads: vec!["pread"], ..Made::default() };
    let mut collected = study(&made);
    for stored in &mut collected.runs {
        let run = &mut stored.run;
        let arm = usize::from(run.cell.arm["apicv"] == "on");
        let value = values[arm][run.cell.block as usize];
        run.took = 2.0;
        let (better, combine) = (Better::Lower, Combine::Single);
        run.host.push(Metric { name: name.to_owned(), unit, better, combine, value });
    }
    analyse(&collected, false).unwrap()
}

#[test]
fn accesses_that_are_always_gone_are_found_however_their_number_scattered() {
    let findings = with_figure("accesses.port", Unit::PerSecond, [[145.0, 143.0, 61.0], [0.0; 3]]);
    let point = &figure(&findings, "pread", "accesses.port").points[0];
    let [one] = &point.comparisons[..] else { panic!("{point:?}") };
    assert_eq!((one.finding, one.percent), (Finding::Lowered, Some(-100.0)), "{one:?}");
    let interval = one.change.unwrap().interval.unwrap();
    assert!(interval.high < 0.0, "{one:?}");
    let on = point.arms[1].as_ref().unwrap();
    // The upper end of the 95 % interval of a rate without events in six seconds.
    assert!(on.level == 0.0 && (0.5..0.7).contains(&on.level_interval.unwrap().high), "{on:?}");
    // So few events do not differ significantly from none, although their rate does not scatter.
    let findings = with_figure("accesses.port", Unit::PerSecond, [[0.5; 3], [0.0; 3]]);
    let one = &figure(&findings, "pread", "accesses.port").points[0].comparisons[0];
    assert_eq!((one.finding, one.change.unwrap().test), (Finding::NotSeen, Some(Test::Counts)), "{one:?}");
}

/// A figure's values in each arm.
fn values(findings: &Findings, metric: &str) -> [Vec<f64>; 2] {
    let point = &figure(findings, "pread", metric).points[0];
    [0, 1].map(|arm| point.arms[arm].iter().flat_map(|arm| arm.values.iter().map(|value| value.1)).collect())
}

/// A study of three blocks with additional figures of the host from `add`, by arm and block.
fn with_figures(add: impl Fn(usize, usize) -> Vec<(String, f64)>) -> Collected {
    let made = Made { blocks: 3, counts: vec![1], workloads: vec!["pread"], ..Made::default() };
    let mut collected = study(&made);
    for stored in &mut collected.runs {
        let run = &mut stored.run;
        let arm = usize::from(run.cell.arm["apicv"] == "on");
        let (unit, better, combine) = (Unit::PerSecond, Better::Lower, Combine::Single);
        let added = add(arm, run.cell.block as usize);
        run.host.extend(added.into_iter().map(|(name, value)| Metric { name, unit, better, combine, value }));
    }
    collected
}

#[test]
fn a_label_without_interrupts_in_a_run_counted_none() {
    let collected = with_figures(|arm, block| {
        let mut figures = vec![("interrupts.total".to_owned(), 1000.0)];
        if (arm, block) == (1, 2) {
            figures.push(("interrupts.PIN".to_owned(), 900.0));
        }
        figures
    });
    let findings = analyse(&collected, false).unwrap();
    assert_eq!(values(&findings, "interrupts.PIN"), [vec![0.0; 3], vec![0.0, 0.0, 900.0]]);
}

#[test]
fn nothing_is_made_up_for_a_run_that_did_not_count() {
    // A run that has only KVM's total of exits, one without accesses, and one in which some places were left out.
    let mut collected = with_figures(|arm, block| match (arm, block) {
        (1, 1) => Vec::new(),
        (1, 2) => {
            let places = (0..48).map(|port| (format!("accesses.port.{port:#x}"), 5.0));
            places.chain([("accesses.port".to_owned(), 300.0)]).collect()
        }
        _ => [("accesses.port", 20.0), ("accesses.port.0x3f8", 20.0)]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
    });
    let total_only = &mut collected.runs.iter_mut().find(|stored| stored.run.cell.block == 0).unwrap().run;
    let arm = usize::from(total_only.cell.arm["apicv"] == "on");
    total_only.host.retain(|metric| !metric.name.starts_with("exits.") || metric.name == "exits.total");
    let findings = analyse(&collected, false).unwrap();
    assert_eq!(
        values(&findings, "exits.HLT").map(|values| values.len()),
        if arm == 0 { [2, 3] } else { [3, 2] }
    );
    assert_eq!(values(&findings, "exits.total").map(|values| values.len()), [3, 3]);
    assert_eq!(values(&findings, "accesses.port.0x3f8"), [vec![20.0; 3], vec![20.0]]);
    assert_eq!(values(&findings, "accesses.port.0x1"), [vec![0.0; 3], vec![0.0, 5.0]]);
}

/// A study of eight blocks of the micro VM, whose runs have these figures by block, with APICv off and on.
fn of_probe(figures: impl Fn(u32, bool) -> Vec<(&'static str, f64)>) -> Collected {
    let made = Made { counts: vec![1], workloads: vec!["ipi"], ..Made::default() };
    let mut collected = study(&made);
    for run in collected.runs.iter_mut().map(|stored| &mut stored.run) {
        let (unit, better, combine) = (Unit::PerOperation, Better::Lower, Combine::Single);
        let of_run = figures(run.cell.block, run.cell.arm["apicv"] == "on").into_iter();
        let of_run =
            of_run.map(|(name, value)| Metric { name: name.to_owned(), unit, better, combine, value });
        (run.guests, run.host) = (vec![of_run.collect()], Vec::new());
    }
    collected
}

#[test]
fn a_reason_of_the_micro_vm_that_is_gone_was_seen_no_times() {
    let all =
        |block: u32| vec![("exits", 2.0), ("exits.EOI", 1.0), ("exits.HLT", f64::from(block % 2) + 1.0)];
    let some = |block: u32, on: bool| match (block, on) {
        (_, false) => all(block),
        // Without eBPF there are no reasons.
        (0, _) => vec![("exits", 1.0)],
        (1, _) => vec![("exits", 0.0)],
        _ => vec![("exits", 1.0), ("exits.HLT", 1.0)],
    };
    let findings = analyse(&of_probe(some), false).unwrap();
    let point = |metric: &str| figure(&findings, "ipi", metric).points[0].clone();
    let values = |metric: &str| point(metric).arms[1].clone().unwrap().values;
    assert_eq!(values("exits.EOI"), (1..8).map(|block| (block, 0.0)).collect::<Vec<_>>());
    assert_eq!(values("exits.HLT")[..2], [(1, 0.0), (2, 1.0)]);
    let of_eoi = point("exits.EOI");
    let [gone] = &of_eoi.comparisons[..] else { panic!("{of_eoi:?}") };
    assert_eq!((gone.finding, gone.change.unwrap().repeats), (Finding::Lowered, 7));
    assert!(findings.verdict.sentences.iter().any(|one| one.contains("lowered ipi VM exits EOI")));
    let none = of_probe(|block, _| all(block).into_iter().filter(|(name, _)| *name != "exits.EOI").collect());
    let found = compared(&of_probe(|block, _| all(block)), &none);
    let row = found.rows.iter().find(|row| row.figure.metric == "exits.EOI").unwrap();
    assert_eq!((row.finding, row.means), (Finding::Lowered, [1.0, 0.0]));
    assert_eq!(found.only_one, Vec::<String>::new());
}

/// The comparison of a load's plain numbers over eight blocks, which are `before` and `after` in all of them.
fn of_numbers(combine: Combine, before: f64, after: f64) -> Comparison {
    let mut collected = study(&Made { counts: vec![1], workloads: vec!["pread"], ..Made::default() });
    for run in collected.runs.iter_mut().map(|stored| &mut stored.run) {
        let value = if run.cell.arm["apicv"] == "on" { after } else { before };
        let (name, unit, better) = ("depth".to_owned(), Unit::Count, Better::Lower);
        run.guests[0].push(Metric { name, unit, better, combine, value });
    }
    let findings = analyse(&collected, false).unwrap();
    figure(&findings, "pread", "depth").points[0].comparisons[0].clone()
}

#[test]
fn plain_numbers_that_are_no_events_are_not_taken_for_them() {
    for combine in [Combine::Mean, Combine::Worst, Combine::Single] {
        assert_eq!(of_numbers(combine, 5.0, 6.0).finding, Finding::Raised);
    }
    // Numbers that are added up are events, of which 40 and 48 do not differ.
    assert_eq!(of_numbers(Combine::Sum, 5.0, 6.0).finding, Finding::NotSeen);
    let below = of_numbers(Combine::Sum, -5.0, 3.0);
    assert_eq!((below.finding, below.change.unwrap().estimate), (Finding::Raised, 8.0), "{below:?}");
}

#[test]
fn all_numbers_of_guests_count_alike_however_long_their_runs_took() {
    let made = Made { blocks: 3, counts: vec![1, 2], workloads: vec!["pread"], ..Made::default() };
    let mut collected = study(&made);
    for run in collected.runs.iter_mut().map(|stored| &mut stored.run) {
        let is_longer = run.cell.guests == 2 && run.cell.arm["apicv"] == "on";
        run.sampled = Some(if is_longer { 100.0 } else { 10.0 });
        let value = if run.cell.guests == 1 { 10.0 } else { 1.0 };
        let (name, unit) = ("accesses.port".to_owned(), Unit::PerSecond);
        let (better, combine) = (Better::Lower, Combine::Single);
        run.host.push(Metric { name, unit, better, combine, value });
    }
    let findings = analyse(&collected, false).unwrap();
    let [all] = &figure(&findings, "pread", "accesses.port").overall[..] else { panic!("not one arm") };
    let (change, levels) = (all.change.unwrap(), all.levels.unwrap());
    assert!(change.estimate.abs() < 1e-9 && change.scale == Scale::Difference, "{all:?}");
    assert!(levels.iter().all(|level| (level - 5.5).abs() < 1e-9), "{all:?}");
    assert_eq!((all.finding, all.percent), (Finding::NotSeen, Some(0.0)), "{all:?}");
}

#[test]
fn what_is_gone_is_found_between_two_results_too() {
    let collected = |value: f64| {
        let mut collected =
            study(&Made { blocks: 3, counts: vec![1], workloads: vec!["pread"], ..Made::default() });
        for stored in &mut collected.runs {
            let value = value * [145.0, 143.0, 61.0][stored.run.cell.block as usize];
            let (name, unit) = ("accesses.port".to_owned(), Unit::PerSecond);
            let (better, combine) = (Better::Lower, Combine::Single);
            stored.run.host.push(Metric { name, unit, better, combine, value });
        }
        collected
    };
    let found = compared(&collected(1.0), &collected(0.0));
    let row = found.rows.iter().find(|row| row.figure.metric == "accesses.port").unwrap();
    assert_eq!(row.finding, Finding::Lowered, "{row:?}");
    assert!(row.change.unwrap().interval.unwrap().high < 0.0 && row.levels[1] == 0.0, "{row:?}");
}

#[test]
fn a_change_is_that_between_the_levels_beside_it() {
    // The arm's mean is larger than the baseline's, but the mean ratio of the pairs is below 1.
    let values = [[100.0, 100.0, 400.0], [60.0, 60.0, 500.0]];
    let findings = with_figure("cpu.frequency", Unit::Hertz, values);
    let point = &figure(&findings, "pread", "cpu.frequency").points[0];
    let change = point.comparisons[0].change.unwrap();
    let [off, on] = [0, 1].map(|arm| point.level(arm).unwrap());
    assert!(change.estimate < 0.0 && on < off, "{change:?}, {off} and {on}");
    let mean = |arm: usize| point.arms[arm].as_ref().unwrap().mean;
    assert!(mean(1) > mean(0));
    for findings in [findings, found(&Made::default()), found(&Made { blocks: 4, ..Made::default() })] {
        for figure in &findings.figures {
            for (point, one) in
                figure.points.iter().flat_map(|point| point.comparisons.iter().map(move |one| (point, one)))
            {
                let (change, [before, after]) = (one.change.unwrap(), one.levels.unwrap());
                let between = match change.scale {
                    Scale::Ratio => (after / before - 1.0) * 100.0,
                    Scale::Difference => after - before,
                };
                let near = (change.estimate - between).abs() < 1e-9 * (100.0 + before.abs().max(after.abs()));
                assert!(near, "{}: {change:?} of {before} and {after}", figure.metric);
                assert_eq!([point.level(0), point.level(one.arm)], [Some(before), Some(after)]);
            }
        }
    }
}

/// A study whose guests complete the same number of events in both arms, in the second with half the exits for each
/// event and in a third of the time.
fn with_work() -> Collected {
    let mut collected = study(&Made { workloads: vec!["threads"], counts: vec![1, 2], ..Made::default() });
    for stored in &mut collected.runs {
        let run = &mut stored.run;
        let on = run.cell.arm["apicv"] == "on";
        run.took = if on { 4.0 } else { 12.0 };
        for guest in &mut run.guests {
            let (name, unit) = ("work.events".to_owned(), Unit::Count);
            guest.push(Metric { name, unit, better: Better::Neither, combine: Combine::Sum, value: 500.0 });
        }
        let exits = if on { 1500.0 } else { 1000.0 } * f64::from(run.cell.guests);
        for metric in &mut run.host {
            match metric.name.as_str() {
                "exits.total" | "exits.HLT" => metric.value = exits,
                _ => {}
            }
        }
    }
    collected
}

#[test]
fn exits_are_told_a_second_and_for_each_unit_of_work() {
    let findings = analyse(&with_work(), false).unwrap();
    let percent = |metric: &str| {
        let points = &figure(&findings, "threads", metric).points;
        points.iter().map(|point| point.comparisons[0].percent.unwrap()).collect::<Vec<_>>()
    };
    assert!(percent("exits.total").iter().all(|percent| (percent - 50.0).abs() < 1e-6));
    assert!(percent("exits-per-event.total").iter().all(|percent| (percent + 50.0).abs() < 1e-6));
    let of_work = figure(&findings, "threads", "exits-per-event.total");
    assert_eq!(
        (of_work.unit, of_work.better, of_work.source),
        (Unit::PerOperation, Better::Lower, Source::Host)
    );
    // 1,000 exits a second for 12 seconds, divided by 500 events, for each number of guests.
    assert!(of_work.points.iter().all(|point| (point.level(0).unwrap() - 24.0).abs() < 1e-9));
    // A reason without exits in a run is 0 for each event too.
    let gone = figure(&findings, "threads", "exits-per-event.INTERRUPT_WINDOW");
    assert_eq!(gone.points[0].level(1), Some(0.0));
    let said = findings.verdict.sentences.join(" ");
    assert!(
        said.contains("lowered VM exits an event in all during threads with 1 and 2 VMs by 50"),
        "{said}"
    );
    assert!(said.contains("raised VM exits in all during threads"), "{said}");
    // Exits for each event repeat the exits a second, so they do not count as further comparisons.
    let without = found(&Made { workloads: vec!["threads"], counts: vec![1, 2], ..Made::default() });
    assert_eq!(findings.multiplicity.made, without.multiplicity.made + 3);
}

#[test]
fn exits_of_work_are_those_of_all_the_time_in_which_they_were_counted() {
    for last_reading in [None, Some(1.0)] {
        let mut collected = with_work();
        // The end of one arm is noticed late, so its rates cover 12 seconds of work and 6 idle ones.
        for run in collected.runs.iter_mut().map(|stored| &mut stored.run) {
            let sampled = if run.cell.arm["apicv"] == "on" { 18.0 } else { 12.0 };
            run.sampled = Some(sampled);
            run.exits_counted = last_reading.map(|more| sampled + more);
            let rate = run.host.iter_mut().find(|metric| metric.name == "exits.total").unwrap();
            rate.value = 12_000.0 * f64::from(run.cell.guests) / run.exits_counted.unwrap_or(sampled);
        }
        let findings = analyse(&collected, false).unwrap();
        let of_work = figure(&findings, "threads", "exits-per-event.total");
        assert!(of_work.points.iter().all(|point| point.comparisons[0].percent.unwrap().abs() < 1e-6));
    }
}

#[test]
fn exits_that_were_counted_apart_are_those_of_the_work_meanwhile() {
    let mut collected = with_work();
    for run in collected.runs.iter_mut().map(|stored| &mut stored.run) {
        run.exits_counted = Some(20.0);
        // Twice the work of the measured run.
        let mut guests = run.guests.clone();
        let of_guests = guests.iter_mut().flatten();
        of_guests.filter(|metric| metric.name == "work.events").for_each(|metric| metric.value *= 2.0);
        run.counted = Some(crate::Repetition { took: 19.0, guests });
    }
    let findings = analyse(&collected, false).unwrap();
    let level = |metric: &str| figure(&findings, "threads", metric).points[0].level(0).unwrap();
    // 1,000 exits a second for 20 seconds, divided by 1,000 events.
    assert!((level("exits-per-event.total") - 20.0).abs() < 1e-9);
    // The workload's own figures are of the measured run alone.
    let alone = analyse(&with_work(), false).unwrap();
    let measured = figure(&alone, "threads", "work.events").points[0].level(0).unwrap();
    assert!((level("work.events") - measured).abs() < 1e-9);
}

#[test]
fn a_load_that_does_not_tell_its_work_has_rates_alone() {
    let mut collected = with_work();
    collected.runs[0].run.guests[0].retain(|metric| metric.name != "work.events");
    let findings = analyse(&collected, false).unwrap();
    let blocks = |metric: &str| {
        figure(&findings, "threads", metric).points[0]
            .arms
            .iter()
            .flatten()
            .map(|arm| arm.values.len())
            .sum::<usize>()
    };
    assert_eq!((blocks("exits.HLT"), blocks("exits-per-event.HLT")), (16, 15));
    let none = found(&Made::default());
    assert!(!none.figures.iter().any(|figure| figure.metric.starts_with("exits-per-")));
}

/// The warnings of a study with a gain of `gain` percent, whose programs that count exits take these shares of a tenth of
/// the CPUs with APICv off and on, in percent.
fn of_counting(gain: f64, cost: [f64; 2]) -> Vec<Warning> {
    let made =
        Made { workloads: vec!["pread"], percent: gain, scatter: 0.001, shared: 0.001, ..Made::default() };
    let mut collected = study(&made);
    for run in collected.runs.iter_mut().map(|stored| &mut stored.run) {
        let cost = cost[usize::from(run.cell.arm["apicv"] == "on")];
        for (name, value) in [("vcpu.cpu", 10.0), ("sampling.programs", cost / 10.0)] {
            let (unit, better, combine) = (Unit::Percent, Better::Neither, Combine::Single);
            run.host.push(Metric { name: name.to_owned(), unit, better, combine, value });
        }
    }
    analyse(&collected, false).unwrap().warnings
}

#[test]
fn arms_that_pay_unlike_shares_for_the_counting_of_their_exits_are_named() {
    let warnings = of_counting(1.5, [1.3, 0.0]);
    let [Warning::CountingDiffers { workload, arms, percent }] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    assert_eq!((workload.as_str(), arms), ("pread", &["apicv off".to_owned(), "apicv on".to_owned()]));
    assert!((percent[0] - 1.3).abs() < 1e-9 && percent[1] == 0.0, "{percent:?}");
    // More than a quarter of a small change, a small part of a large one, and as much as a change that would be reported.
    for (gain, cost, told) in [
        (1.5, [0.5, 0.0], true),
        (1.5, [1.3, 1.3], false),
        (8.0, [0.5, 0.0], false),
        (8.0, [1.3, 0.0], true),
        (0.0, [0.5, 0.0], false),
        (0.0, [1.3, 0.0], true),
    ] {
        assert_eq!(of_counting(gain, cost).len(), usize::from(told), "{gain} % with {cost:?}");
    }
}

#[test]
fn no_gain_is_bounded_instead_of_found() {
    let findings = found(&Made { percent: 0.0, ..Made::default() });
    assert_eq!(findings.verdict.judgement, Judgement::NoDifference, "{}", findings.verdict.sentence);
    assert!(
        findings.verdict.sentence.starts_with("No difference larger than "),
        "{}",
        findings.verdict.sentence
    );
}

/// A study with one number of guests, in which `change` may edit each throughput of `pread`, by block and arm.
fn of_two_workloads(made: Made, change: impl Fn(&mut Metric, u32, bool)) -> Collected {
    let mut collected = study(&Made { counts: vec![1], workloads: vec!["random-read", "pread"], ..made });
    let of_pread = collected.runs.iter_mut().map(|stored| &mut stored.run);
    for run in of_pread.filter(|run| run.cell.workload == "pread") {
        change(&mut run.guests[0][0], run.cell.block, run.cell.arm["apicv"] == "on");
    }
    collected
}

#[test]
fn what_has_too_few_repeats_is_neither_bounded_nor_called_equal() {
    let verdict = |percent: f64| {
        let made = Made { percent, ..Made::default() };
        let mut collected = of_two_workloads(made, |metric, _, is_on| {
            metric.value *= if is_on { 0.5 } else { 1.0 };
        });
        collected.runs.retain(|stored| stored.run.cell.workload != "pread" || stored.run.cell.block < 2);
        analyse(&collected, false).unwrap().verdict
    };
    let few = "The other main figure has too few repeats.";
    let none = verdict(0.0);
    assert_eq!(none.judgement, Judgement::NoDifference);
    assert!(none.sentence.contains("was seen in random-read throughput"), "{}", none.sentence);
    assert!(none.sentence.ends_with(few), "{}", none.sentence);
    let better = verdict(3.0);
    assert_eq!(better.judgement, Judgement::Better);
    assert!(better.sentence.ends_with(few), "{}", better.sentence);
}

#[test]
fn sizes_in_unlike_units_are_not_compared() {
    // The values are compared by difference, because some are not positive.
    let none = of_two_workloads(Made { percent: 0.0, ..Made::default() }, |metric, block, is_on| {
        metric.unit = Unit::Seconds;
        metric.value = if block % 4 == u32::from(is_on) { -0.1 } else { 0.1 };
    });
    let sentence = analyse(&none, false).unwrap().verdict.sentence;
    let bounds = sentence.strip_prefix("No difference larger than ").unwrap();
    let (ratio, rest) = bounds.split_once(" % or ").unwrap();
    let (difference, rest) = rest.split_once(' ').unwrap();
    assert_eq!(rest, "s was seen in any of 2 main figures.", "{sentence}");
    assert!([ratio, difference].iter().all(|bound| bound.parse::<f64>().is_ok()), "{sentence}");
    // In percent of the baseline, half a second is more than the other figure's 3 %.
    let better = of_two_workloads(Made::default(), |metric, block, is_on| {
        metric.unit = Unit::Seconds;
        metric.value = f64::from(u8::from(block > 0)) + if is_on { 0.5 } else { 0.0 };
    });
    let sentence = analyse(&better, false).unwrap().verdict.sentence;
    assert!(sentence.starts_with("apicv on raised pread throughput"), "{sentence}");
}

#[test]
fn arms_that_are_alike_show_the_rate_of_false_alarms() {
    let findings = found(&Made { is_aa: true, blocks: 8, ..Made::default() });
    assert_eq!(findings.verdict.judgement, Judgement::Alike);
    let alarms = findings.false_alarms.unwrap();
    assert_eq!(findings.multiplicity.made, 0);
    assert!(alarms.comparisons > 100 && alarms.below_percent < 15.0, "{alarms:?}");
    assert!(alarms.found <= alarms.below);
}

#[test]
fn two_repeats_say_nothing() {
    let findings = found(&Made { blocks: 2, ..Made::default() });
    assert_eq!(findings.verdict.judgement, Judgement::TooFewRepeats);
    assert!(findings.warnings.contains(&Warning::TooFewRepeats { blocks: 2 }), "{:?}", findings.warnings);
    let findings = found(&Made { blocks: 4, ..Made::default() });
    assert!(findings.warnings.contains(&Warning::NoPermutation { blocks: 4 }), "{:?}", findings.warnings);
}

#[test]
fn the_documentation_names_the_fewest_repeats_with_an_interval() {
    let text = include_str!("../../../../docs/experiment.md");
    let said = format!("with fewer than {} there is no interval", stats::MINIMUM_REPEATS);
    assert!(text.contains(&said), "{said} is not in docs/experiment.md");
}

#[test]
fn comparisons_are_counted_with_the_false_alarms_to_expect() {
    let findings = found(&Made::default());
    let counted = multiplicity::all(&findings.figures).filter(|one| one.change.is_some()).count();
    assert_eq!(findings.multiplicity.made, counted);
    assert!((findings.multiplicity.expected - counted as f64 * 0.05).abs() < 1e-9);
    assert!(findings.multiplicity.found_by_holm <= findings.multiplicity.found);
}

#[test]
fn a_host_that_changed_is_not_compared_with_itself() {
    let mut collected = study(&Made::default());
    collected.runs[20].run.fingerprint.kernel_release = Some("6.13.0".to_owned());
    let error = analyse(&collected, false).unwrap_err().to_string();
    assert!(error.contains("kernel_release (6.12.0-example or 6.13.0)"), "{error}");
    let findings = analyse(&collected, true).unwrap();
    assert!(
        findings
            .warnings
            .iter()
            .any(|warning| matches!(warning, Warning::Unlike { fields } if fields.len() == 1))
    );
    // Facts that differ with the arm are allowed: the factor changed them.
    assert!(findings.method.arm_facts.iter().any(|fact| fact.field == "modules.kvm_intel.enable_apicv"));
}

#[test]
fn a_guest_that_changed_is_an_objection_too() {
    let mut collected = study(&Made::default());
    collected.runs[20].run.guest_facts[0].insert("kernel".to_owned(), "6.1".to_owned());
    let Err(NotAnalysed::Unlike { fields }) = analyse(&collected, false) else { panic!("it was analysed") };
    assert_eq!(fields[0].field, "guest.0.kernel");
}

#[test]
fn failed_runs_are_listed_and_their_blocks_left_out() {
    let mut collected = study(&Made::default());
    let mut failed = collected.runs.remove(20);
    failed.run.failure = Some("iozone ended with status 1".to_owned());
    failed.folder = "failed/0020-0".to_owned();
    collected.failed.push(failed);
    let findings = analyse(&collected, false).unwrap();
    for expected in [
        Warning::Incomplete { runs: 143, planned: 144 },
        Warning::Failed { attempts: 1, lost: 1 },
        Warning::BrokenBlocks { blocks: 1 },
    ] {
        assert!(findings.warnings.contains(&expected), "{:?}", findings.warnings);
    }
    assert_eq!(findings.method.failed[0].why, "iozone ended with status 1");
    let repeats: Vec<usize> =
        findings.main().iter().map(|figure| figure.overall[0].change.unwrap().repeats).collect();
    assert_eq!(repeats.iter().filter(|&&repeats| repeats == 7).count(), 1, "{repeats:?}");
}

/// A study of one workload whose runs with APICv are of another session in the blocks for which `is_split` is true.
fn of_two_sessions(is_split: impl Fn(u32) -> bool) -> Findings {
    let mut collected = study(&Made { counts: vec![1, 2], workloads: vec!["pread"], ..Made::default() });
    for run in collected.runs.iter_mut().map(|stored| &mut stored.run) {
        run.session = u32::from(run.cell.arm["apicv"] == "on" && is_split(run.cell.block));
    }
    analyse(&collected, false).unwrap()
}

#[test]
fn runs_of_different_sessions_are_no_pairs() {
    let findings = of_two_sessions(|_| true);
    assert_eq!(findings.warnings, [Warning::SplitBlocks { blocks: 8 }]);
    for figure in &findings.figures {
        let mut all = figure.points.iter().flat_map(|point| &point.comparisons).chain(&figure.overall);
        assert!(all.all(|one| (one.change, one.finding) == (None, Finding::TooFew)), "{figure:?}");
    }
    let findings = of_two_sessions(|block| block == 3);
    assert_eq!(findings.warnings, [Warning::SplitBlocks { blocks: 1 }]);
    let throughput = figure(&findings, "pread", "throughput");
    let repeats = |one: &Comparison| one.change.unwrap().repeats;
    assert_eq!((repeats(&throughput.overall[0]), repeats(&throughput.points[1].comparisons[0])), (7, 7));
    // All runs of a block may be of any session.
    let mut collected = study(&Made::default());
    for run in collected.runs.iter_mut().map(|stored| &mut stored.run) {
        run.session = run.cell.block / 5;
    }
    let together = analyse(&collected, false).unwrap();
    assert_eq!((together.figures, together.warnings), (found(&Made::default()).figures, Vec::new()));
}

#[test]
fn without_runs_or_without_the_baseline_nothing_is_compared() {
    let mut collected = study(&Made::default());
    collected.runs.retain(|stored| stored.run.cell.arm["apicv"] == "on");
    let findings = analyse(&collected, false).unwrap();
    assert_eq!(findings.verdict.judgement, Judgement::Nothing);
    assert!(findings.warnings.contains(&Warning::NoBaseline));
    collected.runs.clear();
    assert!(matches!(analyse(&collected, false), Err(NotAnalysed::NoRuns { failed: 0, .. })));
}

#[test]
fn figures_that_are_no_number_are_left_out_and_named() {
    let mut collected = study(&Made::default());
    collected.runs[0].run.guests[0][0].value = f64::NAN;
    collected.runs[1].run.host[0].value = f64::INFINITY;
    let findings = analyse(&collected, false).unwrap();
    let named = findings
        .warnings
        .iter()
        .any(|warning| matches!(warning, Warning::NotNumbers { figures } if figures.len() == 2));
    assert!(named, "{:?}", findings.warnings);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The analysis succeeds for any values and any missing runs, and its numbers are finite.
    #[test]
    fn any_runs_have_an_answer(
        values in prop::collection::vec(prop_oneof![any::<f64>(), Just(0.0), Just(1e308), -1e3..1e3_f64], 40),
        kept in prop::collection::vec(any::<bool>(), 24),
        blocks in 1..5_u32,
    ) {
        let made = Made { blocks, counts: vec![1, 2], workloads: vec!["pread"], ..Made::default() };
        let mut collected = study(&made);
        let mut value = values.iter().cycle();
        for metric in collected.runs.iter_mut().flat_map(|stored| {
            stored.run.guests.iter_mut().flatten().chain(&mut stored.run.host)
        }) {
            metric.value = *value.next().unwrap();
        }
        let mut kept = kept.iter().cycle();
        collected.runs.retain(|_| *kept.next().unwrap());
        if let Ok(findings) = analyse(&collected, true) {
            prop_assert!(!findings.verdict.sentence.is_empty());
            let text = serde_json::to_string(&findings).unwrap();
            prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
            for one in multiplicity::all(&findings.figures) {
                prop_assert!(one.change.and_then(|change| change.p_value).is_none_or(|p| p > 0.0 && p <= 1.0));
            }
        }
    }
}

#[test]
fn where_the_baseline_has_no_such_number_of_guests_the_arm_that_is_most_like_it_is_in_its_place() {
    let findings = analyse(&of_two_kinds(), false).unwrap();
    let throughput = figure(&findings, "pread", "throughput");
    assert_eq!(throughput.points.len(), 2);
    for (point, kind) in throughput.points.iter().zip(["large", "small"]) {
        let [only] = &point.comparisons[..] else { panic!("{point:?}") };
        assert_eq!(findings.arms[only.arm].levels["apicv"], "on");
        assert_eq!(findings.arms[only.arm].levels["guests"], kind);
        let compared_with = &findings.arms[only.baseline].levels;
        assert_eq!((&*compared_with["apicv"], &*compared_with["guests"]), ("off", kind));
        assert!(only.change.is_some_and(|change| (change.estimate - 3.0).abs() < 2.0), "{only:?}");
    }
    assert_eq!(throughput.overall.len(), 2);
    let told: Vec<_> = findings
        .warnings
        .iter()
        .filter(|warning| matches!(warning, Warning::OtherBaseline { guests: 6, .. }))
        .map(ToString::to_string)
        .collect();
    assert!(told.len() == 1 && told[0].contains("small"), "{:?}", findings.warnings);
}
