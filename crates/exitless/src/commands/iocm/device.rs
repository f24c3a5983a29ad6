//! `exitless iocm device`: a back-end program for one device, by the conventions in QEMU's
//! docs/interop/vhost-user.rst.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use exits::with_causes;
use iocm::config::{DeviceConfig, DeviceType, DiskFormat, NetBackend};
use iocm::inherited::InheritedSocket;
use iocm::running::{Ready, Running};
use signal_hook::iterator::Signals;

use crate::status::{BROKEN, Usage};
use crate::{background_log, interrupt};

/// Arguments of `iocm device`.
///
/// Which belong together is checked later: with `--print-capabilities` only the type counts.
#[derive(Debug, Args)]
pub(crate) struct DeviceArguments {
    /// Wait for the front-end on this socket, which is made.
    #[arg(long, value_name = "PATH")]
    socket_path: Option<PathBuf>,
    /// Take the vhost-user socket from this file descriptor: one that listens, or is connected to the front-end.
    #[arg(long, value_name = "FDNUM", allow_negative_numbers = true)]
    fd: Option<i32>,
    /// Print what the back-end supports for the type of the device as JSON, and exit.
    #[arg(long)]
    print_capabilities: bool,
    /// The type of the device; by default, that of its other options.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<Kind>,
    /// The disk: a raw file or a block device.
    #[arg(long, value_name = "PATH")]
    blk_file: Option<PathBuf>,
    /// The format of the disk. Without it, a file that looks like an image of another format is refused, even if a guest
    /// made it so.
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// The guest may only read the disk.
    #[arg(long)]
    read_only: bool,
    /// The tap interface of a network device; one that does not exist is made.
    #[arg(long, value_name = "NAME")]
    tap: Option<String>,
    /// The largest number of queues; of a network device, of queue pairs. By default a disk has as many as the host has
    /// CPUs, and a network device one pair.
    #[arg(long, value_name = "NUMBER")]
    queues: Option<u16>,
}

/// The types of devices, by the names in QEMU's docs/interop/vhost-user.json.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A disk.
    Block,
    /// A network device.
    Net,
}

/// The formats of disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The file holds the blocks of the disk and nothing else.
    Raw,
}

/// Names of links to the program, each with the device type it stands for.
const LINKS: &[(&str, &str)] = &[("exitless-vhost-user-blk", "block"), ("exitless-vhost-user-net", "net")];
/// The most queues of a disk: more than a guest's vCPUs are useless, and a guest seldom has more vCPUs than
/// the host has CPUs.
const MOST_QUEUES: usize = 256;

/// Inserts the subcommand into the command line if the program was called by the name of a device's link.
pub(crate) fn by_name(mut line: Vec<OsString>) -> Vec<OsString> {
    let name = line.first().and_then(|path| Path::new(path).file_name());
    if let Some((_, kind)) = LINKS.iter().find(|(link, _)| name.is_some_and(|name| name == *link)) {
        let ignored = line.iter().any(|word| word == "--print-capabilities");
        // The convention: with `--print-capabilities`, ignore all other arguments, known or not.
        line.truncate(if ignored { 1 } else { line.len() });
        let words =
            ["iocm", "device", "--type", kind].into_iter().chain(ignored.then_some("--print-capabilities"));
        line.splice(1..1, words.map(OsString::from));
    }
    line
}

/// Prints the capabilities, or serves the device until its front-end disconnects or a signal arrives.
pub(crate) fn run(arguments: &DeviceArguments) -> anyhow::Result<ExitCode> {
    // Before anything is opened: the descriptor's number could be reused.
    let socket = arguments.fd.map(InheritedSocket::of);
    let kind = arguments.kind()?;
    if arguments.print_capabilities {
        crate::json::write_pretty(std::io::stdout(), &capabilities(kind))?;
        return Ok(ExitCode::SUCCESS);
    }
    let config = arguments.config(kind)?;
    let socket = socket.transpose().map_err(|error| Usage(with_causes(&error)))?;
    let stop = interrupt::flag()?;
    let running = Ready::open_one(&config, socket)?.run()?;
    background_log::begin()?;
    let outcome = serve(&running, &stop);
    drop(running);
    background_log::flush();
    if outcome? { Ok(ExitCode::SUCCESS) } else { Ok(ExitCode::from(BROKEN)) }
}

