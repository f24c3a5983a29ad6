use super::*;
use crate::RelativeChange;
use exits::{Access, Dimension, Direction, ExitReason, SeriesKey, Slice, Span, Vcpu};
use proptest::prelude::*;

const WIDTH: u64 = 1 << 20;
const HLT: ExitReason = ExitReason::svm(0x78);
const MSR: ExitReason = ExitReason::svm(0x7c);
const IO: ExitReason = ExitReason::svm(0x7b);
const VINTR: ExitReason = ExitReason::svm(0x64);
const PORT: Access = Access::Port { port: 0x3f8, direction: Direction::Write };

/// A reason, the index of a cell, the number of exits, and the handling time of each in nanoseconds.
type Some = (ExitReason, u64, u64, u64);

fn profile(vm: u32, cells: u64, exits: &[Some]) -> Profile {
    let mut profile = Profile::new();
    profile.span = Some(Span { first_ns: WIDTH, last_ns: WIDTH * (1 + cells) });
    let vcpu = Vcpu { vm: Some(vm), number: Some(0), thread: Some(vm + 1) };
    for &(reason, cell, count, ns) in exits {
        let row = profile.vcpu(vcpu).reasons.entry(reason).or_default();
        row.count += count;
        (0..count).for_each(|_| row.handling.add(ns));
        if reason == IO {
            let access = profile.vcpu(vcpu).accesses.entry(PORT).or_default();
            access.count += count;
            (0..count).for_each(|_| access.handling.add(ns));
        }
        let series = profile.timeline.series(SeriesKey { vm: vcpu.vm, reason });
        let slice = Slice { count, handling_ns: count * ns };
        profile.timeline.add(series, WIDTH * (1 + cell), slice);
    }
    profile
}

/// Exits in all cells: `count` in even ones, one more in odd ones.
fn even(reason: ExitReason, cells: u64, count: u64, ns: u64) -> Vec<Some> {
    (0..cells).map(|cell| (reason, cell, count + cell % 2, ns + cell % 3)).collect()
}

fn compared(before: &Profile, after: &Profile) -> ProfileComparison {
    ProfileComparison::new(&[before.into()], &[after.into()], &ComparisonOptions::default())
}

fn row(comparison: &ProfileComparison, reason: ExitReason) -> ComparedRow {
    comparison.rows.iter().find(|row| row.subject.reason == Some(reason)).unwrap().clone()
}

#[test]
fn rates_are_over_the_time_of_each_side() {
    let before = profile(1, 100, &even(MSR, 100, 10, 1000));
    let after = profile(2, 200, &even(MSR, 200, 10, 1000));
    let found = compared(&before, &after);
    let msr = row(&found, MSR);
    assert_eq!((msr.before.exits, msr.after.exits, found.per), (1050, 2100, Per::Second));
    assert!((msr.before.rate - 10.5 / (WIDTH as f64 / 1e9)).abs() < 1e-6);
    assert!(msr.rate.change.percent().unwrap().abs() < 1e-9);
    assert!(matches!(msr.rate.basis, Some(Basis::Blocks { before: 101, after: 201 })), "{:?}", msr.rate);
    assert_eq!(msr.rate.effect(), Effect::Indistinguishable);
    assert_eq!(found.vms.len(), 1);
    assert_eq!(found.verdict, Overall::Same);
}

/// A profile of 40 readings, each with these exits.
fn of_readings(exits: &[(ExitReason, u64)]) -> Profile {
    const READING: u64 = 1_100_000_000;
    let vcpu = Vcpu { vm: Some(1), number: Some(0), thread: Some(2) };
    let mut whole = Profile::new();
    for number in 0..40 {
        let mut reading = Profile::new();
        for &(reason, count) in exits {
            reading.vcpu(vcpu).reasons.entry(reason).or_default().count = count;
        }
        let first_ns = WIDTH + number * READING;
        reading.count_over(Span { first_ns, last_ns: first_ns + READING });
        whole.merge(&reading);
    }
    whole
}

