use super::*;
use exits::Direction;

fn event(kind: Kind, time_ns: u64, value: u64) -> Event {
    Event { time_ns, value, extra: 0, thread: 1, cpu: 0, kind }
}

const MSR: ExitReason = ExitReason::svm(0x7c);

struct Run {
    pairing: Pairing,
    shared: Shared,
    closed: Vec<Closed>,
}

fn run(events: &[Event]) -> Run {
    run_with(events, LossMarks::default(), 0..u64::MAX)
}

fn run_with(events: &[Event], marks: LossMarks, time: std::ops::Range<u64>) -> Run {
    let mut shared = Shared {
        timeline: Timeline::default(),
        losses: Losses::default(),
        marks,
        access_room: AccessRoom(10),
        reason_room: ReasonRoom::default(),
        beyond: ReasonRows::default(),
        whole_exits: false,
        note_accesses: true,
        from_ns: time.start,
        to_ns: time.end,
    };
    let (mut pairing, mut closed) = (Pairing::default(), Vec::new());
    for event in events {
        pairing
            .step(event, Some(7), &mut shared, &mut |exit: &Closed, _: &[AccessRecord]| closed.push(*exit));
    }
    pairing.finish(&mut shared, &mut |exit: &Closed, _: &[AccessRecord]| closed.push(*exit));
    Run { pairing, shared, closed }
}

impl Run {
    fn handling(&mut self, access: Access) -> (u64, Option<u64>) {
        let row = self.pairing.accesses.get(access);
        row.map_or((0, None), |row| (row.count, row.handling.max_ns()))
    }
}

fn exit(time_ns: u64) -> Event {
    event(Kind::Exit, time_ns, Event::exit(MSR))
}

fn entry(time_ns: u64) -> Event {
    event(Kind::Entry, time_ns, 0)
}

#[test]
fn an_exit_is_handled_until_the_next_entry() {
    let run = run(&[entry(5), exit(10), entry(17), exit(30)]);
    let times: Vec<_> = run.closed.iter().map(|closed| (closed.exit.time_ns, closed.handling_ns)).collect();
    assert_eq!(times, [(10, Some(7)), (30, None)]);
    let losses = Losses { exits_at_the_end: 1, entries_without_exit: 1, ..Losses::default() };
    assert_eq!(run.shared.losses, losses);
    assert_eq!(run.shared.timeline.by_reason()[&MSR][0], exits::Slice { count: 2, handling_ns: 7 });
}

#[test]
fn an_exit_after_an_exit_leaves_the_first_unpaired() {
    let run = run(&[exit(10), exit(20), entry(21)]);
    assert_eq!(run.shared.losses.exits_without_entry, 1);
    assert_eq!(run.closed[1].handling_ns, Some(1));
}

#[test]
fn no_time_is_taken_across_a_loss() {
    let mut marks = LossMarks::default();
    marks.mark(0, 10);
    marks.event(0, 20);
    let events = [exit(10), event(Kind::MsrWrite, 12, 0x830), entry(20), exit(30), entry(31)];
    let mut run = run_with(&events, marks, 0..u64::MAX);
    assert_eq!(run.shared.losses.pairs_across_loss, 1);
    assert_eq!(run.closed.iter().map(|closed| closed.handling_ns).collect::<Vec<_>>(), [None, Some(1)]);
    let icr = Access::Msr { number: 0x830, direction: Direction::Write };
    assert_eq!(run.handling(icr), (1, None));
}

#[test]
fn time_never_runs_backwards() {
    let run = run(&[exit(10), entry(9)]);
    assert_eq!(run.shared.losses.pairs_back_in_time, 1);
    assert_eq!(run.closed[0].handling_ns, None);
}

#[test]
fn accesses_are_measured_as_perf_does() {
    let read = |address| Access::Mmio { address, direction: Direction::Read };
    let write = |address| Access::Mmio { address, direction: Direction::Write };
    let mut run = run(&[
        exit(100),
        event(Kind::PortWrite, 110, 0x3f8),
        entry(150),
        exit(200),
        event(Kind::MmioUnsatisfied, 210, 0xd000),
        event(Kind::MmioRead, 240, 0xd000),
        // A second read in one exit is not timed, as in perf.
        event(Kind::MmioRead, 245, 0xd008),
        event(Kind::MmioWrite, 250, 0xd000),
        entry(260),
        exit(300),
        event(Kind::IncompleteIpi, 310, 1),
        entry(350),
    ]);
    let port = Access::Port { port: 0x3f8, direction: Direction::Write };
    assert_eq!(run.handling(port), (1, Some(40)));
    assert_eq!(run.handling(read(0xd000)), (1, Some(40)));
    assert_eq!(run.handling(read(0xd008)), (1, None));
    assert_eq!(run.handling(write(0xd000)), (1, Some(10)));
    assert_eq!(run.handling(Access::IncompleteIpi { id: 1 }), (1, Some(50)));
    assert_eq!(run.closed[1].access, Some(write(0xd000)));
}

