//! Network namespaces without a name: the kernel removes one, and its interfaces, with the last process and descriptor in it.

use crate::{Outcome, child};
use rustix::thread::UnshareFlags;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};

#[derive(Debug)]
pub(crate) struct Namespace(File);

/// A host of many connections. What a kernel or a host lacks of it may be left out.
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
            // SAFETY: it changes the network namespace of this thread alone, which ends here.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
            // The thread's namespace has its own values there.
            for (name, value) in SETTINGS {
                let _ = std::fs::write(format!("/proc/sys/net/{name}"), value);
            }
            File::open("/proc/thread-self/ns/net")
        });
        Ok(Self(made.join().map_err(|_| "the thread of a namespace failed")??))
    }

    /// Its path while this process has it.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// A program in it, which ends with this one.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = child("nsenter");
        command.arg(format!("--net={}", self.path())).arg(program);
        command
    }

    /// Carries out commands of ip(8), one a line.
    pub(crate) fn ip(&self, lines: &str) -> Outcome<()> {
        let mut ip = self.command("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
        ip.stdin.take().ok_or("ip has no input")?.write_all(lines.as_bytes())?;
        match ip.wait()?.success() {
            true => Ok(()),
            false => Err(format!("ip(8) refused one of these in a new network namespace:\n{lines}").into()),
        }
    }
}
