//! The collector's programs and maps on the running kernel, with system calls instead of exits: the calls are ours,
//! so exact numbers can be expected.
//!
//! Needs the privilege to load eBPF programs; otherwise the tests are skipped.

mod may;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use exits::{ExitReason, LongOptions, Losses, Profile};
use live::{Collector, LiveExit, Recorder, Watch};
use may::may;
use proptest::prelude::*;

/// The number of `getppid`, which no library calls on its own.
const GETPPID: ExitReason = ExitReason::vmx(110);
const THREADS: u64 = 8;
const CALLS: u64 = 5_000;

fn own() -> Watch {
    Watch { processes: Some(vec![std::process::id()]), ..Watch::default() }
}

fn call(times: u64) {
    for _ in 0..times {
        // SAFETY: takes nothing and changes nothing.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
}

fn load() {
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(|| call(CALLS)))));
}

fn calls(profile: &Profile) -> u64 {
    profile.reasons().get(&GETPPID).map_or(0, |exits| exits.count)
}

/// The tries for one in which no program is skipped. If the kernel preempts a thread within a program, it skips the
/// program for all other threads on that CPU, also those of other processes, and counts that.
const TRIES: u32 = 50;

#[test]
fn every_call_of_every_thread_is_counted_and_timed() {
    'ways: for no_raw_tracepoints in [None, Some("to test".to_owned())] {
        let watch = Watch { no_raw_tracepoints, ..own() };
        for number in 0..TRIES {
            let Some(collector) = may(Collector::attach_to_system_calls(&watch)) else { continue 'ways };
            if number == 0 {
                load();
            } else {
                // In turn, so that they do not preempt each other.
                (0..THREADS).for_each(|_| thread::spawn(|| call(CALLS)).join().unwrap());
            }
            let profile = collector.finish().unwrap();
            let (counted, made, lost) = (calls(&profile), THREADS * CALLS, profile.losses.lost_exits);
            assert!(counted <= made && counted + lost >= made, "{counted} of {made}, {lost} lost");
            if profile.losses.lost_events > 0 {
                continue;
            }
            assert_eq!(counted, made);
            let threads = profile.vcpus().iter().filter(|one| one.reasons.contains_key(&GETPPID));
            for thread in threads {
                let exits = &thread.reasons[&GETPPID];
                assert_eq!((exits.count, exits.handling.count()), (CALLS, CALLS));
                assert!(exits.handling.min_ns() > Some(10), "{:?}", exits.handling.min_ns());
                assert!(exits.handling.quantile_ns(0.5).unwrap() <= exits.handling.max_ns().unwrap());
                assert_eq!(thread.vcpu.vm, Some(std::process::id()));
            }
            continue 'ways;
        }
        panic!("programs were skipped in each try");
    }
}

/// Each call is in exactly one interval, or among the losses.
#[test]
fn intervals_taken_under_load_add_up() {
    let Some(mut collector) = may(Collector::attach_to_system_calls(&own())) else { return };
    let mut sum = Profile::new();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| call(4 * CALLS))).collect();
        while !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
            sum.merge(&collector.take().unwrap());
        }
    });
    sum.merge(&collector.finish().unwrap());
    // If the kernel preempts a thread within a program, it skips the program for all other threads on that CPU, and
    // counts that. Each call is either counted or among those.
    let (counted, made, lost) = (calls(&sum), THREADS * 4 * CALLS, sum.losses.lost_exits);
    assert!(counted <= made && counted + lost >= made, "{counted} of {made}, {lost} lost");
    assert!(lost > 0 || counted == made);
}

/// Every call has a time or is among those without one, and at most one call per thread is unfinished.
fn is_whole(profile: &Profile) {
    let reasons = profile.reasons();
    let (mut counted, mut timed) = (0, 0);
    for exits in reasons.values() {
        counted += exits.count;
        timed += exits.handling.count();
    }
    let losses = profile.losses;
    assert_eq!(counted, timed + losses.exits_without_entry + losses.exits_at_the_end, "{losses:?}");
    assert!(losses.exits_at_the_end <= THREADS + 1, "{losses:?}");
    assert!(losses.exits_without_entry <= losses.lost_events, "{losses:?}");
}