#[test]
fn exits_that_were_counted_together_are_no_burst() {
    let found = compared(&of_readings(&[(MSR, 1100), (VINTR, 1100)]), &of_readings(&[(MSR, 1100)]));
    let steady = row(&found, MSR).rate;
    assert!(matches!(steady.basis, Some(Basis::Blocks { before: 21, after: 21 })), "{steady:?}");
    let interval = steady.interval.unwrap();
    assert!(interval.low > -5.0 && interval.high < 5.0, "{interval:?}");
    let gone = row(&found, VINTR);
    assert!(gone.after.rate_bound.unwrap() < 1.0, "{gone:?}");
    assert!(gone.rate.interval.unwrap().high < -99.0, "{gone:?}");
}

#[test]
fn time_asleep_is_in_no_sum() {
    let sleeping = even(HLT, 100, 1, 900_000);
    let before = profile(1, 100, &[even(MSR, 100, 10, 1000), sleeping.clone()].concat());
    let after = profile(1, 100, &[even(MSR, 100, 10, 2000), sleeping].concat());
    let found = compared(&before, &after);
    assert_eq!(found.total.before.time_ns, row(&found, MSR).before.time_ns);
    assert_eq!(found.total.before.exits, 1200);
    assert!(found.before.idle.handling.total_ns() > 100_000_000);
    let hlt = row(&found, HLT);
    assert!(hlt.idle && hlt.before.time_percent.is_none() && hlt.before.mean_ns.is_some());
    assert!((found.total.time.unwrap().change.percent().unwrap() - 99.9).abs() < 0.1);
    assert_eq!(found.verdict, Overall::More);
    // Idle exits come last, even if they are long.
    assert_eq!(found.rows.last().unwrap().subject.reason, Some(HLT));
    let by_vm = ComparisonOptions {
        grouping: Grouping::new([Dimension::Vm]).unwrap(),
        ..ComparisonOptions::default()
    };
    let by_vm = ProfileComparison::new(&[(&before).into()], &[(&after).into()], &by_vm);
    assert_eq!(by_vm.rows[0].before.time_ns, found.total.before.time_ns);
    assert!(matches!(by_vm.rows[0].time.unwrap().basis, Some(Basis::Blocks { .. })));
}

/// All reasons of [`ExitReason::is_sleep`] are idle, AMD's idle HLT included.
#[test]
fn the_mean_of_all_is_of_exits_that_are_handled() {
    for sleep in [ExitReason::vmx(12), HLT, ExitReason::svm(0xa6)] {
        // The guest sleeps in every other quarter of the recording.
        let sleeping: Vec<Some> =
            (0..100).filter(|cell| cell % 50 < 25).map(|cell| (sleep, cell, 50, 900_000)).collect();
        let side = |ns| profile(1, 100, &[even(MSR, 100, 10, ns), sleeping.clone()].concat());
        let found = compared(&side(1000), &side(2000));
        assert_eq!(found.total.mean.unwrap().interval, row(&found, MSR).mean.unwrap().interval, "{sleep}");
        assert_eq!(found.total.time.unwrap().interval, row(&found, MSR).time.unwrap().interval, "{sleep}");
        assert!(row(&found, sleep).idle);
    }
}

/// Sleep is also excluded with groupings that need a timeline of their own.
#[test]
fn sleep_is_in_no_row_of_a_vcpu() {
    let all = |ns| {
        let sleeping = (0..100).filter(|cell| cell % 50 < 25).map(|cell| (HLT, cell, 50, 900_000));
        [even(MSR, 100, 10, ns), sleeping.collect()].concat()
    };
    let grouping = Grouping::new([Dimension::Vcpu]).unwrap();
    let sides = [1000, 2000].map(|ns| {
        let exits = all(ns);
        let profile = profile(1, 100, &exits);
        let mut grouped = GroupedTimeline::new(grouping.clone());
        for &(reason, cell, count, ns) in &exits {
            let vcpu = profile.vcpus()[0].vcpu;
            (0..count).for_each(|_| grouped.add(vcpu, reason, WIDTH * (1 + cell), Some(ns), []));
        }
        (profile, grouped)
    });
    let options = ComparisonOptions { grouping, ..ComparisonOptions::default() };
    let [before, after] = sides
        .each_ref()
        .map(|(profile, grouped)| [Recording { profile, observed: profile.span, grouped: Some(grouped) }]);
    let found = ProfileComparison::new(&before, &after, &options);
    let total = compared(&sides[0].0, &sides[1].0).total;
    assert_eq!(found.rows[0].mean.unwrap().interval, total.mean.unwrap().interval);
    assert_eq!(found.rows[0].time.unwrap().interval, total.time.unwrap().interval);
}

