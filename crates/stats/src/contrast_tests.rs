use proptest::prelude::*;

use super::*;
use crate::LEVEL;

fn near(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() < tolerance, "{found} instead of {expected}");
}

/// "Student", "The probable error of a mean", Biometrika 6 (1908): hours of sleep that two drugs added for ten patients;
/// R's data set `sleep`.
const SLEEP: [[f64; 10]; 2] = [
    [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0],
    [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4],
];

#[test]
fn students_sleep_data_agrees_with_r() {
    // t.test(extra ~ group, data = sleep, paired = TRUE): 95 % interval 0.7001142 to 2.4598858, mean 1.58
    let differences: Vec<f64> = (0..10).map(|patient| SLEEP[1][patient] - SLEEP[0][patient]).collect();
    let found = paired(&differences, Scale::Difference, 0).unwrap();
    near(found.estimate, 1.58, 1e-9);
    let interval = found.interval.unwrap();
    near(interval.low, 0.700_114_2, 1e-6);
    near(interval.high, 2.459_885_8, 1e-6);
    // No patient slept less with the second drug, and one slept the same: 2 x 2 of 1024 permutations are as extreme.
    assert_eq!((found.p_value, found.test), (Some(4.0 / 1024.0), Some(Test::Permutation)));
}

#[test]
fn sides_without_blocks_agree_with_r() {
    // t.test(extra ~ group, data = sleep): Welch, 95 % interval -0.2054832 to 3.3654832, difference 1.58
    let found = unpaired(&SLEEP[0], &SLEEP[1], Scale::Difference, 0).unwrap();
    near(found.estimate, 1.58, 1e-9);
    let interval = found.interval.unwrap();
    near(interval.low, -0.205_483_2, 1e-6);
    near(interval.high, 3.365_483_2, 1e-6);
    // Welch's own p value is 0.07939; that of the permutation test only has to be close.
    near(found.p_value.unwrap(), 0.0794, 0.01);
}

#[test]
fn darwins_maize_agrees_with_fisher() {
    // "The Design of Experiments", section 17: t = 2.148, just beyond the 5 % point; in inches 0.0039 to 5.2294.
    let eighths = [49.0, -67.0, 8.0, 16.0, 6.0, 23.0, 28.0, 41.0, 14.0, 29.0, 56.0, 24.0, 75.0, 60.0, -48.0];
    let inches = eighths.map(|eighth| eighth / 8.0);
    let found = paired(&inches, Scale::Difference, 0).unwrap();
    near(found.estimate, 2.616_667, 1e-6);
    let interval = found.interval.unwrap();
    near(interval.low, 0.003_899, 1e-5);
    near(interval.high, 5.229_434, 1e-5);
}

#[test]
fn few_blocks_have_an_interval_and_students_p_value() {
    let found = paired(&[1.0, 1.1, 0.9, 1.0], Scale::Difference, 0).unwrap();
    assert_eq!(found.test, Some(Test::Student));
    assert!(found.p_value.unwrap() < 0.001);
    let found = paired(&[1.0, 1.1], Scale::Difference, 0).unwrap();
    assert_eq!((found.interval, found.p_value, found.test), (None, None, None));
    near(found.estimate, 1.05, 1e-12);
    assert_eq!(paired(&[], Scale::Ratio, 0), None);
    assert_eq!(unpaired(&[1.0], &[], Scale::Ratio, 0), None);
}

#[test]
fn a_machine_without_noise_still_has_figures() {
    let found = paired(&[0.5; 4], Scale::Difference, 0).unwrap();
    assert_eq!((found.estimate, found.p_value), (0.5, Some(SMALLEST_P)));
    assert_eq!(found.interval, Some(Interval { low: 0.5, high: 0.5 }));
    assert_eq!(paired(&[0.0; 4], Scale::Difference, 0).unwrap().p_value, Some(1.0));
    let found = unpaired(&[2.0; 3], &[3.0; 3], Scale::Difference, 0).unwrap();
    assert_eq!((found.estimate, found.p_value), (1.0, Some(SMALLEST_P)));
}

fn counts(events: &[f64]) -> Vec<Count> {
    events.iter().map(|&events| Count { events, over: 2.0 }).collect()
}

#[test]
fn what_is_always_gone_is_told_from_chance() {
    // Port accesses in runs of two seconds, of a guest whose disk was replaced.
    let found = counted(&counts(&[290.0, 286.0, 122.0]), &counts(&[0.0; 3]), true, 0).unwrap();
    near(found.estimate, -349.0 / 3.0, 1e-9);
    assert!(found.p_value.unwrap() < 0.01, "{found:?}");
    let interval = found.interval.unwrap();
    assert!(
        interval.low < found.estimate && found.estimate < interval.high && interval.high < 0.0,
        "{found:?}"
    );
    assert_eq!((found.scale, found.test, found.repeats), (Scale::Difference, Some(Test::Student), 3));
    // With the sides swapped, and without common blocks.
    let back = counted(&counts(&[0.0; 3]), &counts(&[290.0, 286.0, 122.0]), true, 0).unwrap();
    near(back.interval.unwrap().low, -interval.high, 1e-9);
    let apart = counted(&counts(&[290.0, 286.0, 122.0]), &counts(&[0.0; 3]), false, 0).unwrap();
    assert!(apart.p_value.unwrap() < LEVEL && !apart.is_paired, "{apart:?}");
}

