//! `exitless iocm serve`, which all guests of an arm share, and `exitless iocm monitor`.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::super::plan::{IoArrangement, IoWorkers, QemuPlan};
use super::options::tap_name;
use crate::{own_program, process};

/// The data plane's folder, next to the guests' folders.
const FOLDER: &str = "iocm";
const CONFIG: &str = "iocm.toml";
const CONTROL: &str = "control";
const MESSAGES: &str = "iocm.log";
/// The monitor's decisions, one line of JSON each.
const DECISIONS: &str = "decisions.jsonl";
/// The time within which the daemon must be ready.
const START: Duration = Duration::from_secs(30);
const SHOWN_LINES: usize = 10;

/// The data plane that the running guests share; it ends with the last of them.
#[derive(Debug, Clone, Default)]
pub struct DataPlanes(Arc<Mutex<Weak<DataPlane>>>);

/// A running daemon and its monitor; dropping this kills them.
#[derive(Debug)]
pub(super) struct DataPlane {
    daemon: Child,
    monitor: Option<Child>,
}

impl DataPlanes {
    /// The running data plane, or a new one for the plan's largest number of guests.
    pub(super) fn get(&self, plan: &QemuPlan, folder: &Path) -> Result<Arc<DataPlane>, String> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = running.upgrade() {
            return Ok(running);
        }
        let started = Arc::new(DataPlane::start(plan, &folder.join(FOLDER))?);
        *running = Arc::downgrade(&started);
        Ok(started)
    }
}

/// The socket of guest `index`, relative to the guest's folder: an absolute path could be too long for a socket (108
/// bytes, unix(7)).
pub(super) fn socket_of(index: u32) -> PathBuf {
    Path::new("..").join(FOLDER).join(socket(index))
}

fn socket(index: u32) -> String {
    format!("net-{index}.sock")
}

impl DataPlane {
    fn start(plan: &QemuPlan, folder: &Path) -> Result<Self, String> {
        let (text, devices) = config(plan);
        // Remove files of an earlier arm's daemon: its sockets would look as if this one were ready.
        let made = fs::remove_dir_all(folder)
            .or_else(|error| if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
            .and_then(|()| fs::create_dir_all(folder))
            .and_then(|()| fs::write(folder.join(CONFIG), text));
        made.map_err(|error| {
            format!("Could not create the I/O daemon's folder {}: {error}", folder.display())
        })?;
        let daemon = spawn(folder, &["iocm", "serve", "--config", CONFIG], MESSAGES)?;
        let mut plane = Self { daemon, monitor: None };
        plane.wait(folder, devices)?;
        if plan.net().and_then(|net| net.workers).unwrap_or_default().arrangement == IoArrangement::Monitor {
            // Counting exits would cost only this arm; the study samples exits itself.
            let arguments =
                ["iocm", "monitor", "--no-exits", "--json", "--socket", CONTROL, "--state", "state.json"];
            plane.monitor = Some(spawn(folder, &arguments, DECISIONS)?);
        }
        Ok(plane)
    }

    fn wait(&mut self, folder: &Path, devices: u32) -> Result<(), String> {
        let begun = Instant::now();
        let names: Vec<String> = (0..devices).map(socket).chain([CONTROL.to_owned()]).collect();
        while !names.iter().all(|name| folder.join(name).exists()) {
            let ended = self.daemon.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || begun.elapsed() > START {
                let text = fs::read_to_string(folder.join(MESSAGES)).unwrap_or_default();
                let last = programs::last_lines(&text, SHOWN_LINES).join("\n  ");
                return Err(format!(
                    "`exitless iocm serve` does not serve the guests' network devices; its last messages:\n  {last}\n\
                     It needs root (CAP_NET_ADMIN) and /dev/net/tun (modprobe tun)"
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        for child in self.monitor.iter_mut().chain([&mut self.daemon]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The daemon's configuration, and its number of devices.
fn config(plan: &QemuPlan) -> (String, u32) {
    let net = plan.net();
    let workers = net.and_then(|net| net.workers).unwrap_or_default();
    let devices = plan.counts.iter().copied().max().unwrap_or(1);
    let mut text = match workers {
        IoWorkers { arrangement: IoArrangement::PerDevice, .. } => {
            "[workers]\narrangement = \"per-device\"\n".to_owned()
        }
        IoWorkers { count, .. } => format!("[workers]\ncount = {}\n", count.unwrap_or(1)),
    };
    let _ = write!(text, "\n[control]\nsocket = \"{CONTROL}\"\nmount = \"\"\n");
    for index in 0..devices {
        let queues = net.map_or(1, |net| net.queues);
        let (socket, tap) = (socket(index), tap_name(index));
        let _ = write!(
            text,
            "\n[[device]]\nname = \"net-{index}\"\ntype = \"net\"\nsocket = \"{socket}\"\nqueues = {queues}\n\
             backend = {{ tap = \"{tap}\" }}\n"
        );
    }
    (text, devices)
}

/// Starts this program with other arguments; the child is killed when this process ends.
fn spawn(folder: &Path, arguments: &[&str], output: &str) -> Result<Child, String> {
    let program = own_program();
    let path = folder.join(output);
    let file = File::create(&path).and_then(|file| Ok((file.try_clone()?, file)));
    let (out, err) = file.map_err(|error| format!("Could not write {}: {error}", path.display()))?;
    let mut command = process::command(&program);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(out).stderr(err);
    let words = arguments.join(" ");
    process::spawn(command).map_err(|error| format!("Could not run `{} {words}`: {error}", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(net: &str) -> QemuPlan {
        toml::from_str(&format!("counts = [1, 3]\n[net]\nbackend = \"iocm\"\n{net}")).unwrap()
    }

    #[test]
    fn the_daemon_has_a_device_for_each_guest_and_the_workers_of_the_plan() {
        let (text, devices) = config(&plan("workers = { count = 2 }"));
        let table: toml::Table = text.parse().unwrap();
        assert_eq!((devices, table["device"].as_array().unwrap().len()), (3, 3));
        assert_eq!(table["workers"]["count"].as_integer(), Some(2));
        let (last, tap) = (&table["device"][2], tap_name(2));
        assert_eq!(last["backend"]["tap"].as_str(), Some(tap.as_str()));
        assert!(socket_of(2).ends_with(last["socket"].as_str().unwrap()));
        let (text, _) = config(&plan("queues = 4\nworkers = { arrangement = \"per-device\" }"));
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table["workers"]["arrangement"].as_str(), Some("per-device"));
        assert_eq!(table["device"][0]["queues"].as_integer(), Some(4));
        let (text, _) = config(&plan("workers = { arrangement = \"monitor\" }"));
        assert_eq!(text.parse::<toml::Table>().unwrap()["workers"]["count"].as_integer(), Some(1));
    }
}
