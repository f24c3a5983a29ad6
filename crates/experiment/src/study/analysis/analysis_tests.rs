use proptest::prelude::*;

use super::synthetic::{Made, study};
use super::*;

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
    // What goes with the arm is no objection: the factor changed it.
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

#[test]
fn findings_come_back_from_json_as_they_were() {
    let findings = found(&Made::default());
    let text = serde_json::to_string(&findings).unwrap();
    assert_eq!(serde_json::from_str::<Findings>(&text).unwrap(), findings);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the values are and whichever runs are missing, there is an answer without nonsense in it.
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

/// Guests of a kind for each number of them: one large, six small.
fn of_two_kinds() -> Collected {
    let mut collected = study(&Made { counts: vec![1, 6], ..Made::default() });
    let level = |name: &str| LevelFacts { name: name.to_owned(), settings: format!("{{\"{name}\":1}}") };
    collected.facts.factors.push(FactorFacts {
        name: "guests".to_owned(),
        baseline: "large".to_owned(),
        levels: vec![level("large"), level("small")],
    });
    for stored in &mut collected.runs {
        let kind = if stored.run.cell.guests == 1 { "large" } else { "small" };
        stored.run.cell.arm.insert("guests".to_owned(), kind.to_owned());
    }
    collected
}

#[test]
fn where_the_baseline_has_no_such_number_of_guests_the_arm_that_is_most_like_it_is_in_its_place() {
    let findings = analyse(&of_two_kinds(), false).unwrap();
    let throughput = figure(&findings, "pread", "throughput");
    for (point, kind) in throughput.points.iter().zip(["large", "small"]) {
        let [only] = &point.comparisons[..] else { panic!("{point:?}") };
        assert_eq!(findings.arms[only.arm].levels["apicv"], "on");
        assert_eq!(findings.arms[only.arm].levels["guests"], kind);
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