#[test]
fn few_events_are_no_surer_than_their_number() {
    // Student's t alone would call counts that do not scatter certain.
    for (before, p_value) in [(1.0, 0.25), (2.0, 0.03125)] {
        let found = counted(&counts(&[before; 3]), &counts(&[0.0; 3]), true, 0).unwrap();
        near(found.p_value.unwrap(), p_value, 1e-9);
        assert_eq!(found.test, Some(Test::Counts));
    }
    let found = counted(&counts(&[1.0; 3]), &counts(&[0.0; 3]), true, 0).unwrap();
    assert!(found.interval.unwrap().holds_zero(), "{found:?}");
}

#[test]
fn nothing_on_both_sides_is_no_difference() {
    let found = counted(&counts(&[0.0; 4]), &counts(&[0.0; 4]), true, 0).unwrap();
    assert_eq!((found.estimate, found.p_value), (0.0, Some(1.0)));
    assert!(found.interval.unwrap().holds_zero());
    let found = counted(&counts(&[9.0; 2]), &counts(&[0.0; 2]), true, 0).unwrap();
    assert_eq!((found.interval, found.p_value, found.test), (None, None, None));
}

#[test]
fn changes_of_few_events_differ_no_surer_than_they_are_themselves() {
    let change = |before, after| counted(&counts(&[before; 3]), &counts(&[after; 3]), true, 0).unwrap();
    let none = change(0.0, 0.0);
    let few = between_counted(&change(1.0, 0.0), &none);
    assert!(few.estimate == 0.5 && few.interval.unwrap().holds_zero() && !few.is_seen(LEVEL), "{few:?}");
    let [there, back] = [[change(50.0, 0.0), none], [none, change(50.0, 0.0)]]
        .map(|[before, after]| between_counted(&before, &after));
    assert!(there.estimate == 25.0 && there.is_seen(LEVEL) && !there.is_paired, "{there:?}");
    near(there.interval.unwrap().low, -back.interval.unwrap().high, 1e-9);
    assert_eq!((there.p_value, there.test), (back.p_value, Some(Test::Counts)));
    assert_eq!(between_counted(&none, &none).p_value, Some(1.0));
    let two = counted(&counts(&[9.0; 2]), &counts(&[0.0; 2]), true, 0).unwrap();
    assert_eq!((between_counted(&two, &none).interval, between_counted(&two, &none).p_value), (None, None));
}

#[test]
fn the_interval_tells_students_p_value_where_a_permutation_gives_another() {
    let five = [0.03, 0.01, 0.02, 0.025, 0.015];
    for scale in [Scale::Ratio, Scale::Difference] {
        let of = |differences: &[f64]| paired(differences, scale, 1).unwrap();
        let found = of(&five);
        assert_eq!(found.test, Some(Test::Student));
        near(found.student_p_value().unwrap() / found.p_value.unwrap(), 1.0, 1e-4);
        near(of(&five.map(|one| -one)).student_p_value().unwrap() / found.p_value.unwrap(), 1.0, 1e-4);
        let six = of(&[&five[..], &[0.02]].concat());
        assert_eq!(six.p_value, Some(2.0 / 64.0));
        assert!(six.student_p_value() < found.p_value);
        assert_eq!(of(&five[..2]).student_p_value(), None);
        assert_eq!(of(&[0.0; 4]).student_p_value(), Some(1.0));
    }
}

#[test]
fn a_change_and_the_one_back_are_of_one_size() {
    near(Scale::Ratio.size(-40.0), Scale::Ratio.size(100.0 / 0.6 - 100.0), 1e-12);
    assert_eq!((Scale::Ratio.size(-100.0), Scale::Difference.size(-0.3)), (f64::INFINITY, 0.3));
}

proptest! {
    #[test]
    fn an_interval_holds_its_estimate(values in prop::collection::vec(-2.0..2.0_f64, 3..20)) {
        for scale in [Scale::Ratio, Scale::Difference] {
            let found = paired(&values, scale, 0).unwrap();
            let interval = found.interval.unwrap();
            prop_assert!(interval.low <= found.estimate + 1e-9 && found.estimate <= interval.high + 1e-9);
            prop_assert!(found.p_value.is_some_and(|p| p > 0.0 && p <= 1.0));
        }
    }
}
