use super::*;
use proptest::prelude::*;

const HLT: ExitReason = ExitReason::vmx(12);
const CPUID: ExitReason = ExitReason::svm(0x72);

fn of(exits: &[(bool, u64)]) -> Timeline {
    let mut timeline = Timeline::default();
    for &(hlt, time_ns) in exits {
        let key = SeriesKey { vm: Some(u32::from(hlt)), reason: if hlt { HLT } else { CPUID } };
        let series = timeline.series(key);
        timeline.add(series, time_ns, Slice { count: 1, handling_ns: 5 });
    }
    timeline
}

#[test]
fn slices_double_to_stay_below_the_limit() {
    let second = 1_000_000_000;
    let timeline = of(&[(true, second), (true, second + 1), (true, 9 * second)]);
    assert_eq!(timeline.width_ns(), 1 << 22);
    assert_eq!(timeline.len() as u64, ((9 * second) >> 22) - (second >> 22) + 1);
    let (key, slices) = timeline.iter().next().unwrap();
    assert_eq!(key.reason, HLT);
    assert_eq!(slices.first().unwrap(), &Slice { count: 2, handling_ns: 10 });
    assert_eq!(slices.iter().map(|slice| slice.count).sum::<u64>(), 3);
    assert_eq!(timeline.start_ns(), (second >> 22) << 22);
}

#[test]
fn reasons_are_summed_over_vms() {
    let mut timeline = of(&[(true, 0)]);
    let other = timeline.series(SeriesKey { vm: None, reason: HLT });
    timeline.add(other, 3 << 20, Slice { count: 4, handling_ns: 0 });
    let sums = &timeline.by_reason()[&HLT];
    assert_eq!(sums.iter().map(|slice| slice.count).collect::<Vec<_>>(), [1, 0, 0, 4]);
    let named = timeline.only(|vm| vm.is_some());
    assert_eq!(named.by_reason()[&HLT].iter().map(|slice| slice.count).sum::<u64>(), 1);
    assert_eq!(named.len(), 4);
}

#[test]
fn stored_nonsense_does_not_panic() {
    let json = r#"{"start_ns":18446744073709551615,"width_ns":0,"slices":18446744073709551615,
        "series":[{"vm":null,"reason":"HLT","count":[1,2,3],"handling_ns":[1]}]}"#;
    let timeline: Timeline = serde_json::from_str(json).unwrap();
    assert!(timeline.len() <= MOST_SLICES as usize);
}

fn exits() -> impl Strategy<Value = Vec<(bool, u64)>> {
    let time = prop_oneof![0..1u64 << 34, any::<u64>(), (1u64 << 40)..(1 << 40) + (1 << 30)];
    proptest::collection::vec((any::<bool>(), time), 0..30)
}

/// A span's start and length, and the exits and the handling time in it.
type Together = (u64, u64, u64, u64);

fn together(exits: &[Together]) -> Timeline {
    let mut timeline = Timeline::default();
    for &(first_ns, length_ns, count, handling_ns) in exits {
        let series = timeline.series(SeriesKey { vm: None, reason: HLT });
        let span = Span { first_ns, last_ns: first_ns + length_ns };
        timeline.add_over(series, span, Slice { count, handling_ns });
    }
    timeline
}

#[test]
fn two_slices_share_exits_as_they_share_the_time() {
    let edge: u64 = 5 << 30;
    let second: u64 = 1_000_000_000;
    let timeline = together(&[(edge - second / 4, second, 1001, 8)]);
    assert_eq!(timeline.width_ns(), 1 << 30);
    let part = |count, handling_ns| Slice { count, handling_ns };
    assert_eq!(timeline.by_reason()[&HLT], [part(250, 2), part(751, 6)]);
    // A span that ends with a slice has nothing of the next.
    assert_eq!(together(&[(edge - second, second, 7, 8)]).by_reason()[&HLT], [part(7, 8)]);
    assert_eq!(together(&[(edge, 0, 7, 8)]).by_reason()[&HLT], [part(7, 8)]);
    assert_eq!(together(&[(0, u64::MAX, 7, 8)]).len(), 2);
}

