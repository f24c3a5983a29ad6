use super::*;
use crate::analysis::analyse;
use crate::analysis::synthetic::{Made, study};
use crate::{Better, Combine, Metric, Unit};
use stats::{Contrast, Interval, percent};

fn findings(percent: f64, blocks: u32) -> Findings {
    let made = Made { percent, blocks, counts: vec![1], workloads: vec!["pread"], ..Made::default() };
    analyse(&study(&made), false).unwrap()
}

#[test]
fn a_change_stays_when_its_study_finds_it_better() {
    let ruling = |percent, blocks| judge(&findings(percent, blocks), &Rules::default(), 1).0;
    assert_eq!(ruling(10.0, 8), Ruling::Kept);
    assert_eq!(ruling(-10.0, 8), Ruling::Worse);
    assert_eq!(ruling(0.0, 8), Ruling::NoDifference);
    assert_eq!(ruling(10.0, 2), Ruling::TooFew);
}

/// The first step of `tune-old-guest-lab`.
#[test]
fn a_change_after_which_nothing_is_left_is_kept() {
    let made = Made { percent: 0.0, blocks: 3, counts: vec![1], workloads: vec!["pread"], ..Made::default() };
    let mut collected = study(&made);
    for stored in &mut collected.runs {
        let run = &mut stored.run;
        let before = [145.0, 143.0, 61.0][run.cell.block as usize];
        run.host.push(Metric {
            name: "accesses.port".to_owned(),
            unit: Unit::PerSecond,
            better: Better::Lower,
            combine: Combine::Single,
            value: if run.cell.arm["apicv"] == "on" { 0.0 } else { before },
        });
    }
    let rules = Rules { judge: vec!["accesses.port".to_owned()], ..Rules::default() };
    let (ruling, judged) = judge(&analyse(&collected, false).unwrap(), &rules, 2);
    assert_eq!(ruling, Ruling::Kept, "{judged:?}");
    assert_eq!((judged[0].metric.as_str(), judged[0].after), ("accesses.port", Some(0.0)));
}

#[test]
fn a_figure_that_is_named_decides_and_main_figures_may_not_get_worse() {
    let rules = Rules { judge: vec!["exits.total".to_owned()], ..Rules::default() };
    let (ruling, judged) = judge(&findings(0.0, 8), &rules, 1);
    assert_eq!(ruling, Ruling::Kept, "{judged:?}");
    assert!(judged[0].decides && judged[0].metric == "exits.total" && judged[0].after < judged[0].before);
    assert_eq!(judge(&findings(-10.0, 8), &rules, 1).0, Ruling::Mixed);
}

#[test]
fn a_figure_must_be_certain_among_all_that_decide() {
    let ruling = |workloads: Vec<&'static str>, halves: f64, changes| {
        let made = Made { percent: 0.0, counts: vec![1], workloads, ..Made::default() };
        let mut findings = analyse(&study(&made), false).unwrap();
        // A change of 2 % that is this multiple of half of its interval.
        let interval = Interval { low: percent(0.02 - 0.02 / halves), high: percent(0.02 + 0.02 / halves) };
        for figure in &mut findings.figures {
            let is_better = figure.metric == "throughput" && figure.workload == "pread";
            for comparison in figure.points.iter_mut().flat_map(|point| &mut point.comparisons) {
                comparison.finding = if is_better { Finding::Raised } else { Finding::NotSeen };
                comparison.change = comparison.change.map(|change| Contrast {
                    estimate: percent(0.02),
                    interval: Some(interval),
                    ..change
                });
            }
        }
        judge(&findings, &Rules::default(), changes).0
    };
    let four = || vec!["random-read", "random-write", "pread", "fwrite"];
    // With 8 blocks p is 0.030 and 0.021.
    assert_eq!(ruling(vec!["pread"], 1.148, 1), Ruling::Kept);
    assert_eq!(ruling(four(), 1.148, 1), Ruling::Uncertain);
    assert_eq!(ruling(four(), 1.25, 1), Ruling::Kept);
    assert_eq!(ruling(vec!["pread"], 1.25, 7), Ruling::Uncertain);
}
