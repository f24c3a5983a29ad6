//! The CPU time of a thread, and the time it waited for a CPU.

use std::fs;
use std::path::Path;

use host::scheduling::{ThreadId, stat_field};

/// The work of a thread for its guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Work {
    /// Runs the vCPU with this number.
    Vcpu(u32),
    /// An I/O thread of QEMU.
    IoThread,
    /// A worker of vhost.
    Vhost,
    /// All other threads of the VMM: main loop, workers, displays.
    Emulator,
}

impl Work {
    /// The name in metrics and raw samples.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Vcpu(_) => "vcpu",
            Self::IoThread => "iothread",
            Self::Vhost => "vhost",
            Self::Emulator => "emulator",
        }
    }
}

/// One reading, counted since the thread's start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ThreadCounters {
    /// Time on a CPU in nanoseconds; for a vCPU this includes guest time.
    pub(super) run_ns: u64,
    /// Time on a run queue, waiting for a CPU, in nanoseconds.
    pub(super) wait_ns: u64,
    /// Time in user space in clock ticks, including guest time.
    pub(super) user: u64,
    /// Time in the kernel in clock ticks.
    pub(super) system: u64,
    /// Guest time in clock ticks.
    pub(super) guest: u64,
    /// Its start in clock ticks since boot, which distinguishes threads that had the same ID.
    pub(super) start: u64,
}

impl ThreadCounters {
    /// Reads `/proc/PROCESS/task/THREAD` below `root`; `None` if the thread has ended or the files cannot be
    /// parsed.
    pub(super) fn read(root: &Path, process: i32, thread: i32) -> Option<Self> {
        // Without the time limit of `host`, which takes a thread for each read: such threads would disturb the guests,
        // and their CPU time would not count as that of sampling.
        let stat = fs::read_to_string(root.join(format!("proc/{process}/task/{thread}/stat"))).ok()?;
        let times = ThreadId { pid: process, tid: thread }.times(root)?;
        Some(Self { run_ns: times.ran_ns, wait_ns: times.waited_ns, ..Self::of_stat(&stat)? })
    }

    /// Fields 14, 15, 22 and 43 of proc_pid_stat(5).
    fn of_stat(text: &str) -> Option<Self> {
        Some(Self {
            user: stat_field(text, 14)?,
            system: stat_field(text, 15)?,
            start: stat_field(text, 22)?,
            guest: stat_field(text, 43).unwrap_or(0),
            ..Self::default()
        })
    }

    /// The increase since an earlier reading of the same thread; `None` for another thread with its ID, or if
    /// a counter decreased.
    pub(super) fn since(&self, before: &Self) -> Option<Self> {
        if self.start != before.start {
            return None;
        }
        Some(Self {
            run_ns: self.run_ns.checked_sub(before.run_ns)?,
            wait_ns: self.wait_ns.checked_sub(before.wait_ns)?,
            user: self.user.checked_sub(before.user)?,
            system: self.system.checked_sub(before.system)?,
            guest: self.guest.checked_sub(before.guest)?,
            start: self.start,
        })
    }

    /// Adds the times of another thread or interval.
    pub(super) fn add(&mut self, more: &Self) {
        self.run_ns += more.run_ns;
        self.wait_ns += more.wait_ns;
        self.user += more.user;
        self.system += more.system;
        self.guest += more.guest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Fields 4 to 52 in the kernel's format, with the given values.
    pub(super) fn stat(name: &str, user: u64, system: u64, guest: u64, start: u64) -> String {
        let fields: Vec<String> = (4..=52)
            .map(|number| match number {
                14 => user.to_string(),
                15 => system.to_string(),
                22 => start.to_string(),
                43 => guest.to_string(),
                _ => "0".to_owned(),
            })
            .collect();
        format!("17 ({name}) S {}\n", fields.join(" "))
    }

    #[test]
    fn names_with_brackets_do_not_shift_the_fields() {
        let times = ThreadCounters::of_stat(&stat("CPU 0) (KVM", 70, 20, 60, 341)).unwrap();
        assert_eq!(
            times,
            ThreadCounters { user: 70, system: 20, guest: 60, start: 341, ..ThreadCounters::default() }
        );
        assert_eq!(ThreadCounters::of_stat("17 (cut) S 1"), None);
    }

    #[test]
    fn another_thread_of_the_same_number_has_nothing_in_common() {
        let before = ThreadCounters { run_ns: 10, start: 1, ..ThreadCounters::default() };
        let after = ThreadCounters { run_ns: 25, start: 1, ..before };
        assert_eq!(after.since(&before).unwrap().run_ns, 15);
        assert_eq!(before.since(&after), None);
        assert_eq!(ThreadCounters { start: 2, ..after }.since(&before), None);
    }

    #[test]
    fn this_thread_is_read() {
        let process = i32::try_from(std::process::id()).unwrap();
        let times = ThreadCounters::read(Path::new("/"), process, process).unwrap();
        assert!(times.start > 0, "{times:?}");
        assert_eq!(ThreadCounters::read(Path::new("/"), process, i32::MAX), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9]{0,3} ?\\(?[a-z )]{0,6}\\)?( [0-9-]{0,21}){0,50}") {
            let _ = ThreadCounters::of_stat(&text);
        }
    }
}
