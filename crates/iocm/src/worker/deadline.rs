//! A time limit for the system calls of a worker's thread: a timer whose signal interrupts a call that waits.

use std::io;
use std::marker::PhantomData;
use std::sync::OnceLock;

/// The longest time that a call waits, nanoseconds: the interval of the timer. A signal that comes just before the call has
/// no effect on it, but the next one has.
pub(super) const LIMIT_NS: u64 = 20_000_000;

/// A signal that debuggers pass on, that nothing else here uses, and that does nothing to a process without a handler.
const SIGNAL: libc::c_int = libc::SIGURG;

/// The timer of the thread that created it. Nothing else in the process may handle `SIGURG`.
#[derive(Debug)]
pub(super) struct Deadline {
    timer: libc::c_int,
    _of_this_thread: PhantomData<*const ()>,
    /// The time for which it is set, nanoseconds of the monotonic clock; 0 if it is off. It then expires again and again.
    until: u64,
}

impl Deadline {
    /// A timer for this thread, which is off.
    pub(super) fn new() -> io::Result<Self> {
        if !handles_signal() {
            return Err(io::Error::other("this process uses SIGURG otherwise"));
        }
        // SAFETY: a set of signals is valid when zeroed, and then empty.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the call changes `set`.
        unsafe { libc::sigaddset(&raw mut set, SIGNAL) };
        // SAFETY: the call reads `set`.
        let refused =
            unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
        if refused != 0 {
            return Err(io::Error::from_raw_os_error(refused));
        }
        // SAFETY: the structure is valid when zeroed.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let mut timer: libc::c_int = 0;
        let (clock, event) = (libc::CLOCK_MONOTONIC, &raw const event);
        // SAFETY: the call reads `event` and writes `timer`.
        done(unsafe { libc::syscall(libc::SYS_timer_create, clock, event, &raw mut timer) })?;
        Ok(Self { timer, _of_this_thread: PhantomData, until: 0 })
    }

    /// Lets a call that waits fail with `EINTR` within [`LIMIT_NS`] from now on. `now` in nanoseconds. `false` if the kernel
    /// refuses.
    #[inline]
    pub(super) fn set(&mut self, now: u64) -> bool {
        if self.until.saturating_sub(now) > LIMIT_NS / 2 {
            return true;
        }
        let is_set = self.expire_every(LIMIT_NS);
        self.until = if is_set { now + LIMIT_NS } else { 0 };
        is_set
    }

    /// Tests whether its first signal has come. `now` in nanoseconds.
    #[inline]
    pub(super) const fn is_over(&self, now: u64) -> bool {
        self.until != 0 && self.until < now
    }

    /// Lets calls wait.
    pub(super) fn clear(&mut self) {
        if self.until != 0 && self.expire_every(0) {
            self.until = 0;
        }
    }

    /// Tests whether it is set.
    #[cfg(test)]
    pub(super) const fn is_set(&self) -> bool {
        self.until != 0
    }

    /// Sets the timer, or turns it off with 0.
    fn expire_every(&self, ns: u64) -> bool {
        let time = libc::timespec { tv_sec: 0, tv_nsec: ns as libc::c_long };
        let times = libc::itimerspec { it_interval: time, it_value: time };
        let none = std::ptr::null_mut::<libc::itimerspec>();
        // SAFETY: the call reads `times`.
        let result = unsafe { libc::syscall(libc::SYS_timer_settime, self.timer, 0, &raw const times, none) };
        done(result).is_ok()
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        // SAFETY: the timer is this one's own.
        unsafe { libc::syscall(libc::SYS_timer_delete, self.timer) };
    }
}

/// The result of a system call that [`libc::syscall`] made.
pub(super) fn done(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Gives the signal a handler that does nothing, which lets it interrupt calls, unless it has another one.
fn handles_signal() -> bool {
    extern "C" fn nothing(_: libc::c_int) {}
    static IS_OURS: OnceLock<bool> = OnceLock::new();
    *IS_OURS.get_or_init(|| {
        // SAFETY: the structure is valid when zeroed.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: the call writes `before`.
        let is_known = unsafe { libc::sigaction(SIGNAL, std::ptr::null(), &raw mut before) } == 0;
        if !is_known || ![libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction) {
            return false;
        }
        // SAFETY: the structure is valid when zeroed. Without `SA_RESTART`, calls are not started again.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        // SAFETY: the call reads `action`, whose handler does nothing.
        unsafe { libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()) == 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now_ns;
    use crate::worker::run::timespec;
    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
    use rustix::io::Errno;

    /// Waits for an eventfd that stays empty, for at most this many times the limit.
    fn wait(limits: u64) -> Result<usize, Errno> {
        let empty = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        poll(&mut [PollFd::new(&empty, PollFlags::IN)], Some(&timespec(limits * LIMIT_NS)))
    }

    #[test]
    fn a_call_that_waits_is_interrupted_whenever_it_begins() {
        let mut deadline = Deadline::new().unwrap();
        for turn in 0..5 {
            assert!(deadline.set(now_ns()));
            // Also when the signal has come and gone.
            let end = now_ns() + turn * LIMIT_NS / 2;
            while now_ns() < end {
                std::hint::spin_loop();
            }
            assert_eq!(wait(500), Err(Errno::INTR), "turn {turn}");
        }
    }

    #[test]
    fn it_is_for_one_thread_and_ends_with_it() {
        let mut deadline = Deadline::new().unwrap();
        assert!(deadline.set(now_ns()));
        assert_eq!(std::thread::spawn(|| wait(3)).join().unwrap(), Ok(0));
        assert_eq!(wait(500), Err(Errno::INTR));
        assert!(deadline.is_over(now_ns()) && !deadline.is_over(0));
        deadline.clear();
        assert!(!deadline.is_set() && !deadline.is_over(u64::MAX));
        assert_eq!(wait(3), Ok(0));
        assert!(deadline.set(now_ns()));
        drop(deadline);
        assert_eq!(wait(3), Ok(0));
    }
}
