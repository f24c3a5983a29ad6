//! The slice and the weight of a worker's thread.
//!
//! A thread that wakes up gets the CPU of another one at once only if its own slice ends first (EEVDF:
//! `check_preempt_wakeup_fair` in kernel/sched/fair.c, Linux 6.18). If all slices have the same length, it often waits for
//! the scheduler's next tick instead. A shorter slice does not change a thread's share of the CPU.
//!
//! The share is that of one thread, however many devices a worker serves. With a thread for each device, as QEMU and
//! vhost have them, the devices together would get the shares of all these threads. So a worker lowers its `nice` value
//! until its weight is that of a thread for each of its devices that have requests, and of another one for each device
//! whose requests it carries out itself: a back-end that passes them to the kernel has the shares of the kernel's threads.
//! Those threads do not get the lower value.

use super::deadline::done;
use std::io;

/// The slice, nanoseconds: the shortest that the kernel gives (`__setparam_fair` in kernel/sched/syscalls.c, from Linux
/// 6.12 on). Earlier kernels ignore it for threads of the usual policy.
const SLICE_NS: u64 = 100_000;

/// The steps by which the `nice` value of a worker is lowered while it does the work of so many threads: those with
/// which its weight is nearest to theirs (`sched_prio_to_weight` in kernel/sched/core.c). More threads count as eight, so
/// that each other one keeps a ninth of the CPU.
const STEPS: [i32; 9] = [0, 0, 3, 5, 6, 7, 8, 9, 9];

/// The greatest number of these steps.
pub(crate) const MOST_STEPS: i32 = STEPS[STEPS.len() - 1];

/// A queue counts if it had requests in the last so many nanoseconds. The weight is set this often.
pub(super) const COUNTED_NS: u64 = 100_000_000;

/// The way in which the scheduler treats the thread of a worker.
#[derive(Debug)]
pub(super) struct Scheduling {
    /// The steps by which the `nice` value is lowered now.
    steps: i32,
    /// The most steps by which the thread may lower it.
    most: i32,
    /// The time at which the weight is set next, nanoseconds.
    due: u64,
}

impl Scheduling {
    /// Shortens the slice of this thread, and of those that it starts, also in the kernel, before it first lowers its `nice`
    /// value. If an administrator gave the thread another policy than the usual one, it keeps its attributes.
    pub(super) fn of_this_thread() -> io::Result<Self> {
        let mut attributes = of(0)?;
        if is_usual(&attributes) {
            attributes.sched_runtime = SLICE_NS;
            set(&attributes)?;
        }
        Ok(Self { steps: 0, most: MOST_STEPS, due: 0 })
    }

    /// Tests whether the weight must be set at `now`.
    #[inline]
    pub(super) const fn is_due(&self, now: u64) -> bool {
        now >= self.due
    }

    /// Sets the weight of this thread at `now`. `threads` names those whose work it does, each at least once.
    pub(super) fn set_weight<T: Copy + PartialEq>(&mut self, now: u64, threads: impl Iterator<Item = T>) {
        self.due = now + COUNTED_NS;
        let mut known = [None; STEPS.len() - 1];
        let mut count = 0;
        for thread in threads.map(Some) {
            if !known[..count].contains(&thread) {
                known[count] = thread;
                count += 1;
            }
            if count == known.len() {
                break;
            }
        }
        let wanted = STEPS[count].min(self.most);
        if wanted != self.steps
            && let Err(error) = self.lower_to(wanted)
        {
            // RLIMIT_NICE is a limit of the value, so it may allow fewer steps. Steps back need no permission.
            let allowed = (self.steps + 1..wanted).rev().find(|steps| self.lower_to(*steps).is_ok());
            self.most = allowed.unwrap_or(self.steps);
            let most = self.most;
            tracing::debug!(
                "An I/O worker lowers its nice value by at most {most} of {wanted} steps: {error}"
            );
        }
    }

