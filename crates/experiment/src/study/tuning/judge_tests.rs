use super::*;
use crate::study::analysis::analyse;
use crate::study::analysis::synthetic::{Made, study};

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

#[test]
fn a_figure_that_is_named_decides_and_main_figures_may_not_get_worse() {
    let rules = Rules { judge: vec!["exits.total".to_owned()], ..Rules::default() };
    let (ruling, judged) = judge(&findings(0.0, 8), &rules);
    assert_eq!(ruling, Ruling::Kept, "{judged:?}");
    assert!(judged[0].decides && judged[0].metric == "exits.total" && judged[0].after < judged[0].before);
    assert_eq!(judge(&findings(-10.0, 8), &rules).0, Ruling::Mixed);
}
