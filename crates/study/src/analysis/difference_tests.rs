use super::super::synthetic::{Made, study};
use super::*;
use crate::{Combine, Metric};

/// The comparison of one result on each side.
fn difference(
    before: &Collected,
    after: &Collected,
    allow_unlike: bool,
) -> Result<StudyDifference, NotCompared> {
    super::difference(std::slice::from_ref(before), std::slice::from_ref(after), allow_unlike)
}

fn two() -> (Collected, Collected) {
    let before = study(&Made { shared: 0.01, ..Made::default() });
    let mut after = study(&Made { shared: 0.01, seed: 2, ..Made::default() });
    after.facts.target = "ssh://other".to_owned();
    for stored in &mut after.runs {
        stored.run.fingerprint.kernel_release = Some("6.18.0-example".to_owned());
        for metric in stored.run.guests.iter_mut().flatten().filter(|metric| metric.name == "throughput") {
            metric.value *= 1.1;
        }
    }
    (before, after)
}

#[test]
fn a_faster_host_is_seen_and_the_factor_does_the_same_on_both() {
    let (before, after) = two();
    let found = difference(&before, &after, false).unwrap();
    assert_eq!(
        found.unlike.iter().map(|unlike| unlike.field.as_str()).collect::<Vec<_>>(),
        ["kernel_release"]
    );
    let rows: Vec<_> = found.rows.iter().filter(|row| row.figure.metric == "throughput").collect();
    assert_eq!(rows.len(), 3 * 3 * 2);
    for row in rows {
        let change = row.change.unwrap();
        assert!((change.estimate - 10.0).abs() < 4.0, "{row:?}");
        assert_eq!((row.finding, change.is_paired), (Finding::Raised, false));
    }
    let throughput = found.effects.iter().filter(|row| row.figure.metric == "throughput");
    let differ = throughput.clone().filter(|row| row.finding.is_found()).count();
    assert!(differ <= 1, "{differ} of {}", throughput.count());
    assert!(found.only_one.is_empty());
}

#[test]
fn comparisons_are_counted_as_in_reports() {
    let (mut before, mut after) = two();
    for run in before.runs.iter_mut().chain(&mut after.runs).map(|stored| &mut stored.run) {
        for guest in &mut run.guests {
            let (name, unit) = ("work.events".to_owned(), Unit::Count);
            guest.push(Metric { name, unit, better: Better::Neither, combine: Combine::Sum, value: 500.0 });
        }
    }
    let found = difference(&before, &after, false).unwrap();
    let is_counted = |figure: &ComparedFigure| is_of_its_own(&figure.metric);
    let of_work = found.rows.iter().filter(|row| !is_counted(&row.figure)).count();
    let has_p = |change: Option<Contrast>| change.is_some_and(|change| change.p_value.is_some());
    let own = found.rows.iter().filter(|row| is_counted(&row.figure) && has_p(row.change)).count();
    let effects = found.effects.iter().filter(|row| is_counted(&row.figure) && has_p(row.change)).count();
    let made = found.multiplicity;
    assert_eq!((made.made, of_work > 0), (own + effects, true));
    // All throughputs are 10 % higher after than before, which no number of comparisons explains.
    assert!((18..=made.found).contains(&made.found_by_holm), "{made:?}");
    // Effects of an arm that is alike are chance alone.
    for side in [&mut before, &mut after] {
        let levels = &mut side.facts.factors[0].levels;
        levels[1].settings = levels[0].settings.clone();
    }
    let alike = difference(&before, &after, false).unwrap();
    assert_eq!((alike.multiplicity.made, alike.effects.len()), (own, found.effects.len()));
}

#[test]
fn other_plans_are_refused() {
    let (before, mut after) = two();
    after.facts.workloads[0].settings = "{}".to_owned();
    let error = difference(&before, &after, false).unwrap_err().to_string();
    assert!(error.contains("their workloads or the settings of these"), "{error}");
    after.facts.name = "other".to_owned();
    assert!(
        difference(&before, &after, false)
            .unwrap_err()
            .to_string()
            .contains("\"iozone-apicv\" and \"other\"")
    );
}

