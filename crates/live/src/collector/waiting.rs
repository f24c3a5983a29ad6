//! Waits for running programs, and checks whether the kernel's thread IDs are ours.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::Error;

/// Waits until all programs that are running now have ended.
pub(super) fn wait_for_programs() {
    // Programs run as RCU readers, for which this call waits (membarrier(2)). With a single CPU it returns at once,
    // although a program may have been preempted.
    // SAFETY: takes numbers and changes no memory.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
    // SAFETY: as above.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    if done != 0 || processors < 2 {
        // Kernels with nohz_full CPUs do not support the call. A program takes less than a microsecond.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Tests whether we are in the initial PID namespace, whose PIDs the programs use.
#[must_use]
pub fn in_first_pid_namespace(root: &Path) -> bool {
    // PROC_PID_INIT_INO of include/linux/proc_ns.h.
    let first = Path::new("pid:[4026531836]");
    match std::fs::read_link(root.join("proc/self/ns/pid")) {
        Ok(namespace) => namespace == first,
        // The kernel has no PID namespaces (CONFIG_PID_NS).
        Err(error) => error.kind() == ErrorKind::NotFound && root.join("proc/self/stat").exists(),
    }
}

pub(crate) const OTHER_NUMBERS: &str = "processes have other numbers here than the kernel gives them";

/// Refuses to identify VMs by PID outside of the initial PID namespace.
///
/// # Errors
/// [`Error::Load`] there.
pub fn need_first_pid_namespace(root: &Path) -> Result<(), Error> {
    in_first_pid_namespace(root).then_some(()).ok_or_else(|| Error::Load {
        cause: OTHER_NUMBERS.to_owned(),
        next: "run on the host itself, or in a container with the host's PID namespace",
    })
}

/// Tests whether threads exist. `None` outside of the initial PID namespace. Uses kill(2), not `/proc`, which may
/// hide the processes of other users (`hidepid`).
///
/// Each thread is tested once: one that ends later still exists for all callers.
pub(super) fn living_threads(root: &Path) -> Option<impl Fn(u32) -> bool + use<>> {
    let known = RefCell::new(HashMap::new());
    in_first_pid_namespace(root).then_some(move |thread: u32| {
        *known.borrow_mut().entry(thread).or_insert_with(|| {
            let thread = i32::try_from(thread).ok().and_then(Pid::from_raw);
            // Any other error, such as EPERM, means that it exists.
            thread.is_some_and(|thread| test_kill_process(thread) != Err(Errno::SRCH))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_proc_hides_has_not_ended() {
        let root = tempfile::tempdir().unwrap();
        assert!(living_threads(root.path()).is_none());
        std::fs::create_dir_all(root.path().join("proc/self/ns")).unwrap();
        std::os::unix::fs::symlink("pid:[4026531836]", root.path().join("proc/self/ns/pid")).unwrap();
        let alive = living_threads(root.path()).unwrap();
        // SAFETY: takes nothing and changes nothing.
        let own = unsafe { libc::gettid() };
        assert!(alive(1) && alive(own.cast_unsigned()));
        // Above the kernel's largest PID (PID_MAX_LIMIT).
        assert!(!alive(1 << 23) && !alive(u32::MAX) && !alive(0));
    }
}
