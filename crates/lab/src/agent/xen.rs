//! Sets up a control domain: Xen's file system, and the daemons that `xl` needs.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};

/// Mount point of Linux's interface to Xen.
const XENFS: &str = "/proc/xen";
const FOLDERS: [&str; 4] = ["/run/xen", "/run/xenstored", "/run/lock", "/var/log/xen/console"];
const SOCKET: &str = "/run/xenstored/socket";
const SOCKET_WAIT: Duration = Duration::from_secs(30);
/// The programs in the order in which they are started. Each returns while its daemon is still starting.
const STORE: [&str; 3] = ["xenstored", "--pid-file", "/run/xenstored.pid"];
const FIRST_ENTRIES: [&str; 1] = ["xen-init-dom0"];
const CONSOLES: [&str; 4] =
    ["xenconsoled", "--pid-file=/run/xenconsoled.pid", "--log=guest", "--log-dir=/var/log/xen/console"];

/// Mounts Xen's file system.
pub(super) fn mount_xenfs() -> Result<(), String> {
    mount("xenfs", XENFS, "xenfs", MountFlags::empty(), None)
        .map_err(|error| format!("mounting {XENFS}, which only a domain of Xen has: {error}"))
}

/// Starts the daemons. This process's root must already be the disk's.
pub(super) fn start_daemons() -> Result<(), String> {
    for folder in FOLDERS {
        fs::create_dir_all(folder).map_err(|error| format!("making {folder}: {error}"))?;
    }
    start(&STORE)?;
    let begun = Instant::now();
    while !Path::new(SOCKET).exists() {
        if begun.elapsed() > SOCKET_WAIT {
            return Err(format!("xenstored made no {SOCKET} within {SOCKET_WAIT:?}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    start(&FIRST_ENTRIES)?;
    start(&CONSOLES)
}

/// Runs a program that starts a daemon. The daemon inherits its standard output, which therefore must not be
/// a pipe that somebody reads to the end.
fn start(words: &[&str]) -> Result<(), String> {
    let (program, arguments) = words.split_first().ok_or("no program was named")?;
    let status = Command::new(Path::new("/usr/local/sbin").join(program))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|error| format!("starting {program}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{program} failed: {status}")) }
}
