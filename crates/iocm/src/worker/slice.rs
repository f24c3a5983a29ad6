//! The slice of a worker's thread.
//!
//! A thread that wakes up gets the CPU of another one at once only if its own slice ends first (EEVDF:
//! `check_preempt_wakeup_fair` in kernel/sched/fair.c, Linux 6.18). If all slices have the same length, it often waits for
//! the scheduler's next tick instead. A shorter slice does not change a thread's share of the CPU.

use super::deadline::done;
use std::io;

/// The slice, nanoseconds: the shortest that the kernel gives (`__setparam_fair` in kernel/sched/syscalls.c, from Linux
/// 6.12 on). Earlier kernels ignore it for threads of the usual policy.
const SLICE_NS: u64 = 100_000;

/// Shortens the slice of this thread, and of those that it starts, also in the kernel. If an administrator gave the thread
/// another policy than the usual one, it keeps its attributes.
pub(super) fn shorten() -> io::Result<()> {
    let mut attributes = of(0)?;
    if attributes.sched_policy != libc::SCHED_OTHER.unsigned_abs() {
        return Ok(());
    }
    attributes.sched_runtime = SLICE_NS;
    set(&attributes)
}

/// The attributes of the thread with this ID; 0 is the calling one.
fn of(thread: i32) -> io::Result<libc::sched_attr> {
    // SAFETY: the structure is valid when zeroed.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of_val(&attributes);
    // SAFETY: the call writes at most as many bytes as `attributes` has.
    done(unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut attributes, size, 0) })?;
    attributes.size = size as u32;
    Ok(attributes)
}

/// Sets the attributes of the calling thread.
fn set(attributes: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the call reads as many bytes as `attributes` says that it has.
    done(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attributes, 0) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::{Routes, Worker, WorkerOptions};
    use super::*;

    /// Tests whether the kernel knows slices, and lets threads set theirs.
    fn has_slices() -> bool {
        let has = of(0).is_ok_and(|own| own.sched_runtime > 0 && set(&own).is_ok());
        if !has {
            println!("not tested: this host's threads have no slices to set (Linux 6.12)");
        }
        has
    }

    #[test]
    fn a_workers_thread_has_a_short_slice() {
        if has_slices() {
            let worker = Worker::start(0, &WorkerOptions::default(), &Routes::new()).unwrap();
            assert_eq!(of(worker.thread_id()).unwrap().sched_runtime, SLICE_NS);
        }
    }

    #[test]
    fn a_thread_keeps_its_policy_and_its_priority() {
        if !has_slices() {
            return;
        }
        for (policy, is_shorter) in [(libc::SCHED_OTHER, true), (libc::SCHED_BATCH, false)] {
            // The attributes belong to the thread, and end with it.
            let attributes = std::thread::spawn(move || {
                let mut own = of(0).unwrap();
                own.sched_policy = policy.unsigned_abs();
                own.sched_nice = (own.sched_nice + 1).min(19);
                own.sched_runtime = 2_000_000;
                set(&own).unwrap();
                let before = of(0).unwrap();
                shorten().unwrap();
                [before, of(0).unwrap()]
            });
            let [before, after] = attributes.join().unwrap();
            assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
            let wanted = if is_shorter { SLICE_NS } else { before.sched_runtime };
            assert_eq!((before.sched_runtime, after.sched_runtime), (2_000_000, wanted), "{policy}");
        }
    }
}
