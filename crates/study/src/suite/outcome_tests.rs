use std::collections::BTreeMap;

use super::*;
use crate::analysis::synthetic::{Made, study};

fn published(metric: &str, published: &[f64]) -> Published {
    Published {
        figure: metric.to_owned(),
        workload: "pread".to_owned(),
        metric: metric.to_owned(),
        guests: None,
        arm: BTreeMap::new(),
        published: published.to_vec(),
    }
}

fn suite(figures: Vec<Published>, against: Option<&str>) -> Suite {
    let one = |name: &str, against: Option<&str>, figures| SuiteStudy {
        name: name.to_owned(),
        plan: "iozone-apicv".to_owned(),
        target: "local".to_owned(),
        repeats: None,
        guests: toml::Table::new(),
        until: None,
        against: against.map(str::to_owned),
        source: String::new(),
        setup: String::new(),
        differs: String::new(),
        figures,
    };
    let studies = match against {
        None => vec![one("after", None, figures)],
        Some(other) => vec![one(other, None, Vec::new()), one("after", against, figures)],
    };
    Suite { name: "small".to_owned(), title: "Small".to_owned(), studies }
}

fn folder(made: &[(&str, Made)]) -> SuiteFolder {
    made.iter().map(|(name, made)| ((*name).to_owned(), Ok(MadeStudy::new(study(made), false)))).collect()
}

/// The warnings about the comparison itself.
fn of_comparison(against: Option<&str>) -> Vec<Warning> {
    against.into_iter().map(|_| Warning::BetweenSessions).collect()
}

fn agreements(outcome: &SuiteOutcome) -> Vec<Option<Agreement>> {
    outcome.studies.last().unwrap().figures.iter().map(|figure| figure.agreement).collect()
}

#[test]
fn a_measured_change_is_held_against_the_published_one() {
    // In the synthetic study throughput rises by 3 %, and exits for interrupt windows disappear.
    let figures = vec![
        published("throughput", &[3.1]),
        published("throughput", &[0.5, 2.9]),
        published("throughput", &[40.0]),
        published("throughput", &[-20.0]),
        published("throughput", &[0.0]),
        published("throughput", &[-1.0, 0.0]),
        published("throughput", &[]),
        published("exits.INTERRUPT_WINDOW", &[-100.0]),
        published("exits.nothing", &[-100.0]),
        Published { guests: Some(4), ..published("throughput", &[3.0]) },
        Published { guests: Some(3), ..published("throughput", &[3.0]) },
    ];
    let outcome = outcome(&suite(figures, None), &folder(&[("after", Made::default())]));
    assert_eq!(
        agreements(&outcome),
        [
            Some(Agreement::Agrees),
            Some(Agreement::Agrees),
            Some(Agreement::SameSign),
            Some(Agreement::OtherSign),
            Some(Agreement::OnlyHere),
            Some(Agreement::OnlyHere),
            None,
            Some(Agreement::Agrees),
            None,
            Some(Agreement::Agrees),
            None
        ]
    );
    let figures = &outcome.studies[0].figures;
    let windows = figures[7].measured.unwrap();
    assert!(
        (windows.change + 100.0).abs() < 1e-9 && !windows.in_points && windows.levels[1] == 0.0,
        "{windows:?}"
    );
    let ends = windows.interval.unwrap();
    assert!(ends.low <= -100.0 && -100.0 <= ends.high && ends.high < 0.0, "{ends:?}");
    assert_eq!(figures[0].measured.unwrap().repeats, 8);
    assert_eq!(figures[8].measured, None);
}

#[test]
fn an_interval_that_holds_no_change_as_well_supports_no_publication() {
    let of = |low: f64, high: f64, published: &[f64]| {
        let measured = Measured {
            unit: Unit::BytesPerSecond,
            levels: [1.0; 2],
            in_points: false,
            change: f64::midpoint(low, high),
            interval: Some(Interval { low, high }),
            repeats: 3,
        };
        agreement(published, &measured).unwrap()
    };
    assert_eq!(of(-40.0, 60.0, &[15.0]), Agreement::Open);
    assert_eq!(of(-5.0, 5.0, &[15.0]), Agreement::NotSeen);
    assert_eq!(of(2.0, 20.0, &[15.0]), Agreement::Agrees);
    // A publication of no change is supported by an interval that holds it.
    assert_eq!(of(-1.0, 1.0, &[0.0]), Agreement::Agrees);
    assert_eq!(of(-5.0, 2.6, &[0.0, 8.5]), Agreement::Agrees);
}