#[test]
fn what_is_gone_has_a_bound_and_what_is_new_no_upper_end() {
    let before = profile(1, 100, &[even(MSR, 100, 10, 1000), even(VINTR, 100, 2, 500)].concat());
    let after = profile(1, 100, &even(MSR, 100, 10, 1000));
    let gone = row(&compared(&before, &after), VINTR);
    assert_eq!(gone.rate.change, RelativeChange::Percent(-100.0));
    let interval = gone.rate.interval.unwrap();
    assert!(interval.low == -100.0 && (-99.0..-97.0).contains(&interval.high), "{interval:?}");
    let seconds = 100.0 * WIDTH as f64 / 1e9;
    assert!((gone.after.rate_bound.unwrap() - 2.9957 / seconds).abs() < 1e-3 / seconds);
    assert!(matches!(gone.rate.basis, Some(Basis::Poisson { measured: true, .. })));
    assert_eq!(gone.time.unwrap().change, RelativeChange::Percent(-100.0));
    assert_eq!((gone.time.unwrap().interval, gone.mean), (None, None));

    let appeared = row(&compared(&after, &before), VINTR);
    assert_eq!(appeared.rate.change, RelativeChange::FromNothing);
    assert!(appeared.rate.interval.unwrap().low > 5000.0);
    assert_eq!(appeared.rate.interval.unwrap().high, f64::INFINITY);
    assert_eq!(appeared.rate.effect(), Effect::More);
}

#[test]
fn operations_go_before_time() {
    let (before, after) =
        (profile(1, 100, &even(MSR, 100, 10, 1000)), profile(1, 300, &even(MSR, 300, 10, 1000)));
    let options = ComparisonOptions { operations: Some((1050, 1575)), ..ComparisonOptions::default() };
    let found = ProfileComparison::new(&[(&before).into()], &[(&after).into()], &options);
    assert_eq!(found.per, Per::Operation);
    assert_eq!((found.total.before.rate, found.total.after.rate), (1.0, 2.0));
    let interval = found.total.rate.interval.unwrap();
    assert!(interval.low > 90.0 && interval.high < 110.0, "{interval:?}");
}

#[test]
fn runs_of_the_same_work_vary_as_their_counts_do_whatever_their_times() {
    // Exits come at a constant rate, and runs of the same work take different times.
    let side = |lengths: [u64; 3]| {
        lengths.map(|cells| {
            profile(1, cells, &(0..cells).map(|cell| (MSR, cell, 10, 1000)).collect::<Vec<Some>>())
        })
    };
    let (before, after) = (side([100, 120, 140]), side([110, 130, 150]));
    let compared = |operations| {
        let [before, after] = [&before, &after].map(|side| side.each_ref().map(Recording::from));
        let options = ComparisonOptions { operations, ..ComparisonOptions::default() };
        ProfileComparison::new(&before, &after, &options)
    };
    let found = compared(Some((3, 3)));
    for estimate in [found.total.rate, found.total.time.unwrap()] {
        assert_eq!(estimate.basis, Some(Basis::Recordings { before: 3, after: 3 }));
        assert_eq!(estimate.effect(), Effect::Indistinguishable, "{estimate:?}");
    }
    // Rates by time are alike.
    let interval = compared(None).total.rate.interval.unwrap();
    assert!(interval.high - interval.low < 1e-6, "{interval:?}");
}