#[test]
fn guests_with_other_settings_are_another_plan_and_names_of_the_host_are_listed() {
    let (mut before, mut after) = two();
    let guests = |vcpus: u32, bus: &str, pin: &str| {
        format!(r#"{{"kind":"qemu","vcpus":{vcpus},"disk":{{"bus":"{bus}"}},"pin":[{pin}]}}"#)
    };
    before.facts.guests = guests(2, "virtio-blk", "2,3");
    after.facts.guests = guests(4, "ide", "2,3");
    let error = difference(&before, &after, false).unwrap_err().to_string();
    let why = r#"the settings of their guests: disk.bus was "virtio-blk", is "ide"; vcpus was 2, is 4"#;
    assert!(error.contains(why), "{error}");
    after.facts.guests = guests(2, "virtio-blk", "2,5");
    let unlike = difference(&before, &after, false).unwrap().unlike;
    let pin = Unlike { field: "guests.pin[1]".to_owned(), values: vec![Some("3".into()), Some("5".into())] };
    assert_eq!(unlike.last(), Some(&pin));
}

#[test]
fn unlike_ways_of_measuring_are_listed() {
    let (mut before, mut after) = two();
    let listed = |before: &Collected, after: &Collected| -> Vec<String> {
        let unlike = difference(before, after, false).unwrap().unlike;
        unlike.iter().map(ToString::to_string).collect()
    };
    before.facts.samples = r#"{"accesses":false,"interval":"1s"}"#.to_owned();
    after.facts.samples = r#"{"accesses":true,"interval":"1s"}"#.to_owned();
    after.facts.version = "0.3.0".to_owned();
    after.facts.warm_up = 0;
    assert_eq!(
        listed(&before, &after)[1..],
        ["exitless (0.1.0 or 0.3.0)", "order.warm_up (1 or 0)", "samples.accesses (false or true)"]
    );
}

#[test]
fn a_comparison_says_that_each_side_is_one_session() {
    let (before, after) = two();
    let found = difference(&before, &after, false).unwrap();
    assert_eq!(found.doubts, [Warning::BetweenSessions]);
}

/// Results of boots by whose factors their throughputs differ. Runs of one boot scatter by 0.3 %.
fn boots(factors: [f64; 3], seed: u64) -> Vec<Collected> {
    let boot = |(seed, factor): (u64, f64)| {
        let (counts, workloads) = (vec![1], vec!["pread"]);
        let mut collected =
            study(&Made { counts, workloads, scatter: 0.003, shared: 0.0, seed, ..Made::default() });
        for metric in collected.runs.iter_mut().flat_map(|stored| stored.run.guests.iter_mut().flatten()) {
            if metric.name == "throughput" {
                metric.value *= factor;
            }
        }
        collected
    };
    (seed..).zip(factors).map(boot).collect()
}

/// The throughput of both arms.
fn throughput(found: &StudyDifference) -> [&DifferenceRow; 2] {
    let rows: Vec<_> = found.rows.iter().filter(|row| row.figure.metric == "throughput").collect();
    rows.try_into().unwrap()
}

#[test]
fn differences_between_boots_are_in_the_intervals_of_three_results_a_side() {
    let before = boots([1.0, 1.02, 0.98], 1);
    let of = |factor: f64| boots([1.02 * factor, 0.98 * factor, factor], 11);
    // Two boots of the same differ, and their blocks are no repeats of that.
    let of_boots = difference(&before[0], &of(1.0)[0], false).unwrap();
    assert_eq!((of_boots.results, &of_boots.doubts[..]), ([1, 1], &[Warning::BetweenSessions][..]));
    let three = super::difference(&before, &of(1.0), false).unwrap();
    assert_eq!((three.results, three.runs, three.doubts.len()), ([3, 3], [48, 48], 0));
    for (one, three) in throughput(&of_boots).into_iter().zip(throughput(&three)) {
        assert_eq!((one.finding, one.change.unwrap().repeats), (Finding::Raised, 8), "{one:?}");
        assert_eq!((three.finding, three.change.unwrap().repeats), (Finding::NotSeen, 3), "{three:?}");
        let width = |row: &DifferenceRow| row.change.unwrap().interval.unwrap().width();
        assert!(width(three) > 5.0 * width(one), "{three:?}, {one:?}");
    }
    for effect in three.effects.iter().filter(|effect| effect.figure.metric == "throughput") {
        assert_eq!(effect.effects.map(|effect| effect.unwrap().repeats), [3, 3], "{effect:?}");
        assert_eq!(effect.change.unwrap().repeats, 3, "{effect:?}");
    }
    for row in throughput(&super::difference(&before, &of(1.1), false).unwrap()) {
        assert_eq!(row.finding, Finding::Raised, "{row:?}");
        assert!((row.change.unwrap().estimate - 10.0).abs() < 1.0, "{row:?}");
        assert!((row.levels[1] / row.levels[0] - 1.1).abs() < 0.01, "{row:?}");
    }
}

#[test]
fn with_two_results_on_a_side_the_blocks_are_the_repeats() {
    let (before, after) = (boots([1.0; 3], 1), boots([1.0; 3], 11));
    let found = super::difference(&before[..2], &after, false).unwrap();
    assert_eq!((found.results, &found.doubts[..]), ([2, 3], &[Warning::BetweenSessions][..]));
    for row in throughput(&found) {
        assert_eq!(row.change.unwrap().repeats, 16, "{row:?}");
    }
}

#[test]
fn a_result_without_a_cell_is_no_repeat_of_it() {
    let (before, mut after) = (boots([1.0; 3], 1), boots([1.0; 3], 11));
    after[1].runs.retain(|stored| stored.run.cell.arm["apicv"] == "off");
    let found = super::difference(&before, &after, false).unwrap();
    let [off, on] = throughput(&found);
    assert_eq!((off.change.unwrap().repeats, on.change.unwrap().repeats), (3, 2));
    assert_eq!(on.finding, Finding::TooFew, "{on:?}");
    let of_throughput = |effect: &&EffectRow| effect.figure.metric == "throughput";
    assert_eq!(found.effects.iter().find(of_throughput).unwrap().finding, Finding::TooFew);
}

#[test]
fn events_of_a_result_are_added_up() {
    let [before, after] = [20.0, 0.0].map(|rate| [1.0; 3].map(|seconds| with_accesses(rate, seconds)));
    let found = super::difference(&before, &after, false).unwrap();
    let row = found.rows.iter().find(|row| row.figure.metric == "accesses.port").unwrap();
    let change = row.change.unwrap();
    assert_eq!((row.finding, change.repeats, change.scale), (Finding::Lowered, 3, Scale::Difference));
    assert!((change.estimate + 20.0).abs() < 1e-9 && (row.levels[0] - 20.0).abs() < 1e-9, "{row:?}");
    let effect = found.effects.iter().find(|row| row.figure.metric == "accesses.port").unwrap();
    assert_eq!((effect.finding, effect.effects[0].unwrap().repeats), (Finding::Raised, 3), "{effect:?}");
}

#[test]
fn results_of_one_side_are_of_like_hosts_and_measured_alike() {
    let (before, mut after) = (boots([1.0; 3], 1), boots([1.0; 3], 11));
    after[1].facts.version = "0.3.0".to_owned();
    after[2].facts.target = "ssh://other".to_owned();
    for stored in &mut after[2].runs {
        stored.run.fingerprint.kernel_release = Some("6.18.0-example".to_owned());
    }
    let refused = super::difference(&before, &after, false).unwrap_err().to_string();
    let differing = [
        "(after)",
        "kernel_release (6.12.0-example or 6.18.0-example)",
        "exitless (0.1.0 or 0.3.0)",
        "target (local or ssh://other)",
        "--allow-unlike compares them anyway",
    ];
    assert!(differing.iter().all(|one| refused.contains(one)), "{refused}");
    let found = super::difference(&before, &after, true).unwrap();
    assert_eq!(found.warnings[0], []);
    assert!(
        matches!(&found.warnings[1][..], [Warning::Unlike { fields }] if fields.len() == 3),
        "{:?}",
        found.warnings
    );
}

#[test]
fn a_result_that_cannot_be_compared_is_named() {
    let (before, mut after) = (boots([1.0; 3], 1), boots([1.0; 3], 11));
    let refused = |after: &[Collected]| super::difference(&before, after, false).unwrap_err().to_string();
    after[2].runs.clear();
    assert!(refused(&after).contains("on local (number 3 after) has no valid run"), "{}", refused(&after));
    after[1].facts.workloads[0].settings = "{}".to_owned();
    let told = refused(&after);
    assert!(told.contains("different plans, the first and number 2 after: their workloads"), "{told}");
    assert!(refused(&[]).contains("no result after"), "{}", refused(&[]));
}

#[test]
fn what_one_study_lacks_is_named() {
    let (before, mut after) = two();
    after.runs.retain(|stored| stored.run.cell.guests != 4 || stored.run.cell.workload != "pread");
    let found = difference(&before, &after, false).unwrap();
    assert_eq!(
        found.only_one,
        ["apicv off, 4 guests, pread (before only)", "apicv on, 4 guests, pread (before only)"]
    );
    after.runs.clear();
    assert!(matches!(difference(&before, &after, false), Err(NotCompared::NoRuns { .. })));
}

/// A study of three blocks with a rate of accesses in the baseline and none in the arm, each run sampled for `seconds`.
fn with_accesses(without_arm: f64, seconds: f64) -> Collected {
    let made = Made { blocks: 3, counts: vec![1], workloads: vec!["pread"], ..Made::default() };
    let mut collected = study(&made);
    for run in collected.runs.iter_mut().map(|stored| &mut stored.run) {
        let (name, unit) = ("accesses.port".to_owned(), Unit::PerSecond);
        let (better, combine) = (Better::Lower, Combine::Single);
        let value = if run.cell.arm["apicv"] == "on" { 0.0 } else { without_arm };
        run.host.push(Metric { name, unit, better, combine, value });
        run.sampled = Some(seconds);
    }
    collected
}

#[test]
fn effects_of_few_events_differ_no_surer_than_their_number() {
    let effect = |seconds: f64| {
        let found = difference(&with_accesses(1.0, seconds), &with_accesses(0.0, seconds), false).unwrap();
        found.effects.into_iter().find(|row| row.figure.metric == "accesses.port").unwrap()
    };
    // The rates do not scatter, but one event in a run may be chance.
    let few = effect(1.0);
    assert_eq!(few.finding, Finding::NotSeen, "{few:?}");
    assert!(few.change.unwrap().interval.unwrap().holds_zero(), "{few:?}");
    // The effects are the same as in reports.
    let report = super::super::analyse(&with_accesses(1.0, 1.0), false).unwrap();
    let figure = report.figures.iter().find(|figure| figure.metric == "accesses.port").unwrap();
    assert_eq!(few.effects[0], figure.points[0].comparisons[0].change);
    let many = effect(60.0);
    assert_eq!(many.finding, Finding::Raised, "{many:?}");
}

/// A study of six blocks whose runs have a total of exits and those of one reason.
fn with_exits(reason: &str) -> Collected {
    let mut collected =
        study(&Made { blocks: 6, counts: vec![1], workloads: vec!["pread"], ..Made::default() });
    for run in collected.runs.iter_mut().map(|stored| &mut stored.run) {
        run.host.retain(|metric| !metric.name.starts_with("exits."));
        for name in ["exits.total", &format!("exits.{reason}")] {
            let (name, unit) = (name.to_owned(), Unit::PerSecond);
            let (better, combine) = (Better::Lower, Combine::Single);
            run.host.push(Metric { name, unit, better, combine, value: 400.0 });
        }
    }
    collected
}

#[test]
fn a_reason_that_only_one_result_has_is_raised_or_lowered() {
    let found = difference(&with_exits("A"), &with_exits("B"), false).unwrap();
    for (metric, finding, means) in
        [("exits.A", Finding::Lowered, [400.0, 0.0]), ("exits.B", Finding::Raised, [0.0, 400.0])]
    {
        let rows: Vec<_> = found.rows.iter().filter(|row| row.figure.metric == metric).collect();
        assert_eq!(rows.len(), 2, "an arm each");
        assert!(rows.iter().all(|row| (row.finding, row.means) == (finding, means)), "{rows:?}");
    }
    assert_eq!(found.only_one, Vec::<String>::new());
}

#[test]
fn a_figure_that_one_result_lacks_is_named() {
    let (before, mut after) = (with_exits("A"), with_exits("A"));
    for run in after.runs.iter_mut().map(|stored| &mut stored.run) {
        run.host.retain(|metric| metric.name != "cpu.busy" && !metric.name.starts_with("exits."));
        if run.cell.arm["apicv"] == "on" {
            run.host.retain(|metric| metric.name != "cpu.iowait");
        }
    }
    let found = difference(&before, &after, false).unwrap();
    assert_eq!(
        found.only_one,
        [
            "CPU busy during pread (before only)",
            "CPU iowait during pread, apicv on, 1 guest (before only)",
            "VM exits in all during pread (before only)",
            "VM exits A during pread (before only)",
        ]
    );
}

#[test]
fn runs_of_unlike_hosts_in_one_arm_are_refused_unless_that_is_asked_for() {
    let (before, mut after) = two();
    for stored in after.runs.iter_mut().step_by(5) {
        stored.run.fingerprint.kernel_release = Some("6.19.0-example".to_owned());
    }
    let refused = difference(&before, &after, false).unwrap_err().to_string();
    assert!(refused.contains("ssh://other") && refused.contains("kernel_release ("), "{refused}");
    assert!(refused.ends_with("--allow-unlike compares them anyway"), "{refused}");
    let found = difference(&before, &after, true).unwrap();
    assert_eq!(found.warnings[0], []);
    assert!(
        matches!(&found.warnings[1][..], [Warning::Unlike { fields }] if fields[0].field == "kernel_release")
    );
}

#[test]
fn the_doubts_about_each_result_are_those_of_its_report() {
    let (mut before, mut after) = two();
    before.facts.emulated = Some("Bochs".to_owned());
    let lost = "100 VM exits were lost".to_owned();
    after.runs[3].run.warnings.push(lost.clone());
    after.runs[4].run.host[0].value = f64::NAN;
    let found = difference(&before, &after, false).unwrap();
    assert_eq!(found.warnings[0], [Warning::Emulated { emulator: "Bochs".to_owned() }]);
    assert!(
        matches!(&found.warnings[1][..], [Warning::NotNumbers { .. }, Warning::OfRuns { text, runs: 1 }] if *text == lost),
        "{:?}",
        found.warnings[1]
    );
    for (side, told) in [before, after].iter().zip(&found.warnings) {
        let report = super::super::analyse(side, false).unwrap();
        assert!(told.iter().all(|one| report.warnings.contains(one)), "{:?}", report.warnings);
    }
}

#[test]
fn facts_of_an_arm_are_no_difference_between_hosts_whatever_ran_first() {
    let (before, mut after) = two();
    let first = before.runs[0].run.cell.arm.clone();
    // The same with runs of more guests first: runs with fewer guests have fewer facts.
    after
        .runs
        .sort_by_key(|stored| (stored.run.cell.arm == first, std::cmp::Reverse(stored.run.cell.guests)));
    assert_ne!(after.runs[0].run.cell.arm, first);
    assert_ne!(after.runs[0].run.fingerprint.modules, before.runs[0].run.fingerprint.modules);
    let unlike = difference(&before, &after, false).unwrap().unlike;
    assert_eq!(unlike.iter().map(|unlike| unlike.field.as_str()).collect::<Vec<_>>(), ["kernel_release"]);
}

#[test]
fn without_the_baseline_no_effect_is_compared() {
    let three = || {
        let mut collected = study(&Made { counts: vec![1], workloads: vec!["pread"], ..Made::default() });
        let level =
            |name: &str| super::super::LevelFacts { name: name.to_owned(), settings: name.to_owned() };
        collected.facts.factors[0].levels.insert(0, level("default"));
        collected.facts.factors[0].baseline = "default".to_owned();
        collected
    };
    let found = difference(&three(), &three(), false).unwrap();
    assert!(!found.rows.is_empty() && found.effects.is_empty(), "{:?}", found.effects);
    assert_eq!(found.warnings, [[Warning::NoBaseline], [Warning::NoBaseline]]);
}

#[test]
fn an_effect_is_that_against_the_arm_which_the_report_compares_with() {
    let both = super::super::synthetic::of_two_kinds();
    let found = difference(&both, &both, false).unwrap();
    let report = super::super::analyse(&both, false).unwrap();
    let figure = report.figures.iter().find(|figure| figure.metric == "throughput").unwrap();
    for point in &figure.points {
        let is_of_point = |row: &&EffectRow| {
            (&row.figure.workload, &row.figure.metric, row.figure.guests)
                == (&figure.workload, &figure.metric, point.guests)
        };
        let [effect] = found.effects.iter().filter(is_of_point).collect::<Vec<_>>()[..] else { panic!() };
        let comparison = &point.comparisons[0];
        assert_eq!((effect.arm, effect.baseline), (comparison.arm, comparison.baseline));
        assert_eq!(effect.effects, [comparison.change; 2]);
    }
}
