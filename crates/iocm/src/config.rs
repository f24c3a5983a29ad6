//! What a daemon is made of, as its file says it.

mod net;

use crate::device::block::{BlockOptions, SERIAL_BYTES};
use crate::device::net::NetOptions;
use crate::worker::{Polling, WorkerOptions};
use serde::Deserialize;
use std::path::{Path, PathBuf};

pub use net::NetBackend;

/// What a daemon is made of.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Its workers.
    #[serde(default)]
    pub workers: WorkersConfig,
    /// Its devices.
    #[serde(default, rename = "device")]
    pub devices: Vec<DeviceConfig>,
}

/// How devices are given to workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrangement {
    /// All workers share all devices: each queue goes to the worker that has the fewest.
    #[default]
    Shared,
    /// A worker for each device, as vhost has it.
    PerDevice,
}

/// What workers do when there is nothing to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PollingConfig {
    /// What costs least without slowing guests down.
    #[default]
    Adaptive,
    /// Look again, on a core of their own.
    Always,
    /// Sleep until a kick.
    Never,
}

/// A daemon's workers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct WorkersConfig {
    /// How devices are given to them.
    pub arrangement: Arrangement,
    /// How many there are, where they are shared.
    pub count: u32,
    /// Host CPUs of each, as lists such as `2` or `4-7`; workers beyond the last list run on all.
    pub cpus: Vec<String>,
    /// What they do when there is nothing to do.
    pub polling: PollingConfig,
    /// The longest that a request waits for a nap to end, microseconds.
    pub longest_nap_us: u64,
}

impl Default for WorkersConfig {
    fn default() -> Self {
        let cpus = Vec::new();
        Self {
            arrangement: Arrangement::default(),
            count: 1,
            cpus,
            polling: PollingConfig::default(),
            longest_nap_us: 100,
        }
    }
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DeviceConfig {
    /// What it is called.
    pub name: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: DeviceType,
    /// Where it waits for its front-end.
    pub socket: PathBuf,
    /// A raw file or a block device; without it a disk that forgets everything, for measuring.
    pub path: Option<PathBuf>,
    /// Size of a disk that forgets, bytes.
    pub null_size_bytes: Option<u64>,
    /// Whether the guest may only read.
    #[serde(default)]
    pub read_only: bool,
    /// Whether the host's page cache is passed by.
    #[serde(default)]
    pub direct: bool,
    /// The disk's serial number, at most 20 bytes.
    #[serde(default)]
    pub serial: String,
    /// Queues at most; of a network device, pairs of queues.
    #[serde(default = "one")]
    pub queues: u16,
    /// What a network device's packets go to and come from; without it they are forgotten, for measuring.
    pub backend: Option<NetBackend>,
    /// A network device's address, as `52:54:00:12:34:56`.
    pub mac: Option<String>,
    /// Most bytes of a network device's packets, without their Ethernet header.
    pub mtu: Option<u16>,
    /// Limit of requests a second; 0 for none.
    #[serde(default)]
    pub requests_per_second: u64,
    /// Limit of bytes a second; 0 for none.
    #[serde(default)]
    pub bytes_per_second: u64,
}

/// Kinds of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceType {
    /// A disk.
    Block,
    /// A network device.
    Net,
}

const fn one() -> u16 {
    1
}

/// Why a file makes no daemon.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It cannot be read.
    #[error("Cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is no such file. The message has the line and the column.
    #[error("{path} cannot be understood: {why}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// What it says cannot be.
    #[error("{0}")]
    Nonsense(String),
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|error| match error {
            ConfigError::Syntax { why, .. } => ConfigError::Syntax { path: path.to_owned(), why },
            error => error,
        })
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let syntax = |error: toml::de::Error| ConfigError::Syntax {
            path: PathBuf::new(),
            why: error.to_string().trim_end().to_owned(),
        };
        let config: Self = toml::from_str(text).map_err(syntax)?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let nonsense = |what: String| Err(ConfigError::Nonsense(what));
        if self.workers.count == 0 {
            return nonsense("count = 0: there must be an I/O worker at least".to_owned());
        }
        for list in &self.workers.cpus {
            cpu_list(list)?;
        }
        for (index, device) in self.devices.iter().enumerate() {
            let name = &device.name;
            if self.devices[..index].iter().any(|other| other.name == *name) {
                return nonsense(format!("two devices are called {name}"));
            }
            if self.devices[..index].iter().any(|other| other.socket == device.socket) {
                return nonsense(format!("two devices wait on {}", device.socket.display()));
            }
            if device.serial.len() > SERIAL_BYTES {
                return nonsense(format!("the serial number of {name} has more than {SERIAL_BYTES} bytes"));
            }
            if !(1..=256).contains(&device.queues) {
                return nonsense(format!("{name} has {} queues, and 1 to 256 can be", device.queues));
            }
            device.check_kind()?;
            if device.path.is_some() && device.null_size_bytes.is_some() {
                return nonsense(format!(
                    "{name} has a path, and its file's size: leave out null-size-bytes"
                ));
            }
        }
        Ok(())
    }
}