/// The row of a reason with these exits in three recordings of 10 s before, spread out evenly, and with none after.
fn gone_from(counts: [u64; 3]) -> ComparedRow {
    const CELLS: u64 = 9536;
    let side = |counts: [u64; 3]| {
        counts.map(|count| {
            let each = (0..count).map(|number| (VINTR, number * CELLS / count, 1, 1000));
            profile(1, CELLS, &each.chain([(MSR, 0, 1000, 1000)]).collect::<Vec<Some>>())
        })
    };
    let (before, after) = (side(counts), side([0; 3]));
    let [before, after] = [&before, &after].map(|side| side.each_ref().map(Recording::from));
    row(&ProfileComparison::new(&before, &after, &ComparisonOptions::default()), VINTR)
}

#[test]
fn what_one_run_of_three_had_is_not_certain_to_be_gone() {
    let burst = gone_from([300, 0, 0]);
    assert_eq!(burst.rate.effect(), Effect::Indistinguishable, "{burst:?}");
    assert!(burst.after.rate_bound.unwrap() > 300.0 / 30.1, "{burst:?}");
    let steady = gone_from([300, 310, 290]);
    assert!(steady.rate.interval.unwrap().high < -98.0, "{steady:?}");
    assert!(steady.after.rate_bound.unwrap() < 3.1 / 29.9, "{steady:?}");
}

#[test]
fn runs_without_a_duration_vary_by_operation() {
    let side = |counts: [u64; 3]| {
        counts.map(|count| {
            let mut run = profile(1, 1, &[(MSR, 0, count, 1000)]);
            run.span = None;
            run
        })
    };
    let (before, after) = (side([1000, 1200, 1400]), side([1100, 1300, 1500]));
    let [before, after] = [&before, &after].map(|side| side.each_ref().map(Recording::from));
    let options = ComparisonOptions { operations: Some((3, 3)), ..ComparisonOptions::default() };
    let found = ProfileComparison::new(&before, &after, &options);
    assert_eq!(found.total.rate.basis, Some(Basis::Recordings { before: 3, after: 3 }));
}

#[test]
fn accesses_have_intervals_by_their_own_slices() {
    let exits = even(IO, 200, 5, 2000);
    let (before, after) = (profile(1, 200, &exits), profile(1, 200, &exits));
    let grouping = Grouping::new([Dimension::Port]).unwrap();
    let mut grouped = GroupedTimeline::new(grouping.clone());
    for &(reason, cell, count, ns) in &exits {
        let vcpu = before.vcpus()[0].vcpu;
        (0..count).for_each(|_| grouped.add(vcpu, reason, WIDTH * (1 + cell), Some(ns), [(PORT, Some(ns))]));
    }
    let options = ComparisonOptions { grouping, ..ComparisonOptions::default() };
    let plain = ProfileComparison::new(&[(&before).into()], &[(&after).into()], &options);
    assert_eq!(plain.rows[0].subject.access, Some(PORT));
    assert_eq!(plain.rows[0].rate.basis, Some(Basis::Poisson { before: 1.0, after: 1.0, measured: false }));
    assert_eq!(plain.rows[0].mean.unwrap().basis, Some(Basis::Times));
    let [before, after] =
        [&before, &after].map(|profile| Recording { grouped: Some(&grouped), ..profile.into() });
    let found = ProfileComparison::new(&[before], &[after], &options);
    assert!(matches!(found.rows[0].rate.basis, Some(Basis::Blocks { .. })));
    assert!(matches!(found.total.rate.basis, Some(Basis::Blocks { .. })));
}

