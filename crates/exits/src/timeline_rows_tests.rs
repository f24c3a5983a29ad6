use super::*;
use crate::{Dimension, ExitReason, Profile, SeriesKey, What, Whose};
use proptest::prelude::*;

const MILLISECOND: u64 = 1 << 20;
const HLT: ExitReason = ExitReason::vmx(12);
const IO: ExitReason = ExitReason::vmx(30);

fn timeline(exits: &[(u32, ExitReason, u64, Slice)]) -> Timeline {
    let mut timeline = Timeline::default();
    for &(vm, reason, time_ns, slice) in exits {
        let series = timeline.series(SeriesKey { vm: Some(vm), reason });
        timeline.add(series, time_ns, slice);
    }
    timeline
}

fn example() -> Timeline {
    let slice = |count, handling_ns| Slice { count, handling_ns };
    timeline(&[
        (1, HLT, 0, slice(2, 900)),
        (2, HLT, 3 * MILLISECOND, slice(1, 100)),
        (2, IO, 9 * MILLISECOND, slice(5, 50)),
    ])
}

fn rows(dimensions: &[Dimension], figure: TimelineFigure) -> TimelineRows {
    TimelineRows::new(&example(), &Grouping::new(dimensions.iter().copied()).unwrap(), figure)
}

const fn span(first_ns: u64, last_ns: u64) -> Span {
    Span { first_ns, last_ns }
}

#[test]
fn by_reason_or_vm_in_the_order_of_the_figure() {
    let whats = |rows: &TimelineRows| rows.rows().iter().map(|row| row.key.what).collect::<Vec<_>>();
    let by_exits = rows(&[Dimension::Reason], TimelineFigure::Exits);
    assert_eq!(whats(&by_exits), [What::Reason(IO), What::Reason(HLT)]);
    assert_eq!(by_exits.rows()[1].total, Slice { count: 3, handling_ns: 1000 });
    assert_eq!(by_exits.rows()[1].slices[3], Slice { count: 1, handling_ns: 100 });
    assert_eq!(whats(&rows(&[Dimension::Reason], TimelineFigure::Time))[0], What::Reason(HLT));
    let by_vm = rows(&[Dimension::Vm], TimelineFigure::Exits);
    assert_eq!(by_vm.rows()[0].key, Key { whose: Whose::Vm(Some(2)), what: What::Everything });
    assert_eq!(rows(&[Dimension::Vm, Dimension::Reason], TimelineFigure::Exits).rows().len(), 3);
}

#[test]
fn the_rest_is_one_row() {
    let mut rows = rows(&[Dimension::Vm, Dimension::Reason], TimelineFigure::Exits);
    rows.keep_top(1);
    let rest = rows.rest().unwrap();
    assert_eq!((rest.rows, rest.total), (2, Slice { count: 3, handling_ns: 1000 }));
    assert_eq!(rest.slices[0].count, 2);
    assert_eq!(rest.whose, BTreeSet::from([Whose::Vm(Some(1)), Whose::Vm(Some(2))]));
    rows.keep_top(1);
    assert_eq!(rows.rest().unwrap().rows, 2);
}

#[test]
fn a_column_says_how_long_it_was_watched() {
    let rows = rows(&[Dimension::Reason], TimelineFigure::Exits);
    let columns = rows.columns(5, &[span(MILLISECOND / 2, 9 * MILLISECOND + MILLISECOND / 4)]);
    let found: Vec<_> = columns.iter().map(|column| (column.slices.clone(), column.observed_ns)).collect();
    let wide = 2 * MILLISECOND;
    assert_eq!(
        found,
        [
            (0..2, wide - MILLISECOND / 2),
            (2..4, wide),
            (4..6, wide),
            (6..8, wide),
            (8..10, MILLISECOND + MILLISECOND / 4)
        ]
    );
}