impl WorkersConfig {
    /// What they do when there is nothing to do.
    #[must_use]
    pub const fn polling(&self) -> Polling {
        match self.polling {
            PollingConfig::Adaptive => Polling::Adaptive { nap_ns: self.longest_nap_us.saturating_mul(1000) },
            PollingConfig::Always => Polling::Always,
            PollingConfig::Never => Polling::Never,
        }
    }

    /// How the worker of this number is made.
    ///
    /// # Errors
    /// [`ConfigError::Nonsense`].
    pub fn worker(&self, number: usize) -> Result<WorkerOptions, ConfigError> {
        let cpus = self.cpus.get(number).map(|list| cpu_list(list)).transpose()?.unwrap_or_default();
        Ok(WorkerOptions { cpus, polling: self.polling() })
    }
}

impl DeviceConfig {
    /// What its network device is made of.
    ///
    /// # Errors
    /// [`ConfigError::Nonsense`].
    pub fn net(&self) -> Result<NetOptions, ConfigError> {
        net::options(self)
    }

    /// Whether everything that is said is of its kind.
    fn check_kind(&self) -> Result<(), ConfigError> {
        let of_net = self.backend.is_some() || self.mac.is_some() || self.mtu.is_some();
        let of_block = self.path.is_some()
            || self.null_size_bytes.is_some()
            || self.read_only
            || self.direct
            || !self.serial.is_empty();
        let nonsense = |what: &str| Err(ConfigError::Nonsense(format!("{} is {what}", self.name)));
        match self.kind {
            DeviceType::Block if of_net => nonsense("a disk: leave out backend, mac and mtu"),
            DeviceType::Net if of_block => {
                nonsense("a network device: leave out path, null-size-bytes, read-only, direct and serial")
            }
            DeviceType::Net => self.net().map(drop),
            DeviceType::Block => Ok(()),
        }
    }

    /// What its disk is made of.
    #[must_use]
    pub fn block(&self) -> BlockOptions {
        BlockOptions {
            path: self.path.clone(),
            null_size: self.null_size_bytes.unwrap_or(1 << 30),
            read_only: self.read_only,
            direct: self.direct,
            serial: self.serial.clone(),
            queues: self.queues,
            requests_a_second: self.requests_per_second,
            bytes_a_second: self.bytes_per_second,
        }
    }
}

/// CPUs of a list such as `0-3,6`.
///
/// # Errors
/// [`ConfigError::Nonsense`].
pub fn cpu_list(text: &str) -> Result<Vec<usize>, ConfigError> {
    /// More than any host has.
    const MOST: usize = 1 << 13;
    let nonsense = || ConfigError::Nonsense(format!("`{text}` is no list of CPUs such as 2 or 4-7,10"));
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number =
            |text: &str| text.trim().parse::<usize>().ok().filter(|cpu| *cpu < MOST).ok_or_else(nonsense);
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(nonsense());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Config::parse(text).unwrap_err().to_string()
    }

    const DISK: &str = "[[device]]\nname = \"a\"\ntype = \"block\"\nsocket = \"/run/a\"\n";

    #[test]
    fn what_is_not_said_is_usual() {
        let config = Config::parse(DISK).unwrap();
        assert_eq!(config.workers.count, 1);
        assert_eq!(config.workers.polling(), Polling::Adaptive { nap_ns: 100_000 });
        assert_eq!(config.devices[0].block(), BlockOptions::default());
        assert_eq!(config.workers.worker(0).unwrap(), WorkerOptions::default());
    }

    #[test]
    fn everything_can_be_said() {
        let text = "[workers]\narrangement = \"per-device\"\ncount = 3\ncpus = [\"2\", \"4-6,8\"]\npolling = \"always\"\n\
            longest-nap-us = 50\n[[device]]\nname = \"a\"\ntype = \"block\"\nsocket = \"/run/a\"\npath = \"/x\"\n\
            read-only = true\ndirect = true\nserial = \"s\"\nqueues = 4\nrequests-per-second = 5\nbytes-per-second = 6\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.workers.arrangement, Arrangement::PerDevice);
        assert_eq!(config.workers.worker(1).unwrap().cpus, [4, 5, 6, 8]);
        assert_eq!(config.workers.polling(), Polling::Always);
        let block = config.devices[0].block();
        assert!(block.read_only && block.direct);
        assert_eq!((block.queues, block.requests_a_second, block.bytes_a_second), (4, 5, 6));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        assert!(refused("[workers]\ncount = 0").contains("count = 0"));
        assert!(refused("[workers]\ncpus = [\"3-1\"]").contains("`3-1`"));
        assert!(refused("[workers]\ncpus = [\"99999\"]").contains("`99999`"));
        assert!(refused("[workers]\nspeed = 1").contains("line 2"), "{}", refused("[workers]\nspeed = 1"));
        assert!(refused(&format!("{DISK}{DISK}")).contains("called a"));
        assert!(refused(&format!("{DISK}{}", DISK.replace("\"a\"", "\"b\""))).contains("/run/a"));
        assert!(refused(&format!("{DISK}queues = 0")).contains("0 queues"));
        assert!(refused(&format!("{DISK}serial = \"123456789012345678901\"")).contains("20 bytes"));
        assert!(refused(&format!("{DISK}path = \"/x\"\nnull-size-bytes = 1")).contains("null-size-bytes"));
        assert!(refused(&DISK.replace("block", "tape")).contains("tape"));
    }
}
