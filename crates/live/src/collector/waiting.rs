//! Waiting for the programs, and whether their numbers of threads are ours.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

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

/// Tests whether processes have the kernel's own numbers here.
pub(crate) fn in_first_pid_namespace(root: &Path) -> bool {
    // PROC_PID_INIT_INO of include/linux/proc_ns.h.
    let first = Path::new("pid:[4026531836]");
    std::fs::read_link(root.join("proc/self/ns/pid")).is_ok_and(|namespace| namespace == first)
}

/// Tells whether a thread is there. `None` in a container, where threads have other numbers than the kernel gives them.
///
/// Each is looked for once: one that ends in between is there for all who ask.
pub(super) fn living_threads(root: &Path) -> Option<impl Fn(u32) -> bool> {
    let proc = root.join("proc");
    let known = RefCell::new(HashMap::new());
    in_first_pid_namespace(root).then_some(move |thread: u32| {
        *known.borrow_mut().entry(thread).or_insert_with(|| proc.join(thread.to_string()).exists())
    })
}