/// Makes threads call without end while `body` runs.
fn under_load<T>(body: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    call(1);
                }
            });
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        stop.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Recording can end at any moment during the calls of many threads.
    #[test]
    fn every_call_is_timed_or_told_wherever_the_end_is(
        micros in 1_000..30_000_u64, intervals in 0..3_usize, raw in any::<bool>(), accesses in any::<bool>(),
    ) {
        let no_raw_tracepoints = (!raw).then(|| "to test".to_owned());
        let watch = Watch { no_raw_tracepoints, accesses, ..own() };
        let wait = || thread::sleep(Duration::from_micros(micros));
        let sum = under_load(|| {
            let mut collector = may(Collector::attach_to_system_calls(&watch))?;
            let mut sum = Profile::new();
            for _ in 0..intervals {
                wait();
                sum.merge(&collector.take().unwrap());
            }
            wait();
            sum.merge(&collector.finish().unwrap());
            Some(sum)
        });
        sum.iter().for_each(is_whole);
    }

    /// The same for recorders, with a ring buffer and with perf's buffers.
    #[test]
    fn every_recorded_call_is_timed_or_told_wherever_the_end_is(micros in 500..5_000_u64, ring in any::<bool>()) {
        let watch = Watch { no_ring_buffer: !ring, ..own() };
        let counted = under_load(|| {
            let mut recorder = may(Recorder::attach_to_system_calls(&watch))?;
            let (mut all, mut timed) = (0, 0);
            let mut take = |exit: &LiveExit, _: &[live::LiveAccess]| {
                all += 1;
                timed += u64::from(exit.handling_ns.is_some());
            };
            for _ in 0..4 {
                thread::sleep(Duration::from_micros(micros));
                recorder.drain(&mut take);
            }
            let lost = recorder.finish(&mut take).unwrap();
            Some((all, timed, lost.exits_at_the_end, lost.lost_events))
        });
        if let Some((all, timed, open, lost)) = counted {
            prop_assert!(open <= THREADS + 1, "{} open", open);
            prop_assert!(all - timed - open <= lost, "{} of {}, {} open, {} lost", timed, all, open, lost);
        }
    }
}

/// Each thread ends within a call, and there are so many that cells must be freed.
#[test]
fn the_call_in_which_a_thread_ended_is_counted_also_where_room_is_made() {
    const EXIT: ExitReason = ExitReason::vmx(60);
    const ENDED: u64 = 8_000;
    // With tracepoints each thread is a vCPU of its own; with raw ones, vCPUs are identified by stack addresses,
    // which are reused.
    let watch = Watch { no_raw_tracepoints: Some("to test".to_owned()), ..own() };
    let Some(mut collector) = may(Collector::attach_to_system_calls(&watch)) else { return };
    (0..ENDED).for_each(|_| thread::spawn(|| ()).join().unwrap());
    let mut sum = collector.take().unwrap();
    sum.merge(&collector.finish().unwrap());
    let (counted, lost) = (sum.reasons().get(&EXIT).map_or(0, |exits| exits.count), sum.losses.lost_exits);
    assert!(counted <= ENDED && counted + lost >= ENDED, "{counted} of {ENDED}, {lost} lost");
}

#[test]
fn what_finds_no_room_is_summed_or_counted_as_lost() {
    let watch = Watch { room: Some(3), ..own() };
    let made = THREADS * CALLS;
    // On a busy machine, all of these calls may be made while the kernel has preempted a thread within a program.
    for _ in 0..50 {
        let Some(collector) = may(Collector::attach_to_system_calls(&watch)) else { return };
        load();
        let profile = collector.finish().unwrap();
        // Six threads have a place, including the main one; the first ones use up the cells.
        let (counted, lost) = (calls(&profile), profile.losses.lost_exits);
        assert!(counted < made && counted + lost >= made, "{counted} of {made}, {lost} lost");
        let other = profile.vcpus().iter().find(|one| one.vcpu.vm.is_none());
        let summed = other.and_then(|other| other.reasons.get(&GETPPID)).map_or(0, |exits| exits.count);
        assert!(summed <= counted, "{summed} of {counted}");
        let without_vcpu: u64 =
            other.map_or(0, |other| other.reasons.values().map(|exits| exits.count).sum());
        assert_eq!(profile.losses.exits_without_vcpu, without_vcpu);
        if summed >= CALLS {
            return;
        }
    }
    panic!("what found no cell was never summed");
}

#[test]
fn a_recorder_gives_each_call_in_order() {
    [false, true].into_iter().for_each(record);
}

