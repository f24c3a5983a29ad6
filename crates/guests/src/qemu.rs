//! Guests that are started for a study, one QEMU each, with an agent that runs scripts.

mod command;
mod data_plane;
mod devices;
mod network;
mod options;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use guest::Hello;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::connection::{AgentLine, Connection};
use super::files::Keeper;
use super::last_words::LastWords;
use super::plan::{NetBackend, QemuPlan};
use super::{Armed, Cut, Guest, GuestError, GuestFiles, Patience, process};
use data_plane::DataPlane;

pub use data_plane::DataPlanes;

/// The time for a guest to power off before its QEMU is killed.
const POWER_OFF: Duration = Duration::from_secs(30);
/// The time limit for QEMU's monitor to answer, and for its tap device to appear.
const MONITOR: Duration = Duration::from_secs(20);
/// The time between two looks at the space that a guest's messages take.
const LOOK: Duration = Duration::from_secs(10);

/// QEMU's command line for a plan's first guest, with a NUL after each argument as in `/proc/PID/cmdline`.
#[must_use]
pub fn qemu_command_line(plan: &QemuPlan) -> Vec<u8> {
    let words = command::arguments(plan, 0, &image_files(), &network::wiring(plan, 0));
    let program = command::program(plan).into_os_string();
    let words = std::iter::once(program).chain(words);
    words.flat_map(|word| [word.into_encoded_bytes(), vec![0]].concat()).collect()
}

/// Placeholder names for the guest image's files, for a command line that is only shown.
fn image_files() -> GuestFiles {
    GuestFiles {
        kernel: "vmlinux".into(),
        compressed_kernel: "vmlinuz".into(),
        initial_ram_disk: "initrd.img".into(),
        root: "root.ext4".into(),
        without_agent: None,
        _kept_by: Keeper::default(),
    }
}

/// QEMU's command line for a plan's first guest, one option with its value per line, to compare plans. The guest
/// image's files have placeholder names, a tap device is called tap0, and of the kernel's arguments only those of the
/// plan are shown.
#[must_use]
pub fn qemu_definition(plan: &QemuPlan) -> Vec<String> {
    let wiring = network::wiring(plan, 0);
    let words = command::arguments(plan, 0, &image_files(), &wiring);
    let mut lines = vec![command::program(plan).display().to_string()];
    let mut takes_value = false;
    let own_tap = format!("ifname={},", options::tap_name(0));
    let own = plan.kernel_arguments.join(" ");
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == "-append" {
            words.next();
            lines.extend((!own.is_empty()).then(|| format!("-append {own}")));
            takes_value = false;
            continue;
        }
        let word = word.to_string_lossy().replace(&own_tap, "ifname=tap0,");
        match lines.last_mut() {
            Some(line) if takes_value && !word.starts_with('-') => {
                line.push(' ');
                line.push_str(&word);
                takes_value = false;
            }
            _ => {
                takes_value = word.starts_with('-');
                lines.push(word);
            }
        }
    }
    lines
}

/// A running QEMU and its guest.
pub struct QemuGuest {
    name: String,
    vcpus: u32,
    host_address: Option<IpAddr>,
    child: Child,
    connection: Arc<Connection>,
    hello: Hello,
    last_words: LastWords,
    /// Bounds the files of its messages.
    _bounded: Sender<()>,
    /// The guests' common I/O daemon, if any; dropping the last guest ends it.
    _data_plane: Option<Arc<DataPlane>>,
}

