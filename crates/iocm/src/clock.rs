//! The clocks that a worker reads: monotonic time, CPU time, and the TSC, which costs next to nothing.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock.
#[inline]
#[must_use]
pub(crate) fn now_ns() -> u64 {
    ns(ClockId::Monotonic)
}

/// Nanoseconds of CPU time that this thread has used.
#[must_use]
pub(crate) fn thread_cpu_ns() -> u64 {
    ns(ClockId::ThreadCPUTime)
}

#[inline]
fn ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither clock is ever negative.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Ticks of the TSC.
#[inline]
#[must_use]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction.
    #[allow(unused_unsafe, reason = "safe with newer compilers")]
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
}