fn record(no_ring_buffer: bool) {
    let watch = Watch { no_ring_buffer, ..own() };
    for _ in 0..TRIES {
        let Some(mut recorder) = may(Recorder::attach_to_system_calls(&watch)) else { return };
        call(CALLS);
        let mut all: Vec<LiveExit> = Vec::new();
        recorder.drain(&mut |exit, _| all.push(*exit));
        call(CALLS);
        let losses = recorder.finish(&mut |exit, _| all.push(*exit)).unwrap();
        // SAFETY: takes nothing and changes nothing.
        let thread = unsafe { libc::gettid() } as u32;
        let ours: Vec<&LiveExit> =
            all.iter().filter(|exit| exit.reason == GETPPID && exit.vcpu.thread == Some(thread)).collect();
        let (counted, made, lost) = (ours.len() as u64, 2 * CALLS, losses.lost_exits);
        assert!(counted <= made && counted + lost >= made, "{counted} of {made}, {lost} lost");
        assert!(ours.is_sorted_by_key(|exit| exit.time_ns));
        if losses.lost_events == 0 {
            let nothing = Losses { exits_at_the_end: losses.exits_at_the_end, ..Losses::default() };
            assert_eq!((counted, losses), (made, nothing));
            assert!(ours.iter().all(|exit| exit.handling_ns.is_some_and(|ns| ns > 0)));
            return;
        }
    }
    panic!("programs were skipped in each try");
}

#[test]
fn short_exits_are_counted_and_do_not_leave_the_kernel() {
    // No call takes as long.
    let long = Some(LongOptions { bound_ns: 1 << 60, sleep: true });
    for no_ring_buffer in [false, true] {
        let watch = Watch { long, no_ring_buffer, ..own() };
        let Some(mut recorder) = may(Recorder::attach_to_system_calls(&watch)) else { return };
        call(CALLS);
        let mut recorded = 0;
        recorder.drain(&mut |exit, _| recorded += u64::from(exit.reason == GETPPID));
        let (counted, slept) = recorder.counted().unwrap();
        let lost = recorder.lost().unwrap().lost_exits;
        assert!(counted + lost >= CALLS, "{counted} of {CALLS}, {lost} lost");
        assert_eq!(slept, 0);
        // About one a second, and those whose entry was missed.
        assert!(recorded < CALLS / 2, "{recorded} of {CALLS}");
    }
}

#[test]
fn exits_for_which_perfs_buffers_had_no_place_are_told_once() {
    // The buffer of 1 MiB has room for 16,000 of them.
    const MANY: u64 = 100_000;
    let watch = Watch { no_ring_buffer: true, ..own() };
    let Some(mut recorder) = may(Recorder::attach_to_system_calls(&watch)) else { return };
    let mut recorded = 0;
    let mut take = |exit: &LiveExit, _: &[live::LiveAccess]| recorded += u64::from(exit.reason == GETPPID);
    // On one CPU: a buffer reports its losses before the next record that fits.
    thread::spawn(|| {
        stay_on_this_processor();
        call(MANY);
    })
    .join()
    .unwrap();
    recorder.drain(&mut take);
    (0..THREADS).for_each(|_| thread::spawn(|| call(CALLS)).join().unwrap());
    let lost = recorder.finish(&mut take).unwrap().lost_exits;
    let made = MANY + THREADS * CALLS;
    assert!(lost > MANY / 2, "{lost} lost");
    assert!(recorded + lost >= made, "{recorded} and {lost} of {made}");
    // This process makes few other calls.
    assert!(recorded + lost < made + lost / 4, "{recorded} and {lost} of {made}");
}

fn stay_on_this_processor() {
    // SAFETY: all zeros are an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: takes nothing.
    let here = unsafe { libc::sched_getcpu() };
    // SAFETY: the number is that of a processor.
    unsafe { libc::CPU_SET(usize::try_from(here).unwrap(), &mut set) };
    // SAFETY: the set is valid, and of the size that is given.
    let set = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    assert_eq!(set, 0);
}

#[test]
fn thousands_of_processes_can_be_watched() {
    // Above the largest number of a process (`PID_MAX_LIMIT` in include/linux/threads.h), except ours.
    let others = (1..=1_500).map(|number| (1 << 22) + number);
    let watch = Watch { processes: Some(others.chain([std::process::id()]).collect()), ..Watch::default() };
    let Some(collector) = may(Collector::attach_to_system_calls(&watch)) else { return };
    call(CALLS);
    let profile = collector.finish().unwrap();
    let (counted, lost) = (calls(&profile), profile.losses.lost_exits);
    assert!(counted + lost >= CALLS, "{counted} of {CALLS}, {lost} lost");
}

#[test]
fn processes_that_are_not_watched_are_not_counted() {
    let watch = Watch { processes: Some(vec![1]), ..Watch::default() };
    let Some(collector) = may(Collector::attach_to_system_calls(&watch)) else { return };
    call(CALLS);
    assert_eq!(calls(&collector.finish().unwrap()), 0);
}
