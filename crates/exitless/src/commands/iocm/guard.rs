//! Removes the control tree's mount after the daemon, which may lack the privileges, or have been killed.
//!
//! It is a process that keeps its privileges and accepts no commands: it waits until its standard input ends,
//! and then checks one mount, of which it has a descriptor. No path is looked up, because the daemon's user
//! may write to the directory above.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use iocm::control::mount::{is_dead, unmount};
use rustix::fs::{Mode, OFlags};
use signal_hook::consts::TERM_SIGNALS;

/// Arguments of the process.
#[derive(Debug, Args)]
pub(crate) struct GuardArguments {
    /// The mount's file descriptor.
    mount: u32,
}

/// The most attempts until the kernel has closed the files of a daemon that was killed.
const PATIENCE: u32 = 500;

/// Waits, and removes the mount.
pub(crate) fn run(arguments: &GuardArguments) -> anyhow::Result<ExitCode> {
    // A signal to the daemon's whole process group must not end this process first.
    for &signal in TERM_SIGNALS {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .context("Could not catch signals")?;
    }
    let mut told = Vec::new();
    let in_order = std::io::stdin().read_to_end(&mut told).is_ok() && !told.is_empty();
    // By its path among the descriptors, which leads only to the mount's root.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let mount = rustix::fs::open(format!("/proc/self/fd/{}", arguments.mount), flags, Mode::empty())
        .context("Could not open the mount")?;
    let mount = mount.as_fd();
    let mut left = PATIENCE;
    while !in_order && !is_dead(mount) && left > 0 {
        std::thread::sleep(Duration::from_millis(10));
        left -= 1;
    }
    if in_order || is_dead(mount) {
        // It may already be unmounted.
        let _ = unmount(mount);
    }
    Ok(ExitCode::SUCCESS)
}

/// The running process.
pub(super) struct Guard(Child);

impl Guard {
    /// Starts it, while this process still has its privileges.
    pub(super) fn start(mount: BorrowedFd<'_>) -> anyhow::Result<Self> {
        // Without close-on-exec, until the process has started.
        let inherited = rustix::io::dup(mount).context("Could not keep the control tree's mount")?;
        let mut command = Command::new("/proc/self/exe");
        command.args(["iocm", "guard", &inherited.as_raw_fd().to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        // Ctrl-C is sent to the whole process group of a terminal.
        let child = command.process_group(0).spawn();
        Ok(Self(child.context("Could not start the process that unmounts the control tree at the end")?))
    }

    /// Has the mount removed, and waits for that.
    pub(super) fn end(mut self) {
        if let Some(mut pipe) = self.0.stdin.take() {
            let _ = pipe.write_all(b"end");
        }
        let _ = self.0.wait();
    }
}
