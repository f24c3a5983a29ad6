//! Reaping of processes whose parents have ended, which is the work of process 1.

use std::process::exit;
use std::thread;

use rustix::process::{WaitOptions, wait};
use signal_hook::consts::SIGCHLD;
use signal_hook::iterator::Signals;

/// `__WNOTHREAD` (include/uapi/linux/wait.h): only for children of the calling thread.
const OF_THIS_THREAD: WaitOptions = WaitOptions::from_bits_retain(0x2000_0000);

/// Runs `work` in a thread of its own, while this thread reaps orphans: for the main thread of process 1, to which the kernel
/// gives them (kernel/exit.c: `find_child_reaper`). Children of other threads are not touched, so each thread that starts a
/// process has to live until the process was waited for.
pub fn reaping_orphans(work: fn() -> !) -> ! {
    let Ok(mut signals) = Signals::new([SIGCHLD]) else { work() };
    thread::spawn(move || {
        let _ends_too = EndsTheProcess;
        work()
    });
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG | OF_THIS_THREAD) {}
        signals.wait().for_each(drop);
    }
}

/// Ends the process if the thread that has it panics, as a panic of the main thread does.
struct EndsTheProcess;

impl Drop for EndsTheProcess {
    fn drop(&mut self) {
        exit(101);
    }
}