    /// Lowers the `nice` value by so many steps, from the one that the thread began with or was given since then.
    fn lower_to(&mut self, steps: i32) -> io::Result<()> {
        let mut attributes = of(0)?;
        if is_usual(&attributes) {
            let unlowered = attributes.sched_nice + self.steps;
            attributes.sched_nice = (unlowered - steps).max(-20);
            // The kernel's threads for its requests have shares of their own. Without this flag, those that start now
            // would have the weight of several threads each, also after this thread's value is raised again. With it
            // they do not get its slice either (`sched_fork` in kernel/sched/core.c). Nobody without CAP_SYS_NICE can
            // clear the flag.
            attributes.sched_flags |= u64::from(libc::SCHED_FLAG_RESET_ON_FORK.unsigned_abs());
            set(&attributes)?;
            self.steps = unlowered - attributes.sched_nice;
        }
        Ok(())
    }
}

/// Tests whether a thread has the usual policy, and not one that an administrator gave it.
fn is_usual(attributes: &libc::sched_attr) -> bool {
    attributes.sched_policy == libc::SCHED_OTHER.unsigned_abs()
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
pub(super) mod tests {
    use super::super::{Routes, Worker, WorkerOptions};
    use super::*;
    use io_uring::squeue::Flags;
    use io_uring::{IoUring, opcode, types};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    use std::os::fd::AsRawFd as _;

    /// Tests whether the kernel knows slices, and lets threads set theirs.
    fn has_slices() -> bool {
        let has = of(0).is_ok_and(|own| own.sched_runtime > 0 && set(&own).is_ok());
        if !has {
            println!("not tested: this host's threads have no slices to set (Linux 6.12)");
        }
        has
    }

    /// Tests whether threads may lower their `nice` value. Attributes belong to a thread, and end with it.
    pub(crate) fn may_lower() -> bool {
        let lower = || {
            let mut own = of(0).unwrap();
            own.sched_nice -= MOST_STEPS;
            set(&own).is_ok()
        };
        let may = std::thread::spawn(lower).join().unwrap();
        if !may {
            println!("not tested: this user may not lower a `nice` value (RLIMIT_NICE)");
        }
        may
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
                Scheduling::of_this_thread().unwrap();
                [before, of(0).unwrap()]
            });
            let [before, after] = attributes.join().unwrap();
            assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
            let wanted = if is_shorter { SLICE_NS } else { before.sched_runtime };
            assert_eq!((before.sched_runtime, after.sched_runtime), (2_000_000, wanted), "{policy}");
        }
    }

    /// The weights of the `nice` values from 0 down to -10 (`sched_prio_to_weight` in kernel/sched/core.c).
    const WEIGHTS: [u64; 11] = [1024, 1277, 1586, 1991, 2501, 3121, 3906, 4904, 6100, 7620, 9548];

    #[test]
    fn the_weight_is_that_of_so_many_threads() {
        for (threads, steps) in STEPS.into_iter().enumerate().skip(1) {
            let off = |steps: i32| WEIGHTS[steps as usize].abs_diff(1024 * threads as u64);
            assert_eq!((0..11).min_by_key(|steps| off(*steps)), Some(steps), "{threads}");
        }
    }

    #[test]
    fn a_thread_has_the_weight_of_those_whose_work_it_does() {
        if !may_lower() {
            return;
        }
        let seen = std::thread::spawn(|| {
            let mut scheduling = Scheduling::of_this_thread().unwrap();
            let began = of(0).unwrap().sched_nice;
            let loads = [vec![7], vec![7, 7, 7], vec![7, 8, 7], vec![1, 2, 3], (0..100).collect(), vec![]];
            let steps = loads.map(|threads| {
                scheduling.set_weight(5, threads.into_iter());
                began - of(0).unwrap().sched_nice
            });
            (steps, scheduling.due, of(0).unwrap().sched_runtime)
        });
        let (steps, due, slice) = seen.join().unwrap();
        assert_eq!((steps, due), ([0, 0, 3, 5, 9, 0], 5 + COUNTED_NS));
        assert!(slice == SLICE_NS || !has_slices(), "{slice}");
    }

    /// The `nice` values of the threads that carry out requests for the threads of this process, in the kernel.
    fn values_in_the_kernel() -> Vec<i32> {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let is_kernels = |name: std::io::Result<String>| name.is_ok_and(|name| name.starts_with("iou-wrk-"));
        let threads =
            threads.filter(|thread| is_kernels(std::fs::read_to_string(thread.path().join("comm"))));
        // Those of other tests may end meanwhile.
        threads
            .filter_map(|thread| Some(of(thread.file_name().to_str()?.parse().ok()?).ok()?.sched_nice))
            .collect()
    }

    #[test]
    fn the_kernels_threads_do_not_get_its_weight() {
        if !may_lower() {
            return;
        }
        let seen = std::thread::spawn(|| {
            let mut ring = IoUring::new(1).ok()?;
            Scheduling::of_this_thread().unwrap().set_weight(5, 0..8);
            let file = tempfile::tempfile().unwrap();
            let sync = opcode::Fsync::new(types::Fd(file.as_raw_fd())).build().flags(Flags::ASYNC);
            // SAFETY: the file is open until the request has completed.
            unsafe { ring.submission().push(&sync) }.unwrap();
            ring.submit_and_wait(1).unwrap();
            Some((of(0).unwrap().sched_nice, values_in_the_kernel()))
        });
        match seen.join().unwrap() {
            // A value above 0 is not reset.
            Some((own, values)) if !values.is_empty() => {
                assert!(values.contains(&own.max(0)), "{own}: {values:?}");
            }
            _ => {
                println!("not tested: this host gives no io_uring, or does not show its threads (Linux 5.12)")
            }
        }
    }

    #[test]
    fn a_thread_lowers_its_value_as_far_as_it_may() {
        const ALLOWED: i32 = 5;
        let began = of(0).unwrap().sched_nice;
        // The limit of a `nice` value of -20 is 40, that of 19 is 1 (getrlimit(2)).
        let wanted = u64::from((20 - (began - ALLOWED)).unsigned_abs());
        let before = getrlimit(Resource::Nice);
        // It is the limit of all threads: a higher one stays, for other tests.
        let raised = Rlimit { current: Some(wanted), maximum: before.maximum.map(|has| has.max(wanted)) };
        let is_raised =
            before.current.is_some_and(|has| has <= wanted) && setrlimit(Resource::Nice, raised).is_ok();
        if !is_raised {
            println!(
                "not tested: this user may lower `nice` values further, or may not change that (RLIMIT_NICE)"
            );
            return;
        }
        let steps = std::thread::spawn(move || {
            // Capabilities belong to a thread, and end with it.
            let mut own = capabilities(None).unwrap();
            own.effective.remove(CapabilitySet::SYS_NICE);
            set_capabilities(None, own).unwrap();
            let mut scheduling = Scheduling::of_this_thread().unwrap();
            [2, 8, 4, 1, 3].map(|threads| {
                scheduling.set_weight(5, 0..threads);
                began - of(0).unwrap().sched_nice
            })
        });
        let steps = steps.join();
        setrlimit(Resource::Nice, before).unwrap();
        assert_eq!(steps.unwrap(), [3, ALLOWED, ALLOWED, 0, ALLOWED]);
    }

    #[test]
    fn a_thread_of_another_policy_keeps_its_weight() {
        let nice = std::thread::spawn(|| {
            let mut own = of(0).unwrap();
            own.sched_policy = libc::SCHED_BATCH.unsigned_abs();
            set(&own).unwrap();
            Scheduling::of_this_thread().unwrap().set_weight(5, 0..8);
            (own.sched_nice, of(0).unwrap().sched_nice)
        });
        let (before, after) = nice.join().unwrap();
        assert_eq!(before, after);
    }

    #[test]
    fn a_nice_value_that_is_given_later_stays() {
        if !may_lower() {
            return;
        }
        let nice = std::thread::spawn(|| {
            let mut scheduling = Scheduling::of_this_thread().unwrap();
            scheduling.set_weight(5, 0..2);
            let mut own = of(0).unwrap();
            own.sched_nice += 4;
            set(&own).unwrap();
            scheduling.set_weight(6, 0..1);
            (own.sched_nice, of(0).unwrap().sched_nice)
        });
        let (given, unlowered) = nice.join().unwrap();
        assert_eq!(unlowered, given + 3);
    }
}