#[test]
fn percentages_are_held_against_points() {
    let figures = vec![published("cpu.iowait", &[-0.68])];
    let outcome = outcome(&suite(figures, None), &folder(&[("after", Made::default())]));
    let measured = outcome.studies[0].figures[0].measured.unwrap();
    assert!(measured.in_points && measured.change.abs() < 2.0, "{measured:?}");
}

#[test]
fn two_boots_are_compared_with_each_other() {
    let raised = |seed, percent| Made { percent, seed, shared: 0.001, scatter: 0.001, ..Made::default() };
    let arm = BTreeMap::from([("apicv".to_owned(), "on".to_owned())]);
    let figures = vec![Published { guests: Some(2), arm, ..published("throughput", &[20.0]) }];
    let suite = suite(figures, Some("before"));
    let both = folder(&[("before", raised(1, 0.0)), ("after", raised(2, 20.0))]);
    let outcome_of_both = outcome(&suite, &both);
    let measured = outcome_of_both.studies[1].figures[0].measured.unwrap();
    assert!((measured.change - 20.0).abs() < 1.0, "{measured:?}");
    assert_eq!(agreements(&outcome_of_both), [Some(Agreement::Agrees)]);
    let one = folder(&[("after", raised(2, 20.0))]);
    let why = outcome(&suite, &one).studies[1].why_not.clone();
    assert_eq!(why.as_deref(), Some("before, with which it is compared, was not made yet"));
}

#[test]
fn too_few_repeats_and_missing_studies_are_told() {
    let figures = || vec![published("throughput", &[3.0])];
    let few = folder(&[("after", Made { blocks: 2, ..Made::default() })]);
    assert_eq!(agreements(&outcome(&suite(figures(), None), &few)), [Some(Agreement::TooFew)]);
    let none = outcome(&suite(figures(), None), &SuiteFolder::new());
    assert_eq!((none.studies[0].runs, none.studies[0].planned), (0, 0));
    assert_eq!(none.studies[0].why_not.as_deref(), Some("it was not made yet"));
    let mut broken = SuiteFolder::new();
    broken.insert("after".to_owned(), Err("study.json ends early".to_owned()));
    assert_eq!(
        outcome(&suite(figures(), None), &broken).studies[0].why_not.as_deref(),
        Some("study.json ends early")
    );
}

#[test]
fn runs_of_unlike_hosts_are_compared_on_request_and_the_outcome_says_so() {
    let mut collected = study(&Made::default());
    collected.runs[0].run.fingerprint.kernel_release = Some("6.19.0-example".to_owned());
    let made = |allow: bool| {
        let folder = [("before", study(&Made::default())), ("after", collected.clone())];
        folder.map(|(name, one)| (name.to_owned(), Ok(MadeStudy::new(one, allow)))).into()
    };
    let arm = BTreeMap::from([("apicv".to_owned(), "on".to_owned())]);
    for against in [None, Some("before")] {
        let figures =
            vec![Published { guests: Some(1), arm: arm.clone(), ..published("throughput", &[3.0]) }];
        let suite = suite(figures, against);
        let refused = outcome(&suite, &made(false)).studies.pop().unwrap();
        let why = refused.why_not.unwrap();
        assert!(why.contains("kernel_release") && why.contains("--allow-unlike"), "{why}");
        let allowed = outcome(&suite, &made(true)).studies.pop().unwrap();
        assert!(allowed.why_not.is_none() && allowed.figures[0].measured.is_some());
        let [Warning::Unlike { .. }, rest @ ..] = &allowed.warnings[..] else {
            panic!("{:?}", allowed.warnings);
        };
        assert_eq!(rest, of_comparison(against));
    }
}

#[test]
fn warnings_of_the_runs_are_those_of_the_outcome() {
    let mut collected = study(&Made::default());
    collected.runs[2].run.warnings.push("100 VM exits were lost".to_owned());
    collected.runs[3].run.warnings.push(format!("{NO_FREQUENCIES}: there is no cpufreq"));
    for against in [None, Some("before")] {
        let folder = [("before", study(&Made::default())), ("after", collected.clone())]
            .map(|(name, one)| (name.to_owned(), Ok(MadeStudy::new(one, false))));
        let after = outcome(&suite(Vec::new(), against), &folder.into()).studies.pop().unwrap();
        let [Warning::OfRuns { runs: 1, .. }, rest @ ..] = &after.warnings[..] else {
            panic!("{:?}", after.warnings);
        };
        assert_eq!(rest, of_comparison(against));
    }
}