#[test]
fn a_sliver_of_a_column_is_one_with_its_neighbour() {
    let rows = rows(&[Dimension::Reason], TimelineFigure::Exits);
    let (first_ns, last_ns) = (MILLISECOND - 10, 9 * MILLISECOND + 10);
    let columns = rows.columns(100, &[span(first_ns, last_ns)]);
    assert_eq!(columns.len(), 8);
    let observed_ns = MILLISECOND + 10;
    let first = Column { slices: 0..2, span: span(first_ns, 2 * MILLISECOND), observed_ns };
    let last = Column { slices: 8..10, span: span(8 * MILLISECOND, last_ns), observed_ns };
    assert_eq!((&columns[0], &columns[7]), (&first, &last));
    assert_eq!(columns[7].sum(&rows.rows()[0].slices, TimelineFigure::Exits), 5);
    assert_eq!(columns[7].sum(&rows.rows()[0].slices, TimelineFigure::Time), 50);
    // Without a duration there is no rate.
    assert!(rows.columns(100, &[span(5, 5)]).is_empty());
}

#[test]
fn exits_that_were_counted_together_leave_no_gaps() {
    const READING: u64 = 1_100_000_000;
    let mut whole = Profile::new();
    for number in 0..40 {
        let mut reading = Profile::new();
        reading.vcpu(Vcpu::default()).reasons.entry(HLT).or_default().count = 1100;
        let first_ns = 7_000_000_000 + number * READING;
        reading.count_over(span(first_ns, first_ns + READING));
        whole.merge(&reading);
    }
    let rows = TimelineRows::new(&whole.timeline, &Grouping::by_reason(), TimelineFigure::Exits);
    let columns = rows.columns(60, &[whole.span.unwrap()]);
    assert_eq!(columns.len(), 21);
    for column in columns {
        let count = column.sum(&rows.rows()[0].slices, TimelineFigure::Exits);
        let rate = count as f64 * 1e9 / column.observed_ns as f64;
        assert!((rate - 1000.0).abs() < 10.0, "{rate} a second");
    }
}

#[test]
fn nothing_has_no_columns() {
    let nothing = TimelineRows::new(&Timeline::default(), &Grouping::by_reason(), TimelineFigure::Exits);
    assert!(nothing.is_empty() && nothing.columns(80, &[span(0, 9)]).is_empty());
    assert!(rows(&[Dimension::Reason], TimelineFigure::Exits).columns(80, &[]).is_empty());
}

const SECOND: u64 = 1_000_000_000;

/// An exit each 10 ms from the first to the last second of each part.
fn steady(parts: &[(u64, u64)]) -> TimelineRows {
    let mut timeline = Timeline::default();
    let series = timeline.series(SeriesKey { vm: Some(1), reason: HLT });
    for number in parts.iter().flat_map(|&(first, last)| first * 100..last * 100) {
        timeline.add(series, number * SECOND / 100, Slice { count: 1, handling_ns: 0 });
    }
    TimelineRows::new(&timeline, &Grouping::by_reason(), TimelineFigure::Exits)
}

fn sums(rows: &TimelineRows, columns: &[Column]) -> Vec<u64> {
    columns.iter().map(|column| column.sum(&rows.rows()[0].slices, TimelineFigure::Exits)).collect()
}

#[test]
fn columns_also_show_the_time_before_the_first_exit_and_after_the_last() {
    let rows = steady(&[(50, 60)]);
    for (observed, quiet) in [(span(0, 60 * SECOND), 0..49), (span(50 * SECOND, 110 * SECOND), 11..60)] {
        let columns = rows.columns(60, &[observed]);
        let sums = sums(&rows, &columns);
        assert_eq!((columns.len(), sums.iter().sum::<u64>()), (60, 1000));
        assert!(sums[quiet].iter().all(|&sum| sum == 0), "{sums:?}");
        assert_eq!(
            (columns[0].span.first_ns, columns[59].span.last_ns),
            (observed.first_ns, observed.last_ns)
        );
        assert!(columns.windows(2).all(|pair| pair[0].span.last_ns == pair[1].span.first_ns));
        assert!(columns.iter().all(|column| column.observed_ns.abs_diff(SECOND) < SECOND / 20));
    }
}

