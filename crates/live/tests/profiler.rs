//! The profiler on the running kernel, with system calls instead of exits.
//!
//! Needs the privilege to load eBPF programs; otherwise the tests are skipped.

mod may;

use exits::ExitReason;
use hotspots::{Activity, Recording, Selection, Summary};
use live::{Profiler, Sampling, Watch};
use may::may;

/// The numbers of `read` and `nanosleep` on x86-64.
const READ: ExitReason = ExitReason::vmx(0);
const NANOSLEEP: ExitReason = ExitReason::vmx(35);

fn profiler(sampling: &Sampling) -> Option<Profiler> {
    let watch = Watch { processes: Some(vec![std::process::id()]), ..Watch::default() };
    may(Profiler::attach_to_system_calls(&watch, sampling))
}

/// Reads a MiB of zeros `times` times, about 50 us in the kernel each. Not for a given time, of which other load may
/// leave little.
fn read_zeros(times: usize) {
    let mut zeros = std::fs::File::open("/dev/zero").unwrap();
    let mut buffer = vec![0; 1 << 20];
    for _ in 0..times {
        std::io::Read::read_exact(&mut zeros, &mut buffer).unwrap();
    }
}

fn row(recording: &Recording, reason: ExitReason) -> hotspots::ReasonRow {
    let summary = Summary::of(recording, &Selection::default());
    summary.reasons.into_iter().find(|row| row.reason == reason).expect("the reason has samples")
}

#[test]
fn samples_are_of_the_call_that_they_met_with_names_of_the_kernel_and_of_this_program() {
    let sampling = Sampling { frequency_hz: 499, ..Sampling::default() };
    let Some(mut profiler) = profiler(&sampling) else { return };
    profiler.follow(std::process::id(), &[]).unwrap();
    for _ in 0..40 {
        read_zeros(250);
        profiler.drain().unwrap();
    }
    let (recording, profile) = profiler.finish().unwrap();
    let row = row(&recording, READ);
    assert!(row.samples > 20, "{} samples", row.samples);
    assert_eq!(row.exits, profile.reasons()[&READ].count);
    // Nearly all time was spent in the call, and the samples agree with the clock.
    assert!(row.on_cpu_ns > 50_000_000, "{} ns", row.on_cpu_ns);
    // If time off the CPU is not measured, it may include that of other threads.
    if recording.head.away {
        let ratio = row.sampled_ns.value / row.on_cpu_ns as f64;
        assert!((0.5..2.0).contains(&ratio), "{ratio}");
    } else {
        eprintln!("not tested: time by samples against time by the clock: {:?}", recording.head.notes);
    }
    let notes = &recording.head.notes;
    assert!(notes.iter().all(|note| notes.iter().filter(|other| *other == note).count() == 1), "{notes:?}");
    assert!(recording.losses.ticks >= row.samples);
    let named = |name: &str| row.by_total.iter().any(|row| row.frame.to_string().contains(name));
    let shown = || row.by_total.iter().map(|row| row.frame.to_string()).collect::<Vec<_>>();
    assert!(
        recording.head.notes.iter().any(|note| note.contains("kallsyms")) || named("read_zero"),
        "{:?}",
        shown()
    );
    assert!(named("read"), "{:?}", shown());
}

/// The number of times that this thread gave up its CPU (`ru_nvcsw`, getrusage(2)).
fn sleeps() -> u64 {
    // SAFETY: all zeros are a valid `struct rusage`, which the call fills.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the place is valid for writes during the call.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
    u64::try_from(usage.ru_nvcsw).unwrap()
}

#[test]
fn a_thread_that_sleeps_within_is_away_and_not_on_a_processor() {
    let Some(mut profiler) = profiler(&Sampling::default()) else { return };
    let times = 10;
    // The timer may fire before the thread has left its CPU, if a hypervisor below preempts it: count how often it
    // really slept.
    let mut slept = 0;
    for _ in 0..times {
        let before = sleeps();
        // Much longer than the time until the thread leaves its CPU. Not through the C library, which uses another
        // system call.
        let time = libc::timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        // SAFETY: the time is valid, and the remaining time is not requested.
        unsafe {
            libc::syscall(libc::SYS_nanosleep, &raw const time, std::ptr::null_mut::<libc::timespec>())
        };
        slept += sleeps() - before;
        profiler.drain().unwrap();
    }
    let (recording, _) = profiler.finish().unwrap();
    if !recording.head.away {
        eprintln!("not tested: {:?}", recording.head.notes);
        return;
    }
    let row = row(&recording, NANOSLEEP);
    assert_eq!(row.exits, times);
    // The timer starts before the thread leaves its CPU, and the gap is longer on a busy machine. If this thread
    // replaced one that was in a traced system call, Linux 6.18 sometimes (1 of 1,000) produced no event for the
    // switch, not even in ftrace's buffer.
    let seen = slept.saturating_sub(1);
    let least_ns = seen * 90_000_000;
    assert!(slept > times / 2, "the thread slept {slept} times");
    // The wait for a CPU after each sleep, which is long on a busy machine, does not count.
    assert!(row.away.times >= seen && row.away.asleep_ns() >= least_ns, "{:?} of {slept}", row.away);
    assert!(row.on_cpu_ns < row.handling_ns / 2, "{row:?}");
    let moment = &row.moments[0];
    assert!(moment.away.away_ns >= least_ns, "{moment:?}");
}

#[test]
fn what_is_not_watched_is_not_sampled() {
    let watch = Watch { processes: Some(vec![1]), ..Watch::default() };
    let Ok(profiler) = Profiler::attach_to_system_calls(&watch, &Sampling::default()) else {
        eprintln!("not tested: no program can be loaded here");
        return;
    };
    read_zeros(1000);
    let (recording, _) = profiler.finish().unwrap();
    let ours = std::process::id();
    assert!(recording.stacks.iter().all(|stack| stack.vm != Some(ours)), "{:?}", recording.stacks);
    assert!(recording.stacks.iter().all(|stack| stack.activity != Activity::Guest || stack.vm == Some(1)));
}