#[test]
fn only_exits_that_begin_in_time_count() {
    let events =
        [exit(10), event(Kind::MsrRead, 11, 0x10), entry(25), exit(30), entry(40), exit(50), entry(60)];
    let mut run = run_with(&events, LossMarks::default(), 20..50);
    assert_eq!(run.closed.iter().map(|closed| closed.exit.time_ns).collect::<Vec<_>>(), [30]);
    assert_eq!(run.shared.losses, Losses::default());
    let tsc = Access::Msr { number: 0x10, direction: Direction::Read };
    assert_eq!(run.handling(tsc), (0, None));
}

#[test]
fn accesses_whose_exit_was_lost_count_by_their_own_time() {
    let port = |time_ns| event(Kind::PortWrite, time_ns, 0x3f8);
    let mut events = vec![port(10), entry(12), exit(30), entry(40), port(45), entry(48), port(50), entry(52)];
    // More than may precede an exit.
    events.extend((60..80).map(|time_ns| event(Kind::MsrWrite, time_ns, 0x830)));
    let mut run = run_with(&events, LossMarks::default(), 20..50);
    assert_eq!(run.handling(Access::Port { port: 0x3f8, direction: Direction::Write }), (1, None));
    assert_eq!(run.handling(Access::Msr { number: 0x830, direction: Direction::Write }), (0, None));
    assert_eq!(run.closed.len(), 1);
    // Nor do they take the time since an exit before, even if the clock went back.
    let read = event(Kind::MmioRead, 40, 0xd000);
    let mut run = run_with(&[exit(30), exit(10), entry(35), read], LossMarks::default(), 20..50);
    assert_eq!(run.handling(Access::Mmio { address: 0xd000, direction: Direction::Read }), (1, None));
}

#[test]
fn exits_of_nested_guests_go_by_the_reason_of_the_exit_and_who_handles_them() {
    let of = |to_l1| Access::Nested { reason: MSR, to_l1 };
    // L1 is told a different reason.
    let npf = Event::exit(ExitReason::svm(0x400));
    let mut run = run(&[
        exit(100),
        event(Kind::NestedExit, 110, Event::exit(MSR)),
        event(Kind::NestedToL1, 120, npf),
        entry(150),
        exit(200),
        event(Kind::NestedExit, 210, Event::exit(MSR)),
        event(Kind::MsrRead, 215, 0x1b),
        entry(230),
        exit(300),
        entry(310),
    ]);
    assert_eq!(run.handling(of(false)), (2, Some(30)), "the host alone took the second");
    assert_eq!(run.handling(of(true)), (1, Some(50)), "the whole exit");
    let msr = Access::Msr { number: 0x1b, direction: Direction::Read };
    assert_eq!(run.handling(msr), (1, Some(15)));
    assert_eq!(run.closed[1].access, Some(msr), "what was accessed stays");
}

#[test]
fn no_time_is_taken_of_a_read_where_the_processor_of_the_exit_lost_events() {
    let mut marks = LossMarks::default();
    marks.mark(0, 10);
    let read = Event { cpu: 1, ..event(Kind::MmioRead, 990, 0xfee0_0020) };
    let mut run = run_with(&[exit(10), read, Event { cpu: 1, ..entry(995) }], marks, 0..u64::MAX);
    let read = Access::Mmio { address: 0xfee0_0020, direction: Direction::Read };
    assert_eq!(run.handling(read), (1, None));
    assert_eq!(run.shared.losses.pairs_across_loss, 1);
}

#[test]
fn what_the_fast_path_of_svm_accesses_before_the_exit_is_of_that_exit() {
    let (apic, msr) = (event(Kind::ApicWrite, 20, 0x300), event(Kind::MsrWrite, 21, 0x830));
    let icr = Access::Msr { number: 0x830, direction: Direction::Write };
    let register = Access::Apic { register: 0x300, direction: Direction::Write };
    let mut of_msr = run(&[entry(5), apic, msr, exit(25), entry(40)]);
    assert_eq!((of_msr.handling(icr), of_msr.handling(register)), ((1, Some(19)), (1, Some(20))));
    assert_eq!((of_msr.closed[0].access, of_msr.closed[0].handling_ns), (Some(icr), Some(15)));
    let npf = Event { value: Event::exit(ExitReason::svm(0x400)), ..exit(25) };
    for events in [
        // The exits of these accesses were lost.
        &[entry(5), apic, msr, npf, entry(40)][..],
        &[entry(5), apic, msr, entry(23), exit(25), entry(40)],
        &[entry(5), apic, msr],
    ] {
        let mut other = run(events);
        assert_eq!((other.handling(icr), other.handling(register)), ((1, None), (1, None)), "{events:?}");
        assert!(other.closed.iter().all(|exit| exit.access.is_none()));
    }
    let mut marks = LossMarks::default();
    marks.mark(0, 21);
    marks.event(0, 25);
    let mut lost = run_with(&[entry(5), apic, msr, exit(25), entry(40)], marks, 0..u64::MAX);
    assert_eq!((lost.handling(icr), lost.closed[0].handling_ns), ((1, None), Some(15)));
    // They count if the exit does.
    let mut late = run_with(&[entry(5), apic, msr, exit(25), entry(40)], LossMarks::default(), 25..u64::MAX);
    assert_eq!(late.handling(icr), (1, Some(19)));
    let mut early = run_with(&[entry(5), apic, msr, exit(25), entry(40)], LossMarks::default(), 0..25);
    assert_eq!(early.handling(icr), (0, None));
}