/// Waits until the front-end disconnects or a signal arrives. Returns false if the connection failed.
fn serve(running: &Running, stop: &AtomicBool) -> anyhow::Result<bool> {
    let mut signals = Signals::new(interrupt::signals()).context("Could not wait for signals")?;
    let end = running.daemon().endpoints().first().and_then(|endpoint| endpoint.end_of_only_front_end());
    let (Some(end), false) = (end, stop.load(Ordering::Relaxed)) else { return Ok(true) };
    let handle = signals.handle();
    let waits = std::thread::spawn(move || {
        let in_order = end.recv().unwrap_or(true);
        handle.close();
        in_order
    });
    match signals.forever().next() {
        Some(_) => Ok(true),
        None => Ok(waits.join().unwrap_or(false)),
    }
}

/// The schema's `VHostUserBackendCapabilities`, which defines no features for network devices.
fn capabilities(kind: Kind) -> serde_json::Value {
    match kind {
        Kind::Block => serde_json::json!({ "type": "block", "features": ["read-only", "blk-file"] }),
        Kind::Net => serde_json::json!({ "type": "net" }),
    }
}

impl DeviceArguments {
    /// The device's type: given by --type, or implied by the other options.
    fn kind(&self) -> anyhow::Result<Kind> {
        let of_options = match (&self.blk_file, &self.tap) {
            (Some(_), _) => Some(Kind::Block),
            (None, Some(_)) => Some(Kind::Net),
            (None, None) => None,
        };
        let kind = self.kind.or(of_options);
        Ok(kind
            .ok_or_else(|| Usage("Which device? Give --blk-file FILE, --tap NAME, or --type".to_owned()))?)
    }

    fn config(&self, kind: Kind) -> anyhow::Result<DeviceConfig> {
        let wrong = |why: &str| Err(anyhow::Error::from(Usage(why.to_owned())));
        match (kind, &self.blk_file, &self.tap) {
            (Kind::Block, Some(_), None) | (Kind::Net, None, Some(_)) => {}
            (Kind::Block, None, _) => return wrong("A disk needs --blk-file FILE"),
            (Kind::Net, _, None) => return wrong("A network device needs --tap NAME"),
            (_, Some(_), Some(_)) => {
                return wrong("--blk-file is of a disk, and --tap of a network device: give one");
            }
        }
        if (self.read_only || self.format.is_some()) && kind == Kind::Net {
            return wrong("--read-only and --format are for disks");
        }
        if self.socket_path.is_some() == self.fd.is_some() {
            return wrong(
                "Give --socket-path PATH or --fd FDNUM: exactly one of them says where the front-end is",
            );
        }
        let cpus =
            || std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(MOST_QUEUES) as u16);
        let default = || if kind == Kind::Block { cpus() } else { 1 };
        let kind = match kind {
            Kind::Block => DeviceType::Block,
            Kind::Net => DeviceType::Net,
        };
        let mut config = DeviceConfig::new("device", kind, self.socket_path.clone().unwrap_or_default());
        config.path.clone_from(&self.blk_file);
        config.format = self.format.map(|Format::Raw| DiskFormat::Raw);
        config.read_only = self.read_only;
        config.backend =
            self.tap.as_ref().map(|tap| NetBackend { tap: Some(tap.clone()), ..NetBackend::default() });
        config.queues = self.queues.unwrap_or_else(default);
        config.check()?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &str) -> Vec<OsString> {
        words.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn each_option_has_a_row_in_the_page() {
        let rows =
            include_str!("../../../../../docs/iocm-host.md").lines().filter(|line| line.starts_with("| `--"));
        let code = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
        let explained: Vec<&str> =
            code.filter_map(|text| text.split(' ').next()?.strip_prefix("--")).collect();
        let command = DeviceArguments::augment_args(clap::Command::new("device"));
        let options: Vec<&str> = command.get_arguments().filter_map(|one| one.get_long()).collect();
        assert!(options.len() > 7, "{options:?}");
        for option in options {
            assert!(explained.contains(&option), "docs/iocm-host.md has no row of --{option}");
        }
    }

    #[test]
    fn the_name_of_a_link_stands_for_the_words_of_the_command() {
        let called = by_name(line("/usr/libexec/exitless-vhost-user-blk --fd 3 --blk-file disk"));
        assert_eq!(called[1..], line("iocm device --type block --fd 3 --blk-file disk"));
        let called = by_name(line("exitless-vhost-user-net --unknown=1 --print-capabilities 7"));
        assert_eq!(called[1..], line("iocm device --type net --print-capabilities"));
        let others = ["exitless iocm device --fd 3", "/x/exitless-vhost-user --fd 3"];
        assert!(others.iter().all(|words| by_name(line(words)) == line(words)));
        assert!(by_name(Vec::new()).is_empty());
    }
}