impl QemuGuest {
    /// Starts guest `index` and waits until its agent is ready. The output of its console and of QEMU and its disk are
    /// in a folder below `folder` with the guest's name. `planes` holds the I/O daemon that all guests share, if the
    /// plan uses one.
    ///
    /// # Errors
    /// [`GuestError::Start`] with the last lines of QEMU's messages and of the console.
    pub fn start(
        plan: &QemuPlan,
        index: u32,
        files: &GuestFiles,
        planes: &DataPlanes,
        folder: &Path,
        patience: Patience<'_>,
    ) -> Result<Self, GuestError> {
        let name = format!("guest-{index}");
        let start = |why: String| GuestError::Start { name: name.clone(), why };
        let has_own = plan.net().is_some_and(|net| net.backend == NetBackend::Iocm);
        let data_plane = has_own.then(|| planes.get(plan, folder)).transpose().map_err(start)?;
        let folder = folder.join(&name);
        let last_words = LastWords::new(&folder, "QEMU");
        let messages = last_words.messages();
        fs::create_dir_all(&folder)
            .map_err(|error| start(format!("Could not create the folder {}: {error}", folder.display())))?;
        devices::make_disk(plan, index, &folder).map_err(start)?;
        let wiring = network::wiring(plan, index);
        let log = File::create(messages)
            .map_err(|error| start(format!("Could not write {}: {error}", messages.display())))?;
        let mut command = command::command(plan, index, files, &wiring);
        command.current_dir(&folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = process::spawn(command)
            .map_err(|error| start(format!("Could not run setpriv: {error}; install util-linux")))?;
        let Some((stdin, stdout)) = child.stdin.take().zip(child.stdout.take()) else {
            return Err(start("its QEMU has no pipes".to_owned()));
        };
        let connection = Connection::new(stdin, stdout, last_words.clone());
        let mut guest = Self {
            name: name.clone(),
            vcpus: plan.vcpus,
            host_address: wiring.host,
            child,
            connection,
            hello: Hello::default(),
            _bounded: last_words.bounded(LOOK),
            last_words,
            _data_plane: data_plane,
        };
        guest.come_up(plan, index, &wiring, &folder, patience).map_err(|why| {
            start(format!("{why}{}{}", files.too_large(&guest.last_words), guest.last_words))
        })?;
        Ok(guest)
    }

    fn come_up(
        &mut self,
        plan: &QemuPlan,
        index: u32,
        wiring: &network::Wiring,
        folder: &Path,
        patience: Patience<'_>,
    ) -> Result<(), String> {
        let begun = Instant::now();
        if !plan.pin.is_empty() {
            self.pin(plan, index, &folder.join(command::MONITOR))?;
        }
        if let Some(tap) = &wiring.tap {
            let made = tap.bring_up(MONITOR, &mut || self.ended().is_some());
            made.map_err(|why| match self.ended() {
                Some(status) if was_run(status) => format!("{}. {why}", end(status)),
                Some(status) => end(status),
                None => why,
            })?;
        }
        loop {
            let left = patience.left(begun);
            if let Some(hello) = self.connection.wait_hello(left.min(Duration::from_millis(200)))? {
                self.hello = hello;
                return Ok(());
            }
            if let Some(status) = self.ended() {
                return Err(end(status));
            }
            if left.is_zero() {
                return Err(format!("its agent did not answer within {} s", patience.limit.as_secs()));
            }
        }
    }

    /// QEMU's exit status, if it has ended.
    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok()?
    }