#[test]
fn the_time_between_recordings_lowers_no_rate() {
    let rows = steady(&[(0, 10), (3600, 3610)]);
    let observed = [span(0, 10 * SECOND), span(3600 * SECOND, 3610 * SECOND)];
    for count in [1, 2, 7, 60, 2000] {
        let columns = rows.columns(count, &observed);
        assert_eq!(columns.iter().map(|column| column.observed_ns).sum::<u64>(), 20 * SECOND, "{count}");
        for (column, sum) in columns.iter().zip(sums(&rows, &columns)) {
            let rate = column.per_ns(&rows.rows()[0].slices, TimelineFigure::Exits) * 1e9;
            assert!(rate == 0.0 || (rate - 100.0).abs() < 10.0, "{count}: {rate} a second in {column:?}");
            assert_eq!(sum == 0, column.observed_ns == 0);
        }
    }
    let unobserved = |column: &Column| column.observed_ns == 0;
    assert_eq!(rows.columns(60, &observed).into_iter().filter(unobserved).count(), 58);
}

#[test]
fn a_recording_without_a_duration_has_no_rate() {
    let one = Slice { count: 1, handling_ns: 0 };
    let exits = timeline(&[(1, HLT, 0, one), (1, HLT, 1800 * SECOND, one)]);
    let rows = TimelineRows::new(&exits, &Grouping::by_reason(), TimelineFigure::Exits);
    let columns = rows.columns(60, &[span(0, 10 * SECOND), span(1800 * SECOND, 1800 * SECOND)]);
    let rate = |column: &Column| column.per_ns(&rows.rows()[0].slices, TimelineFigure::Exits) * 1e9;
    assert_eq!(sums(&rows, &columns).iter().sum::<u64>(), 2);
    assert!(columns.iter().map(rate).fold(0.0, f64::max) <= 0.1, "{columns:?}");
}

#[test]
fn exits_outside_of_the_axis_are_in_its_first_or_last_column() {
    let rows = rows(&[Dimension::Reason], TimelineFigure::Exits);
    for observed in [span(4 * MILLISECOND, 6 * MILLISECOND), span(20 * MILLISECOND, 30 * MILLISECOND)] {
        let columns = rows.columns(2, &[observed]);
        assert_eq!((columns[0].slices.start, columns[1].slices.end), (0, 10));
        assert_eq!(columns[0].slices.end, columns[1].slices.start);
    }
}

proptest! {
    #[test]
    fn columns_hold_every_slice_once(
        times in proptest::collection::vec(0..3_000_000_000u64, 1..20),
        count in 0..200usize,
    ) {
        let one = Slice { count: 1, handling_ns: 3 };
        let exits: Vec<_> = times.iter().map(|&time_ns| (1, HLT, time_ns, one)).collect();
        let rows = TimelineRows::new(&timeline(&exits), &Grouping::by_reason(), TimelineFigure::Exits);
        let observed = span(*times.iter().min().unwrap(), *times.iter().max().unwrap() + 1);
        let columns = rows.columns(count, &[observed]);
        prop_assert!(columns.len() <= count.max(1));
        prop_assert!(columns.windows(2).all(|pair| pair[0].slices.end == pair[1].slices.start));
        let sum = |figure| -> u64 {
            columns.iter().map(|column| column.sum(&rows.rows()[0].slices, figure)).sum()
        };
        prop_assert_eq!(sum(TimelineFigure::Exits), times.len() as u64);
        prop_assert_eq!(sum(TimelineFigure::Time), 3 * times.len() as u64);
        let watched: u64 = columns.iter().map(|column| column.observed_ns).sum();
        prop_assert_eq!(watched, observed.length_ns());
    }
}
