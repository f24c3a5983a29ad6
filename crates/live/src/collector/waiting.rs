//! Waiting for the programs, and whether their numbers of threads are ours.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::Error;

/// Returns when every program that ran before has ended.
pub(super) fn wait_for_programs() {
    // Programs run as readers of RCU, and this call waits for all of those (membarrier(2)), but for none where there is
    // one processor: there a program may have been put aside.
    // SAFETY: takes numbers and changes no memory.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
    // SAFETY: as above.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    if done != 0 || processors < 2 {
        // Kernels with nohz_full processors have no such call. A program takes below a microsecond.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Tests whether processes have the kernel's own numbers here, as programs give them.
#[must_use]
pub fn in_first_pid_namespace(root: &Path) -> bool {
    // PROC_PID_INIT_INO of include/linux/proc_ns.h.
    let first = Path::new("pid:[4026531836]");
    match std::fs::read_link(root.join("proc/self/ns/pid")) {
        Ok(namespace) => namespace == first,
        // A kernel without such namespaces (CONFIG_PID_NS).
        Err(error) => error.kind() == ErrorKind::NotFound && root.join("proc/self/stat").exists(),
    }
}

pub(crate) const OTHER_NUMBERS: &str = "processes have other numbers here than the kernel gives them";

/// Refuses to tell VMs apart by their processes where these have other numbers than the kernel's own.
///
/// # Errors
/// [`Error::Load`] there.
pub fn need_first_pid_namespace(root: &Path) -> Result<(), Error> {
    in_first_pid_namespace(root).then_some(()).ok_or_else(|| Error::Load {
        cause: OTHER_NUMBERS.to_owned(),
        next: "run on the host itself, or in a container with the host's PID namespace",
    })
}

/// Tells whether a thread is there. `None` in a container, where threads have other numbers than the kernel gives them.
/// The kernel is asked, and not `/proc`, which may hide the processes of others (`hidepid`).
///
/// Each is looked for once: one that ends in between is there for all who ask.
pub(super) fn living_threads(root: &Path) -> Option<impl Fn(u32) -> bool> {
    let known = RefCell::new(HashMap::new());
    in_first_pid_namespace(root).then_some(move |thread: u32| {
        *known.borrow_mut().entry(thread).or_insert_with(|| {
            let thread = i32::try_from(thread).ok().and_then(Pid::from_raw);
            // Whatever else is said, as that this user may not signal it, it is there.
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
        // More than the kernel gives any (PID_MAX_LIMIT).
        assert!(!alive(1 << 23) && !alive(u32::MAX) && !alive(0));
    }
}