#[test]
fn doubts_are_said() {
    let mut before = profile(1, 10, &even(MSR, 10, 10, 1000));
    let mut after = profile(1, 100, &even(MSR, 100, 10, 1000));
    let other = Vcpu { vm: Some(1), number: Some(1), thread: Some(9) };
    after.vcpu(other).reasons.entry(MSR).or_default().count = 5;
    before.losses.lost_events = 7;
    let found = compared(&before, &after);
    assert_eq!(
        found.doubts,
        [
            Doubt::Lost { side: Which::Before, lost: 7, unread: 0 },
            Doubt::Short { side: Which::Before },
            Doubt::Durations,
            Doubt::Vcpus { vms: (1, 1), vcpus: (1, 2) },
        ]
    );
    before.span = None;
    let found = compared(&before, &after);
    assert_eq!(found.per, Per::Recording);
    assert!(found.doubts.contains(&Doubt::NoTime { side: Which::Before }));
    // One recording without a duration is enough, whatever the others last.
    let sides = [[&after, &before], [&after, &after]].map(|side| side.map(Recording::from));
    let found = ProfileComparison::new(&sides[0], &sides[1], &ComparisonOptions::default());
    assert_eq!(found.per, Per::Recording);
    assert!(found.doubts.contains(&Doubt::NoTime { side: Which::Before }));
    assert!(!found.doubts.contains(&Doubt::NoTime { side: Which::After }));
    let found = compared(&Profile::new(), &after);
    assert!(found.doubts.contains(&Doubt::Empty { side: Which::Before }));
    assert_eq!(compared(&Profile::new(), &Profile::new()).verdict, Overall::Nothing);
}

#[test]
fn a_side_that_nobody_observed_has_no_figure_to_compare() {
    let (some, nothing) = (profile(1, 100, &even(MSR, 100, 10, 1000)), Profile::new());
    for operations in [None, Some((1, 1))] {
        let options = ComparisonOptions { operations, ..ComparisonOptions::default() };
        let compared = |before: &Profile, after: &Profile| {
            ProfileComparison::new(&[before.into()], &[after.into()], &options)
        };
        for (found, side) in
            [(compared(&some, &nothing), Which::After), (compared(&nothing, &some), Which::Before)]
        {
            assert_eq!(found.verdict, Overall::Nothing, "{side:?}");
            assert!(found.doubts.contains(&Doubt::Empty { side }), "{:?}", found.doubts);
            assert_eq!(found.doubts.contains(&Doubt::NoTime { side }), operations.is_none());
            let rows = || found.rows.iter().chain([&found.total]);
            assert!(rows().flat_map(estimates).all(|estimate| estimate.interval.is_none()), "{found:?}");
            assert!(rows().all(|row| row.before.rate_bound.or(row.after.rate_bound).is_none()), "{found:?}");
        }
        // Without exits in a time that was observed, they are gone.
        assert_eq!(compared(&some, &profile(1, 100, &[])).verdict, Overall::Less);
    }
}

#[test]
fn exits_without_their_vm_are_a_doubt_where_figures_lack_them() {
    let before = profile(1, 100, &even(MSR, 100, 10, 1000));
    let mut after = before.clone();
    after.vcpu(Vcpu::default()).reasons.entry(MSR).or_default().count = 5;
    after.losses.exits_without_vcpu = 5;
    let is_doubted = |after: &Profile, by: Dimension| {
        let options =
            ComparisonOptions { grouping: Grouping::new([by]).unwrap(), ..ComparisonOptions::default() };
        let found = ProfileComparison::new(&[(&before).into()], &[after.into()], &options);
        found.doubts.contains(&Doubt::WithoutVcpu { side: Which::After, exits: 5 })
    };
    assert!(is_doubted(&after, Dimension::Vm) && is_doubted(&after, Dimension::Vcpu));
    assert!(!is_doubted(&after, Dimension::Reason), "the rows have them");
    let selected = after.only(|vcpu| vcpu.vm == Some(1));
    assert!(is_doubted(&selected, Dimension::Reason));
    assert!(!is_doubted(&before, Dimension::Vm));
}