    /// Pins each vCPU's thread to its CPU.
    fn pin(&mut self, plan: &QemuPlan, index: u32, monitor: &Path) -> Result<(), String> {
        let begun = Instant::now();
        let mut connected = loop {
            match live::qmp::Monitor::connect(monitor, MONITOR) {
                Ok(connected) => break connected,
                Err(error) => {
                    if let Some(status) = self.ended() {
                        return Err(end(status));
                    }
                    if begun.elapsed() >= MONITOR {
                        return Err(error.to_string());
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let answer = connected.ask("query-cpus-fast", None).map_err(|error| error.to_string())?;
        let cpus: serde_json::Value =
            serde_json::from_str(answer.get()).map_err(|error| error.to_string())?;
        let threads = cpus.as_array().into_iter().flatten().filter_map(|cpu| {
            let number = |key| cpu.get(key)?.as_u64();
            Some((number("cpu-index")?, i32::try_from(number("thread-id")?).ok()?))
        });
        for (vcpu, thread) in threads {
            let turn = u64::from(index) * u64::from(plan.vcpus) + vcpu;
            let Some(&cpu) = plan.pin.get(usize::try_from(turn).unwrap_or(0) % plan.pin.len()) else {
                continue;
            };
            let mut set = CpuSet::new();
            if cpu as usize >= CpuSet::MAX_CPU {
                return Err(format!("guests.pin names CPU {cpu}; expected one below {}", CpuSet::MAX_CPU));
            }
            set.set(cpu as usize);
            sched_setaffinity(Pid::from_raw(thread), &set).map_err(|error| {
                format!("Could not pin vCPU {vcpu} to CPU {cpu}: {error}; see guests.pin")
            })?;
        }
        Ok(())
    }
}

/// Tests whether QEMU was run: with these statuses setpriv could not execute it (`EX_EXEC_FAILED` and `EX_EXEC_ENOENT`,
/// include/c.h of util-linux), or a library is missing (127, from the dynamic loader).
fn was_run(status: ExitStatus) -> bool {
    !matches!(status.code(), Some(126 | 127))
}

fn end(status: ExitStatus) -> String {
    if was_run(status) {
        format!("QEMU ended ({status})")
    } else {
        format!("QEMU could not be run ({status}); install qemu-system-x86, or see guests.program")
    }
}

impl Guest for QemuGuest {
    fn name(&self) -> &str {
        &self.name
    }

    fn vcpus(&self) -> u32 {
        self.vcpus
    }

    /// The host cannot reach the guest's address with QEMU's user-mode network stack.
    fn address(&self) -> Option<IpAddr> {
        self.hello.address.filter(|_| self.host_address != Some(network::USER_HOST))
    }

    fn host_address(&self) -> Option<IpAddr> {
        self.host_address
    }

    fn process(&self) -> Option<i32> {
        i32::try_from(self.child.id()).ok()
    }

    fn cut(&self) -> Option<Cut> {
        let pid = Pid::from_raw(self.process()?)?;
        // A pidfd cannot hit another process with a reused ID.
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        Some(Box::new(move || {
            // Fails if QEMU has ended already.
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }))
    }

    fn arm(&mut self, script: &str, limit: Duration) -> Result<Box<dyn Armed>, GuestError> {
        AgentLine::arm(&self.connection, &self.name, script, limit)
    }

    fn facts(&mut self) -> BTreeMap<String, String> {
        self.hello.facts.clone()
    }

    fn stop(&mut self) -> Result<(), GuestError> {
        self.connection.power_off();
        let ended = programs::ended_within(&mut self.child, POWER_OFF).and_then(|ended| {
            if ended.is_none() {
                tracing::warn!(
                    "{} did not power off within {} s and is killed",
                    self.name,
                    POWER_OFF.as_secs()
                );
                self.child.kill()?;
                self.child.wait()?;
            }
            Ok(())
        });
        ended.map_err(|error| GuestError::Unreachable {
            name: self.name.clone(),
            why: format!("its QEMU cannot be ended: {error}"),
        })
    }
}

impl Drop for QemuGuest {
    fn drop(&mut self) {
        // Fails after `stop`, when QEMU has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LONG, patience};

    #[test]
    fn a_qemu_that_is_missing_is_not_taken_for_another_fault() {
        for settings in ["", "pin = [0]\n", "net = { backend = \"tap\" }\n"] {
            let plan: QemuPlan = toml::from_str(&format!("program = \"/absent/qemu\"\n{settings}")).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let planes = DataPlanes::default();
            let started = QemuGuest::start(&plan, 0, &image_files(), &planes, folder.path(), patience(LONG));
            let why = started.err().unwrap().to_string();
            assert!(why.contains("QEMU could not be run (exit status: 127); install"), "{settings}{why}");
        }
    }
}
