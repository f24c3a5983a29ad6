use super::*;
use exits::ExitReason;
use proptest::prelude::*;

const CPUID: ExitReason = ExitReason::svm(0x72);

fn event(kind: Kind, time_ns: u64, thread: u32, cpu: u16) -> Event {
    let value = if kind == Kind::Exit { Event::exit(CPUID) } else { 3 };
    Event { time_ns, value, extra: 0, thread, cpu, kind }
}

fn profile(options: Options, feed: impl FnOnce(&mut Assembly<'_, ()>)) -> Profile {
    profile_and_warnings(options, feed).0
}

fn profile_and_warnings(
    options: Options,
    feed: impl FnOnce(&mut Assembly<'_, ()>),
) -> (Profile, Vec<String>) {
    let mut sink = ();
    let mut assembly = Assembly::new(options, &mut sink);
    feed(&mut assembly);
    let mut warnings = Vec::new();
    let profile = assembly.finish(&mut warnings);
    (profile, warnings)
}

#[test]
fn a_thread_that_changed_processors_is_put_in_order() {
    // The buffer of CPU 0 is written first, although the thread was on CPU 1 before.
    let profile = profile(Options::default(), |assembly| {
        for event in [event(Kind::Entry, 30, 9, 0), event(Kind::Exit, 40, 9, 0)] {
            assembly.push(&event);
        }
        for event in [event(Kind::Exit, 10, 9, 1), event(Kind::Entry, 12, 9, 1), event(Kind::Exit, 20, 9, 1)]
        {
            assembly.push(&event);
        }
        assembly.round();
        assembly.push(&event(Kind::Entry, 45, 9, 1));
    });
    let exits = &profile.vcpus()[0].reasons[&CPUID];
    assert_eq!((exits.count, exits.handling.count(), exits.handling.total_ns()), (3, 3, 2 + 10 + 5));
    assert!(profile.losses.is_whole());
    assert_eq!(profile.vcpus()[0].vcpu, Vcpu { vm: None, number: Some(3), thread: Some(9) });
    assert_eq!(profile.span, Some(Span { first_ns: 10, last_ns: 45 }));
}

#[test]
fn the_time_is_that_of_all_records() {
    let around = Span { first_ns: 4, last_ns: 900 };
    let run = |options| {
        profile(options, |assembly| {
            for event in
                [event(Kind::Exit, 10, 9, 0), event(Kind::Entry, 15, 9, 0), event(Kind::Exit, 30, 9, 0)]
            {
                assembly.push(&event);
            }
            assembly.observed(around);
            assembly.round();
            assembly.observed(Span { first_ns: 100, last_ns: 200 });
        })
    };
    let whole = run(Options::default());
    assert_eq!((whole.span, whole.total()), (Some(around), 2));
    let part = run(Options { from_ns: Some(7), ..Options::default() });
    assert_eq!((part.span, part.total()), (Some(around), 1));
    assert_eq!(profile(Options::default(), |assembly| assembly.observed(around)).span, Some(around));
}

#[test]
fn no_time_is_taken_across_a_loss_of_the_processor_to_which_a_thread_moves() {
    for appended in [false, true] {
        let profile = profile(Options::default(), |assembly| {
            for event in [event(Kind::Exit, 5, 8, 1), event(Kind::Exit, 10, 9, 0)] {
                assembly.push(&event);
            }
            assembly.lost(1, 7);
            let later =
                [event(Kind::Entry, 60, 9, 1), event(Kind::Exit, 70, 9, 1), event(Kind::Entry, 75, 9, 1)];
            if appended {
                assembly.append(9, &mut later.to_vec(), true, 75);
            } else {
                later.iter().for_each(|event| assembly.push(event));
            }
        });
        assert_eq!(profile.losses.pairs_across_loss, 1);
        let exits = &profile.reasons()[&CPUID];
        assert_eq!((exits.count, exits.handling.count(), exits.handling.total_ns()), (3, 1, 5));
    }
}

#[test]
fn rounds_hand_on_what_is_older_than_the_round_before() {
    let mut sink = Vec::new();
    let mut take = |exit: &ExitRecord| sink.push(exit.time_ns);
    let mut assembly = Assembly::new(Options::default(), &mut take);
    assembly.push(&event(Kind::Exit, 10, 1, 0));
    assembly.round();
    assembly.push(&event(Kind::Entry, 20, 1, 1));
    assembly.push(&event(Kind::Exit, 25, 1, 1));
    assembly.round();
    assert_eq!(assembly.waiting, 2);
    // Too late: newer events were already processed.
    assembly.push(&event(Kind::Entry, 5, 1, 0));
    let profile = assembly.finish(&mut Vec::new());
    assert_eq!(profile.losses.out_of_order, 1);
    assert_eq!(profile.losses.pairs_back_in_time, 1);
    assert_eq!(sink, [10, 25]);
}

#[test]
fn numbers_used_again_are_other_threads() {
    let vcpu = |vm| Vcpu { vm: Some(vm), number: None, thread: Some(5) };
    let profile = profile(Options::default(), |assembly| {
        assembly.introduce(5, vcpu(1));
        assembly.push(&event(Kind::Exit, 1, 5, 0));
        assembly.introduce(5, vcpu(1));
        assembly.introduce(5, vcpu(2));
        assembly.push(&event(Kind::Exit, 2, 5, 0));
    });
    let vms: Vec<_> = profile.vcpus().iter().map(|exits| exits.vcpu.vm).collect();
    assert_eq!(vms, [Some(1), Some(2)]);
}

#[test]
fn a_part_of_the_time() {
    let options = Options { from_ns: Some(10), to_ns: Some(20), ..Options::default() };
    let profile = profile(options, |assembly| {
        for at in 0..4 {
            assembly.push(&event(Kind::Exit, 100 + 10 * at, 1, 0));
            assembly.push(&event(Kind::Entry, 105 + 10 * at, 1, 0));
        }
    });
    assert_eq!(profile.total(), 1);
    assert_eq!(profile.timeline.start_ns(), 0);
}

#[test]
fn recordings_without_rounds_stay_in_bounds() {
    let profile = profile(Options::default(), |assembly| {
        for at in 0..MOST_WAITING as u64 + 10 {
            let kind = if at % 2 == 0 { Kind::Exit } else { Kind::Entry };
            assembly.push(&event(kind, at, 1, 0));
            assert!(assembly.waiting < MOST_WAITING);
        }
    });
    assert_eq!(profile.total(), MOST_WAITING as u64 / 2 + 5);
    assert!(profile.losses.is_whole());
}

/// Exits and entries of a few threads in order of time, each on some CPU.
fn history() -> impl Strategy<Value = Vec<Event>> {
    let step = (0..4u32, 0..3u16, 1..50u64, any::<bool>());
    proptest::collection::vec(step, 1..200).prop_map(|steps| {
        let mut now = 1_000;
        let mut inside = [true; 4];
        let mut events = Vec::new();
        for (thread, cpu, pause, drop) in steps {
            now += pause;
            let was = &mut inside[thread as usize];
            let kind = if *was { Kind::Exit } else { Kind::Entry };
            // Sometimes an event is missing.
            if !(drop && pause == 1) {
                events.push(event(kind, now, thread, cpu));
            }
            *was = !*was;
        }
        events
    })
}

proptest! {
    #[test]
    fn rounds_over_processors_change_nothing(events in history(), every in 1..30usize) {
        let whole = profile(Options::default(), |assembly| events.iter().for_each(|event| assembly.push(event)));
        let rounds = profile(Options::default(), |assembly| {
            for round in events.chunks(every) {
                let mut by_cpu = round.to_vec();
                by_cpu.sort_by_key(|event| std::cmp::Reverse(event.cpu));
                by_cpu.iter().for_each(|event| assembly.push(event));
                assembly.round();
            }
        });
        prop_assert_eq!(whole, rounds);
    }

    #[test]
    fn profiles_of_parts_merge_to_the_whole(events in history(), threads in 0..4u32) {
        let of = |keep: &dyn Fn(&Event) -> bool| profile(Options::default(), |assembly| {
            events.iter().filter(|event| keep(event)).for_each(|event| assembly.push(event));
        });
        let whole = of(&|_| true);
        let mut merged = of(&|event| event.thread < threads);
        merged.merge(&of(&|event| event.thread >= threads));
        prop_assert_eq!(merged, whole);
    }

    #[test]
    fn cutting_in_time_loses_pairs_at_the_cut_only(events in history(), at in 0..200usize) {
        let of = |events: &[Event]| profile(Options::default(), |assembly| {
            events.iter().for_each(|event| assembly.push(event));
        });
        let (early, late) = events.split_at(at.min(events.len()));
        let whole = of(&events);
        let mut merged = of(early);
        merged.merge(&of(late));
        prop_assert_eq!(merged.counts(), whole.counts());
        let pairs = |profile: &Profile| profile.reasons().values().map(|exits| exits.handling.count()).sum::<u64>();
        let cut = pairs(&whole) - pairs(&merged);
        // Each thread can have one unfinished exit at the cut.
        prop_assert!(cut <= 4);
        // Without unfinished exits at the cut, the profiles are identical.
        if cut == 0 && whole.losses == merged.losses {
            prop_assert_eq!(merged, whole);
        }
    }
}

#[test]
fn reasons_beyond_the_limit_share_rows_without_times() {
    let (profile, warnings) = profile_and_warnings(Options::default(), |assembly| {
        assembly.shared.reason_room = ReasonRoom(1);
        for thread in [1, 2, 3] {
            assembly.introduce(thread, Vcpu { vm: Some(thread), number: None, thread: Some(thread) });
            assembly.push(&event(Kind::Exit, 10, thread, 0));
            assembly.push(&event(Kind::Entry, 15, thread, 0));
        }
    });
    assert!(warnings[0].contains("; 2 exits of further ones"), "{warnings:?}");
    let [others, own] = profile.vcpus() else { unreachable!() };
    assert_eq!((others.vcpu, own.vcpu.vm), (Vcpu::default(), Some(1)));
    let figures = [others, own].map(|of| &of.reasons[&CPUID]);
    assert_eq!(figures.map(|exits| exits.count), [2, 1]);
    assert_eq!(figures.map(|exits| exits.handling.total_ns()), [0, 5]);
}

#[test]
fn names_are_no_longer_and_no_more_than_the_kernels() {
    let mut sink = ();
    let mut assembly = Assembly::new(Options::default(), &mut sink);
    assembly.name(PID_MAX_LIMIT - 1, &"ä".repeat(65_000));
    assembly.name(PID_MAX_LIMIT, "none");
    let names = std::collections::BTreeMap::from([(PID_MAX_LIMIT - 1, "ä".repeat(MOST_CHARACTERS))]);
    assert_eq!(assembly.names, names);
}

#[test]
fn threads_beyond_the_limit_share_a_row_without_times() {
    const BEYOND: u32 = 100;
    let feed = |assembly: &mut Assembly<'_, ()>| {
        for thread in 0..MOST_THREADS as u32 + BEYOND {
            let time_ns = 100 * u64::from(thread);
            assembly.introduce(thread, Vcpu { vm: Some(thread), number: None, thread: Some(thread) });
            assembly.push(&event(Kind::Exit, time_ns, thread, 0));
            assembly.push(&event(Kind::Entry, time_ns + 10, thread, 0));
            if thread % 1000 == 0 {
                assembly.round();
            }
        }
        assert_eq!((assembly.threads.len(), assembly.by_key.len()), (MOST_THREADS + 1, MOST_THREADS));
    };
    let (profile, warnings) = profile_and_warnings(Options::default(), feed);
    assert!(warnings[0].contains("; 100 exits of further ones"), "{warnings:?}");
    // Of the others only the last ten are asked for.
    let from_ns = Some(100 * (MOST_THREADS as u64 + 90));
    let (part, warnings) = profile_and_warnings(Options { from_ns, ..Options::default() }, feed);
    assert_eq!((part.vcpus().len(), part.total()), (1, 10));
    assert!(warnings[0].contains("; 10 exits of further ones"), "{warnings:?}");
    let to_ns = Some(1000);
    assert!(profile_and_warnings(Options { to_ns, ..Options::default() }, feed).1.is_empty());
    assert_eq!(profile.total(), MOST_THREADS as u64 + u64::from(BEYOND));
    let [others, own, ..] = profile.vcpus() else { unreachable!() };
    assert_eq!(others.vcpu, Vcpu::default());
    assert_eq!((own.vcpu.vm, own.reasons[&CPUID].handling.total_ns()), (Some(0), 10));
    let exits = &others.reasons[&CPUID];
    assert_eq!((exits.count, exits.handling.count()), (BEYOND.into(), 0));
}
