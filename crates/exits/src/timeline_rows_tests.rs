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
    let columns = rows.columns(5, span(MILLISECOND / 2, 9 * MILLISECOND + MILLISECOND / 4));
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
    let columns = rows.columns(100, span(MILLISECOND - 10, 9 * MILLISECOND + 10));
    assert_eq!(columns.len(), 8);
    assert_eq!(columns[0], Column { slices: 0..2, observed_ns: MILLISECOND + 10 });
    assert_eq!(columns[7], Column { slices: 8..10, observed_ns: MILLISECOND + 10 });
    assert_eq!(columns[7].sum(&rows.rows()[0].slices, TimelineFigure::Exits), 5);
    assert_eq!(columns[7].sum(&rows.rows()[0].slices, TimelineFigure::Time), 50);
    // All exits at the same time: the duration is zero.
    let instant = rows.columns(1, span(5, 5));
    assert_eq!(instant, [Column { slices: 0..10, observed_ns: 1 }]);
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
    let columns = rows.columns(60, whole.span.unwrap());
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
    assert!(nothing.is_empty() && nothing.columns(80, span(0, 9)).is_empty());
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
        let observed = span(*times.iter().min().unwrap(), *times.iter().max().unwrap());
        let columns = rows.columns(count, observed);
        prop_assert!(columns.len() <= count.max(1));
        prop_assert!(columns.windows(2).all(|pair| pair[0].slices.end == pair[1].slices.start));
        let sum = |figure| -> u64 {
            columns.iter().map(|column| column.sum(&rows.rows()[0].slices, figure)).sum()
        };
        prop_assert_eq!(sum(TimelineFigure::Exits), times.len() as u64);
        prop_assert_eq!(sum(TimelineFigure::Time), 3 * times.len() as u64);
        let watched: u64 = columns.iter().map(|column| column.observed_ns).sum();
        prop_assert!(watched.abs_diff(observed.length_ns()) <= columns.len() as u64);
    }
}
