//! Functions for host threads that the standard library lacks.

use std::io;
use std::sync::OnceLock;

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use vmm_sys_util::signal::{SIGRTMIN, register_signal_handler, unblock_signal};

/// The kernel's id of the calling thread.
pub(crate) fn id() -> i32 {
    gettid().as_raw_pid()
}

/// The host CPUs which the calling thread may use, in ascending order.
pub(crate) fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Pins the calling thread to one host CPU.
pub(crate) fn pin_to(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// The CPU among `allowed` to which the thread of `vcpu` is pinned: the one at the vCPU's number, wrapping
/// around. No vCPU shares the sender's CPU if there is another, because sender and target must run at the
/// same time.
pub(crate) fn cpu_of(vcpu: u16, allowed: &[usize]) -> Option<usize> {
    match (allowed, vcpu) {
        ([], _) => None,
        ([only], _) => Some(*only),
        ([first, ..], 0) => Some(*first),
        ([_, others @ ..], _) => Some(others[(usize::from(vcpu) - 1) % others.len()]),
    }
}

extern "C" fn nothing(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}

/// The signal that kicks a vCPU out of KVM_RUN. The handler is empty: it exists so that the ioctl returns
/// EINTR.
pub(crate) fn kick_signal() -> io::Result<libc::c_int> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    // glibc reserves the kernel's first real-time signals for itself; its SIGRTMIN is the first free one.
    let signal = SIGRTMIN() + 6;
    let installed =
        INSTALLED.get_or_init(|| register_signal_handler(signal, nothing).map_err(|error| error.errno()));
    match installed {
        Ok(()) => Ok(signal),
        Err(errno) => Err(io::Error::from_raw_os_error(*errno)),
    }
}

/// Unblocks the kick signal in the calling thread, which inherits its parent's signal mask.
pub(crate) fn accept_kicks() -> io::Result<()> {
    match unblock_signal(kick_signal()?) {
        Ok(()) => Ok(()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_has_its_cpu_alone() {
        let cpu = |vcpu| cpu_of(vcpu, &[3, 5, 8]).unwrap();
        assert_eq!([cpu(0), cpu(1), cpu(2), cpu(3), cpu(4), cpu(63)], [3, 5, 8, 5, 8, 5]);
        assert_eq!(cpu_of(2, &[0, 1]), Some(1));
    }

    #[test]
    fn one_cpu_takes_all_and_none_takes_nothing() {
        assert_eq!(cpu_of(0, &[7]), Some(7));
        assert_eq!(cpu_of(9, &[7]), Some(7));
        assert_eq!(cpu_of(0, &[]), None);
    }

    #[test]
    fn a_thread_can_be_pinned() {
        let pinned = std::thread::spawn(|| {
            let cpu = *allowed_cpus().unwrap().last().unwrap();
            pin_to(cpu).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [cpu]);
        });
        pinned.join().unwrap();
        assert!(pin_to(1 << 20).is_err());
    }

    #[test]
    fn the_kick_signal_is_installed_once() {
        assert_eq!(kick_signal().unwrap(), kick_signal().unwrap());
    }
}
