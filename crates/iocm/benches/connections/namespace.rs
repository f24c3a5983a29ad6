//! Network namespaces without a name: the kernel removes one, and its interfaces, with the last process and descriptor
//! of it.

use crate::{Outcome, child};
use rustix::thread::UnshareFlags;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};

#[derive(Debug)]
pub(crate) struct Namespace(File);

/// Settings for a host with many connections. Those that the kernel does not have are skipped.
const SETTINGS: &[(&str, &str)] = &[
    ("ipv4/ip_local_port_range", "1024 65535"),
    ("ipv4/tcp_max_syn_backlog", "65536"),
    ("ipv4/tcp_max_tw_buckets", "262144"),
    ("core/somaxconn", "65536"),
    ("ipv6/conf/all/disable_ipv6", "1"),
    ("ipv6/conf/default/disable_ipv6", "1"),
];

impl Namespace {
    pub(crate) fn new() -> Outcome<Self> {
        let made = std::thread::spawn(|| -> std::io::Result<File> {
            // SAFETY: the call only changes the network namespace of this thread, which ends here.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
            // These files belong to the namespace of the thread that opens them.
            for (name, value) in SETTINGS {
                let _ = std::fs::write(format!("/proc/sys/net/{name}"), value);
            }
            File::open("/proc/thread-self/ns/net")
        });
        Ok(Self(made.join().map_err(|_| "the thread of a namespace failed")??))
    }

    /// Its path, as long as this process has it open.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// A command that runs in it, and ends with this process.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = child("nsenter");
        command.arg(format!("--net={}", self.path())).arg(program);
        command
    }

    /// Executes commands of ip(8), one a line.
    pub(crate) fn ip(&self, lines: &str) -> Outcome<()> {
        let mut ip = self.command("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
        ip.stdin.take().ok_or("ip has no input")?.write_all(lines.as_bytes())?;
        match ip.wait()?.success() {
            true => Ok(()),
            false => Err(format!("ip(8) refused one of these in a new network namespace:\n{lines}").into()),
        }
    }
}