#[test]
fn sides_that_last_differently_are_a_doubt_without_operations() {
    let [short, twice, long] = [100, 200, 201].map(|cells| profile(1, cells, &even(MSR, 100, 10, 1000)));
    let doubted = |before: &[&Profile], after: &[&Profile], operations| {
        let [before, after] =
            [before, after].map(|side| side.iter().map(|&one| one.into()).collect::<Vec<_>>());
        let options = ComparisonOptions { operations, ..ComparisonOptions::default() };
        ProfileComparison::new(&before, &after, &options).doubts.contains(&Doubt::Durations)
    };
    assert!(doubted(&[&short], &[&long], None) && doubted(&[&long], &[&short], None));
    assert!(!doubted(&[&short], &[&twice], None));
    assert!(!doubted(&[&short], &[&short, &short, &short], None));
    assert!(!doubted(&[&short], &[&long], Some((1, 1))));
}

#[test]
fn vms_that_cannot_be_told_to_be_the_same_are_a_doubt() {
    let side = |vms: [u32; 2]| {
        let mut both = profile(vms[0], 100, &even(MSR, 100, 10, 1000));
        both.merge(&profile(vms[1], 100, &even(MSR, 100, 20, 1000)));
        both
    };
    let by_vm = ComparisonOptions {
        grouping: Grouping::new([Dimension::Vm]).unwrap(),
        ..ComparisonOptions::default()
    };
    let doubts = |before: &Profile, after: &Profile| {
        ProfileComparison::new(&[before.into()], &[after.into()], &by_vm).doubts
    };
    assert_eq!(doubts(&side([1, 2]), &side([3, 4])), [Doubt::NoCommonVm]);
    assert_eq!(doubts(&side([1, 2]), &side([2, 3])), []);
    assert_eq!(compared(&side([1, 2]), &side([3, 4])).doubts, []);
}

#[test]
fn the_largest_change_comes_first_whichever_way_it_went() {
    let reasons = |msr: u64, io: u64, vintr: u64| {
        let all = [even(MSR, 50, msr, 1000), even(IO, 50, io, 1000), even(VINTR, 50, vintr, 1000)];
        profile(1, 50, &all.concat())
    };
    let mut found = compared(&reasons(10, 10, 90), &reasons(20, 11, 10));
    let order = |found: &ProfileComparison| -> Vec<_> {
        found.rows.iter().map(|row| row.subject.reason.unwrap()).collect()
    };
    assert_eq!(order(&found), [VINTR, MSR, IO]);
    found.keep_top(2, ComparisonOrder::Time);
    assert_eq!(order(&found), [VINTR, MSR]);
    let rest = found.rest.unwrap();
    assert_eq!((rest.rows, rest.before.exits, rest.after.exits), (1, 525, 575));
    found.sort(ComparisonOrder::Exits);
    assert_eq!(order(&found), [VINTR, MSR]);
    found.sort(ComparisonOrder::Name);
    assert_eq!(order(&found), [MSR, VINTR]);
    for order in ["time", "rate", "mean", "exits", "name"] {
        assert_eq!(order.parse::<ComparisonOrder>().unwrap().to_string(), order);
    }
    assert!("p99".parse::<ComparisonOrder>().unwrap_err().to_string().contains("time, rate"));
}

#[test]
fn what_is_gone_for_sure_comes_before_what_changed_by_chance() {
    // A bursty load with twice as many bursts, which is no significant change.
    let bursts = |cells: &[u64], count: u64| -> Vec<Some> {
        cells.iter().flat_map(|&cell| (0..5).map(move |step| (MSR, cell + step, count, 2000))).collect()
    };
    let before = profile(1, 100, &[bursts(&[0, 40], 300), even(VINTR, 100, 5, 1000)].concat());
    let after = profile(1, 100, &bursts(&[10, 50, 80, 90], 300));
    for order in [ComparisonOrder::Time, ComparisonOrder::Rate] {
        let mut found = compared(&before, &after);
        found.sort(order);
        let (gone, by_chance) = (row(&found, VINTR), row(&found, MSR));
        assert_eq!((gone.rate.effect(), by_chance.rate.effect()), (Effect::Less, Effect::Indistinguishable));
        assert!(
            by_chance.after.rate - by_chance.before.rate > gone.before.rate,
            "the larger change is by chance"
        );
        let reasons: Vec<_> = found.rows.iter().map(|row| row.subject.reason.unwrap()).collect();
        assert_eq!(reasons, [VINTR, MSR], "{order}");
        found.keep_top(1, order);
        assert_eq!(found.rows[0].subject.reason, Some(VINTR));
    }
}