fn readings() -> impl Strategy<Value = Vec<Together>> {
    let count = prop_oneof![1..4u64, 1..1u64 << 40];
    proptest::collection::vec((0..1u64 << 36, 0..1u64 << 33, count, 0..1u64 << 50), 0..20)
}

proptest! {
    #[test]
    fn exits_counted_together_are_all_there_in_any_order(a in readings(), b in readings()) {
        let both = together(&[a.clone(), b.clone()].concat());
        let sums = both.by_reason().remove(&HLT).unwrap_or_default();
        let all = || a.iter().chain(&b);
        prop_assert_eq!(sums.iter().map(|slice| slice.count).sum::<u64>(), all().map(|one| one.2).sum::<u64>());
        let handling_ns = sums.iter().map(|slice| slice.handling_ns).sum::<u64>();
        prop_assert_eq!(handling_ns, all().map(|one| one.3).sum::<u64>());
        prop_assert!(all().all(|one| one.1 <= both.width_ns()));
        let mut merged = together(&b);
        merged.merge(&together(&a));
        prop_assert_eq!(merged, both);
    }

    #[test]
    fn merging_parts_gives_the_whole(a in exits(), b in exits()) {
        let mut merged = of(&a);
        merged.merge(&of(&b));
        let both: Vec<_> = a.iter().chain(&b).copied().collect();
        prop_assert_eq!(&merged, &of(&both));
        let mut other_way = of(&b);
        other_way.merge(&of(&a));
        prop_assert_eq!(merged, other_way);
    }

    #[test]
    fn nothing_is_lost_and_files_keep_it(exits in exits()) {
        let timeline = of(&exits);
        let counted: u64 = timeline.iter().flat_map(|(_, slices)| slices).map(|slice| slice.count).sum();
        prop_assert_eq!(counted, exits.len() as u64);
        prop_assert!(timeline.len() <= MOST_SLICES as usize);
        let json = serde_json::to_string(&timeline).unwrap();
        prop_assert_eq!(serde_json::from_str::<Timeline>(&json).unwrap(), timeline);
    }
}

#[test]
fn slices_get_wider_until_they_fit() {
    let all: Vec<_> = (0..2000).map(|at| (at % 3 == 0, at << NARROWEST)).collect();
    let mut timeline = of(&all);
    let (before, sums) = (timeline.size_when_read(), timeline.by_reason());
    timeline.fit(before);
    assert_eq!(timeline.len(), 2000);
    timeline.fit(before / 8);
    assert!(timeline.size_when_read() <= before / 8 && timeline.len() >= 2000 / 16, "{}", timeline.len());
    let total = |slices: &[Slice]| slices.iter().map(|slice| slice.count).sum::<u64>();
    for (reason, slices) in timeline.by_reason() {
        assert_eq!(total(&slices), total(&sums[&reason]));
    }
    timeline.fit(0);
    assert!(timeline.len() <= 2);
}

#[test]
fn vms_beyond_the_limit_share_a_series_for_each_reason() {
    let mut timeline = Timeline::default();
    let key = |vm: usize| SeriesKey { vm: Some(vm as u32), reason: ExitReason::vmx(12) };
    let own: Vec<_> = (0..MOST_SERIES).map(|vm| timeline.series(key(vm))).collect();
    assert_eq!(own.iter().map(|series| series.0).max(), Some(MOST_SERIES - 1));
    let shared = timeline.series(key(MOST_SERIES));
    assert_eq!(timeline.series(key(MOST_SERIES + 1)), shared);
    assert_eq!(timeline.series(SeriesKey { vm: None, ..key(0) }), shared);
    assert_eq!(timeline.series(key(7)), own[7]);
    for code in 0..2 * MOST_SERIES as u32 {
        timeline.series(SeriesKey { vm: None, reason: ExitReason::svm(code) });
    }
    assert_eq!(timeline.series.len(), 2 * MOST_SERIES);
}
