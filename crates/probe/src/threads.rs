//! Functions for host threads that the standard library lacks.

use std::io;
use std::mem;
use std::sync::OnceLock;

use vmm_sys_util::signal::{SIGRTMIN, register_signal_handler, unblock_signal};

/// The kernel's id of the calling thread.
pub(crate) fn id() -> i32 {
    // SAFETY: gettid has no arguments, changes nothing and cannot fail.
    unsafe { libc::gettid() }
}

/// The host CPUs which the calling thread may use, in ascending order.
pub(crate) fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: a cpu_set_t is an array of integers, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes at most the given size, which is that of our own set.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let limit = 8 * size_of::<libc::cpu_set_t>();
    // SAFETY: `cpu` is below the number of bits in the set.
    Ok((0..limit).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect())
}

/// Pins the calling thread to one host CPU.
pub(crate) fn pin_to(cpu: usize) -> io::Result<()> {
    if cpu >= 8 * size_of::<libc::cpu_set_t>() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: a cpu_set_t is an array of integers, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `cpu` has just been checked to be below the number of bits in the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the kernel only reads the set, whose size is given.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
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