#[test]
fn files_keep_everything() {
    let before = profile(1, 100, &[even(MSR, 100, 10, 1000), even(VINTR, 100, 2, 500)].concat());
    let found = compared(&before, &profile(1, 100, &even(MSR, 100, 10, 1000)));
    let json = serde_json::to_string(&found).unwrap();
    assert!(json.contains(r#""basis":{"method":"blocks","before":101,"after":101}"#), "{json}");
    let read: ProfileComparison = serde_json::from_str(&json).unwrap();
    assert_eq!(read.rows.len(), found.rows.len());
    assert_eq!(read.rows[1].subject, found.rows[1].subject);
}

fn some_exits() -> impl Strategy<Value = Vec<Some>> {
    let reason = prop_oneof![Just(HLT), Just(MSR), Just(IO)];
    let ns = prop_oneof![Just(0), 1..5000_u64, Just(1 << 40)];
    proptest::collection::vec((reason, 0..120_u64, 1..40_u64, ns), 0..60)
}

fn estimates(row: &ComparedRow) -> impl Iterator<Item = Estimate> {
    [Some(row.rate), row.time, row.mean].into_iter().flatten()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_figure_is_a_number(before in some_exits(), after in some_exits(), cells in 0..130_u64) {
        let (before, after) = (profile(1, cells, &before), profile(1, 120, &after));
        for grouping in [vec![Dimension::Reason], vec![Dimension::Vm], vec![Dimension::Vcpu], vec![Dimension::Port]] {
            let options = ComparisonOptions { grouping: Grouping::new(grouping).unwrap(), ..ComparisonOptions::default() };
            let found = ProfileComparison::new(&[(&before).into()], &[(&after).into()], &options);
            // JSON has no infinities and no NaN: they would become null.
            let json = serde_json::to_value(&found).unwrap();
            serde_json::from_value::<ProfileComparison>(json).unwrap();
            for estimate in found.rows.iter().chain([&found.total]).flat_map(estimates) {
                let Some(interval) = estimate.interval else { continue };
                let percent = estimate.change.percent();
                let room = 1e-6 * (100.0 + percent.unwrap_or(0.0));
                prop_assert!(percent.is_none_or(|percent| interval.low <= percent + room), "{estimate:?}");
                prop_assert!(percent.is_none_or(|percent| interval.high >= percent - room));
            }
        }
    }

    #[test]
    fn exchanging_the_sides_exchanges_the_ends(before in some_exits(), after in some_exits()) {
        let (before, after) = (profile(1, 120, &before), profile(1, 120, &after));
        let (there, back) = (compared(&before, &after), compared(&after, &before));
        // Near -100 % a percentage has fewer significant digits than the ratio.
        let near = |a: f64, b: f64| {
            let [a, b] = [a, b].map(|percent| 1.0 + percent / 100.0);
            (a.ln() + b.ln()).abs() < 1e-6 + 1e-13 / a.min(b)
        };
        for row in there.rows.iter().chain([&there.total]) {
            let other = back.rows.iter().chain([&back.total]).find(|other| other.subject == row.subject).unwrap();
            for (there, back) in estimates(row).zip(estimates(other)) {
                let method = |estimate: Estimate| estimate.basis.map(|basis| std::mem::discriminant(&basis));
                prop_assert_eq!(method(there), method(back));
                let (Some(there), Some(back)) = (there.interval, back.interval) else { continue };
                if there.high.is_finite() && back.high.is_finite() {
                    let (high, other_high) = (there.high, back.high);
                    prop_assert!(there.low == -100.0 || near(there.low, other_high), "{there:?} {back:?}");
                    prop_assert!(back.low == -100.0 || near(back.low, high), "{there:?} {back:?}");
                }
            }
        }
    }
}
