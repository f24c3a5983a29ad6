//! The programs and maps of the collector on this machine's own kernel, with system calls in place of exits: which are
//! exact can be told, because the calls are ours.
//!
//! Needs the right to load eBPF programs, and says so where it is missing.

use std::thread;

use exits::{ExitReason, Profile};
use live::{Collector, Error, LiveExit, Recorder, Watch};

/// The number of `getppid`, which no library calls by itself.
const GETPPID: ExitReason = ExitReason::vmx(110);
const THREADS: u64 = 8;
const CALLS: u64 = 5_000;

fn own() -> Watch {
    Watch { processes: Some(vec![std::process::id()]), ..Watch::default() }
}

/// `None` where this user, or this kernel, cannot.
fn may<T>(attached: Result<T, Error>) -> Option<T> {
    match attached {
        Ok(attached) => Some(attached),
        Err(error @ (Error::Load { .. } | Error::NoTracefs { .. } | Error::TracefsDenied { .. })) => {
            eprintln!("not tested: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
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

#[test]
fn every_call_of_every_thread_is_counted_and_timed() {
    for no_raw_tracepoints in [None, Some("to test".to_owned())] {
        let watch = Watch { no_raw_tracepoints, ..own() };
        let Some(collector) = may(Collector::attach_to_system_calls(&watch)) else { continue };
        load();
        let profile = collector.finish().unwrap();
        assert_eq!(calls(&profile), THREADS * CALLS);
        let threads = profile.vcpus().iter().filter(|one| one.reasons.contains_key(&GETPPID));
        for thread in threads {
            let exits = &thread.reasons[&GETPPID];
            assert_eq!((exits.count, exits.handling.count()), (CALLS, CALLS));
            assert!(exits.handling.min_ns() > Some(10), "{:?}", exits.handling.min_ns());
            assert!(exits.handling.quantile_ns(0.5).unwrap() <= exits.handling.max_ns().unwrap());
            assert_eq!(thread.vcpu.vm, Some(std::process::id()));
        }
        assert_eq!(profile.losses.lost_exits, 0);
    }
}

/// However the intervals fall, each call is in one of them, or among the losses.
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
    // A kernel that puts a thread aside within a program leaves the program out for all others of that processor, and
    // tells how often, whoever's calls they were. Each call is counted, or among those.
    let (counted, made, lost) = (calls(&sum), THREADS * 4 * CALLS, sum.losses.lost_exits);
    assert!(counted <= made && counted + lost >= made, "{counted} of {made}, {lost} lost");
    assert!(lost > 0 || counted == made);
}

#[test]
fn what_finds_no_room_is_summed_or_counted_as_lost() {
    let watch = Watch { room: Some(3), ..own() };
    let made = THREADS * CALLS;
    // On a busy machine all of these calls may be made while the kernel has put a thread aside within a program.
    for _ in 0..50 {
        let Some(collector) = may(Collector::attach_to_system_calls(&watch)) else { return };
        load();
        let profile = collector.finish().unwrap();
        // Six threads have a place, the main one among them; the cells are used up by the first that come.
        let (counted, lost) = (calls(&profile), profile.losses.lost_exits);
        assert!(counted < made && counted + lost >= made, "{counted} of {made}, {lost} lost");
        let other = profile.vcpus().iter().find(|one| one.vcpu.vm.is_none());
        let summed = other.and_then(|other| other.reasons.get(&GETPPID)).map_or(0, |exits| exits.count);
        assert!(summed <= counted, "{summed} of {counted}");
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
    let Some(mut recorder) = may(Recorder::attach_to_system_calls(&watch)) else { return };
    call(CALLS);
    let mut all: Vec<LiveExit> = Vec::new();
    recorder.drain(&mut |exit, _| all.push(*exit));
    call(CALLS);
    let (_, lost) = recorder.finish(&mut |exit, _| all.push(*exit)).unwrap();
    assert_eq!(lost, 0);
    // SAFETY: takes nothing and changes nothing.
    let thread = unsafe { libc::gettid() } as u32;
    let ours: Vec<&LiveExit> =
        all.iter().filter(|exit| exit.reason == GETPPID && exit.vcpu.thread == Some(thread)).collect();
    assert_eq!(ours.len() as u64, 2 * CALLS);
    assert!(ours.is_sorted_by_key(|exit| exit.time_ns));
    assert!(ours.iter().all(|exit| exit.handling_ns.is_some_and(|ns| ns > 0)));
}

#[test]
fn processes_that_are_not_watched_are_not_counted() {
    let watch = Watch { processes: Some(vec![1]), ..Watch::default() };
    let Some(collector) = may(Collector::attach_to_system_calls(&watch)) else { return };
    call(CALLS);
    assert_eq!(calls(&collector.finish().unwrap()), 0);
}
