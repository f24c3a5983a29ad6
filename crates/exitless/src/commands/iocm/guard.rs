//! Unmounts the control tree after the daemon, which may lack the privileges or have been killed.
//!
//! The guard is a process that keeps its privileges and accepts no commands. It waits for the end of its
//! standard input, then checks one mount through an inherited descriptor. It looks up no path, because the
//! daemon's user may be able to write to the directory above.

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

use crate::interrupt;

/// Arguments of the process.
#[derive(Debug, Args)]
pub(crate) struct GuardArguments {
    /// The mount's file descriptor.
    mount: u32,
}

/// The number of checks, 10 ms apart, whether the kernel has closed the files of a killed daemon.
const PATIENCE: u32 = 500;

/// Waits for the daemon's end, then unmounts.
pub(crate) fn run(arguments: &GuardArguments) -> anyhow::Result<ExitCode> {
    // A signal to the daemon's process group must not end the guard before the daemon.
    for signal in interrupt::signals() {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .context("Could not catch signals")?;
    }
    let mut told = Vec::new();
    let in_order = std::io::stdin().read_to_end(&mut told).is_ok() && !told.is_empty();
    // Reopen with O_PATH. This link in /proc leads to the mount's root and nowhere else.
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

/// The running guard.
pub(super) struct Guard(Child);

impl Guard {
    /// Starts the guard while this process still has its privileges.
    pub(super) fn start(mount: BorrowedFd<'_>) -> anyhow::Result<Self> {
        // `dup` clears close-on-exec, so the guard inherits the descriptor; this process closes it after the
        // start.
        let inherited = rustix::io::dup(mount).context("Could not keep the control tree's mount")?;
        let mut command = Command::new("/proc/self/exe");
        command.args(["iocm", "guard", &inherited.as_raw_fd().to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        // A group of its own, because Ctrl-C signals the terminal's whole foreground process group.
        let child = command.process_group(0).spawn();
        Ok(Self(child.context("Could not start the process that unmounts the control tree at the end")?))
    }

    /// Tells the guard to unmount, and waits until it has.
    pub(super) fn end(mut self) {
        if let Some(mut pipe) = self.0.stdin.take() {
            let _ = pipe.write_all(b"end");
        }
        let _ = self.0.wait();
    }
}
