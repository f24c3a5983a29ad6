use super::*;
use crate::analysis::analyse;
use crate::analysis::synthetic::{Made, study};
use crate::{Better, Combine, Metric, Unit};

fn findings(percent: f64, blocks: u32) -> Findings {
    let made = Made { percent, blocks, counts: vec![1], workloads: vec!["pread"], ..Made::default() };
    analyse(&study(&made), false).unwrap()
}

#[test]
fn a_change_stays_when_its_study_finds_it_better() {
    let ruling = |percent, blocks| judge(&findings(percent, blocks), &Rules::default()).0;
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
    let (ruling, judged) = judge(&analyse(&collected, false).unwrap(), &rules);
    assert_eq!(ruling, Ruling::Kept, "{judged:?}");
    assert_eq!((judged[0].metric.as_str(), judged[0].after), ("accesses.port", Some(0.0)));
}

#[test]
fn a_figure_that_is_named_decides_and_main_figures_may_not_get_worse() {
    let rules = Rules { judge: vec!["exits.total".to_owned()], ..Rules::default() };
    let (ruling, judged) = judge(&findings(0.0, 8), &rules);
    assert_eq!(ruling, Ruling::Kept, "{judged:?}");
    assert!(judged[0].decides && judged[0].metric == "exits.total" && judged[0].after < judged[0].before);
    assert_eq!(judge(&findings(-10.0, 8), &rules).0, Ruling::Mixed);
}
