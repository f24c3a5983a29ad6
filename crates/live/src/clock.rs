//! The clock of all live events, and the CPU time of processes and threads.

use std::os::unix::thread::JoinHandleExt;
use std::process::Child;
use std::thread::JoinHandle;
use std::time::Duration;

/// The current time of `CLOCK_MONOTONIC` in nanoseconds: the clock of all live events.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // The clock is never negative.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// CPU time of a process so far; zero once it has been waited for.
pub(crate) fn process_time(process: &Child) -> Duration {
    // SAFETY: the place is valid for writes during the call.
    spent(|clock| unsafe { libc::clock_getcpuclockid(process.id().cast_signed(), clock) })
}

/// CPU time of a thread so far; zero once it has ended.
pub(crate) fn thread_time<T>(thread: &JoinHandle<T>) -> Duration {
    // SAFETY: the thread has not been joined, because joining consumes the handle; the place is valid for writes.
    spent(|clock| unsafe { libc::pthread_getcpuclockid(thread.as_pthread_t(), clock) })
}

/// The current time of the clock whose ID `find` writes; zero if `find` fails.
fn spent(find: impl FnOnce(*mut libc::clockid_t) -> libc::c_int) -> Duration {
    let mut clock = 0;
    if find(&raw mut clock) != 0 {
        return Duration::ZERO;
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock was found; the structure is ours and the kernel fills it.
    match unsafe { libc::clock_gettime(clock, &raw mut time) } {
        0 => Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32),
        _ => Duration::ZERO,
    }
}
