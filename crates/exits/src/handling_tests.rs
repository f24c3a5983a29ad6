use super::*;
use proptest::prelude::*;

fn times(all: &[u64]) -> HandlingTime {
    let mut times = HandlingTime::new();
    all.iter().for_each(|&ns| times.add(ns));
    times
}

#[test]
fn none_has_no_figures() {
    let none = HandlingTime::new();
    assert_eq!(
        (none.min_ns(), none.max_ns(), none.mean_ns(), none.quantile_ns(0.5)),
        (None, None, None, None)
    );
}

#[test]
fn figures_that_contradict_each_other_do_not_panic() {
    let json = r#"{"count":2,"total_ns":9,"min_ns":9,"max_ns":1,"buckets":{"65535":1}}"#;
    let read: HandlingTime = serde_json::from_str(json).unwrap();
    for quantile in [0.0, 0.5, 1.0, f64::NAN] {
        assert!(read.quantile_ns(quantile).is_some());
    }
}

#[test]
fn no_times_in_a_file_are_none() {
    let json = r#"{"count":0,"total_ns":9,"min_ns":1,"max_ns":7,"squares_ns2":"3","histogram":[[5,1]]}"#;
    assert_eq!(serde_json::from_str::<HandlingTime>(json).unwrap(), HandlingTime::new());
}

#[test]
fn exact_figures() {
    let some = times(&[300, 100, 200]);
    assert_eq!((some.count(), some.total_ns()), (3, 600));
    assert_eq!((some.min_ns(), some.max_ns(), some.mean_ns()), (Some(100), Some(300), Some(200.0)));
    assert_eq!(some.quantile_ns(1.0), Some(300));
}

#[test]
fn spread_of_the_times() {
    let some = times(&[2, 4, 4, 4, 5, 5, 7, 9]);
    let deviation = some.standard_deviation_ns().unwrap();
    assert!((deviation - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
    let error = some.relative_error_percent().unwrap();
    assert!((error - deviation / 8f64.sqrt() / 5.0 * 100.0).abs() < 1e-9);
    assert_eq!(times(&[7]).standard_deviation_ns(), None);
    assert_eq!(times(&[0, 0]).standard_deviation_ns(), Some(0.0));
    assert_eq!(times(&[0, 0]).relative_error_percent(), None);
    assert!(times(&[u64::MAX, 0, u64::MAX]).standard_deviation_ns().unwrap().is_finite());
}

#[test]
fn files_of_the_first_version_are_read() {
    let json = r#"{"count":3,"total_ns":2108,"min_ns":3,"max_ns":2000,"buckets":{"3":1,"51":1,"71":1}}"#;
    let read: HandlingTime = serde_json::from_str(json).unwrap();
    assert_eq!((read.count(), read.total_ns(), read.standard_deviation_ns()), (3, 2108, None));
    // Bucket 51 held 352 to 383 ns.
    let median = read.quantile_ns(0.5).unwrap();
    assert!((383..=383 * 33 / 32).contains(&median), "{median}");
}

#[test]
fn times_without_squares_leave_no_deviation() {
    let json = r#"{"count":2,"total_ns":30,"min_ns":10,"max_ns":20}"#;
    let old: HandlingTime = serde_json::from_str(json).unwrap();
    let new = times(&[10, 20, 30]);
    let mut merged = [old.clone(), new.clone()];
    merged[0].merge(&new);
    merged[1].merge(&old);
    for merged in &merged {
        assert_eq!((merged.count(), merged.total_ns(), merged.standard_deviation_ns()), (5, 90, None));
        let again = serde_json::from_str::<HandlingTime>(&serde_json::to_string(merged).unwrap()).unwrap();
        assert_eq!(again.standard_deviation_ns(), None);
    }
    let mut from_nothing = HandlingTime::new();
    from_nothing.merge(&new);
    assert!(from_nothing.standard_deviation_ns().is_some());
}

proptest! {
    #[test]
    fn merging_is_adding(a in proptest::collection::vec(any::<u64>(), 0..20),
                         b in proptest::collection::vec(any::<u64>(), 0..20)) {
        let mut merged = times(&a);
        merged.merge(&times(&b));
        let both: Vec<u64> = a.iter().chain(&b).copied().collect();
        prop_assert_eq!(merged, times(&both));
    }

    #[test]
    fn quantiles_are_near(mut all in proptest::collection::vec(0..1_000_000_000u64, 1..200), q in 0.0..=1.0f64) {
        let found = times(&all).quantile_ns(q).unwrap();
        all.sort_unstable();
        let rank = ((q * all.len() as f64).ceil() as usize).max(1);
        let truth = all[rank - 1];
        prop_assert!(found >= truth && found as f64 <= truth as f64 * 1.032);
    }

    #[test]
    fn files_keep_everything(all in proptest::collection::vec(any::<u64>(), 0..20)) {
        let times = times(&all);
        let json = serde_json::to_string(&times).unwrap();
        prop_assert_eq!(serde_json::from_str::<HandlingTime>(&json).unwrap(), times);
    }
}

proptest! {
    #[test]
    fn octaves_add_up_to_the_times_one_by_one(all in proptest::collection::vec(0u64..1 << 40, 1..40)) {
        let mut octaves = std::collections::BTreeMap::new();
        for &ns in &all {
            // The same calculation as in the BPF programs.
            let (number, bucket) = match ns {
                0..32 => (0, ns),
                _ => (ns.ilog2() - 4, ns >> (ns.ilog2() - 5) & 31),
            };
            let octave = octaves.entry(number).or_insert(Octave {
                number: number as u8,
                total_ns: 0,
                squares_ns2: 0,
                min_ns: u64::MAX,
                max_ns: 0,
                buckets: [0; 32],
            });
            octave.total_ns += ns;
            octave.squares_ns2 += u128::from(ns) * u128::from(ns);
            octave.min_ns = octave.min_ns.min(ns);
            octave.max_ns = octave.max_ns.max(ns);
            octave.buckets[bucket as usize] += 1;
        }
        let mut sum = HandlingTime::new();
        octaves.values().for_each(|octave| sum.add_octave(octave));
        prop_assert_eq!(sum, times(&all));
    }
}

#[test]
fn times_beyond_a_bound_are_counted_to_a_bucket() {
    let mut times = HandlingTime::new();
    assert_eq!((times.at_least(0), times.at_least(5)), (0, 0));
    for ns in [10, 20, 49_000, 50_000, 51_700, 90_000] {
        times.add(ns);
    }
    assert_eq!(times.at_least(0), 6);
    assert_eq!(times.at_least(20), 5, "short times have buckets of their own");
    assert_eq!(times.at_least(52_500), 1);
    assert!((3..=4).contains(&times.at_least(50_000)), "49,000 lies within 3.2 %");
    assert_eq!((times.at_least(90_000), times.at_least(90_001)), (1, 0), "the longest is known exactly");
}

#[test]
fn times_that_are_taken_away_leave_the_others() {
    let of = |times: &[u64]| {
        let mut handling = HandlingTime::new();
        times.iter().for_each(|&ns| handling.add(ns));
        handling
    };
    let mut all = of(&[10, 500, 500, 9_000]);
    all.subtract(&of(&[500, 9_000]));
    assert_eq!((all.count(), all.total_ns()), (2, 510));
    assert_eq!(all.buckets().map(|(_, count)| count).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(all.quantile_ns(0.5), of(&[10, 500]).quantile_ns(0.5));
    // More than it contains.
    all.subtract(&of(&[1, 10, 500, 500, 1 << 40]));
    assert_eq!((all.count(), all.total_ns(), all.buckets().count()), (0, 0, 0));
}
