//! What a daemon is made of, as its file says it.

mod control;
mod line;
mod net;

use crate::device::block::{BlockOptions, SERIAL_BYTES};
use crate::device::net::NetOptions;
use crate::worker::{Polling, WorkerOptions};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

pub use control::{ControlConfig, MOUNT, SOCKET, SafetyConfig, Seccomp};
pub use line::{BadLine, WorkerConfig};
pub use net::NetBackend;

/// What a daemon is made of.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Its workers.
    #[serde(default)]
    pub workers: WorkersConfig,
    /// Its devices.
    #[serde(default, rename = "device", skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceConfig>,
    /// Where it can be looked at and changed while it runs.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub control: ControlConfig,
    /// What it may do once it runs.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub safety: SafetyConfig,
}

/// How devices are given to workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrangement {
    /// All workers share all devices: each queue goes to the worker that has the fewest.
    #[default]
    Shared,
    /// A worker for each device, as vhost has it.
    PerDevice,
}

/// What workers do when there is nothing to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
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

impl PollingConfig {
    /// The same with its longest nap, microseconds.
    #[must_use]
    pub const fn polling(self, longest_nap_us: u64) -> Polling {
        match self {
            Self::Adaptive => Polling::Adaptive { nap_ns: longest_nap_us.saturating_mul(1000) },
            Self::Always => Polling::Always,
            Self::Never => Polling::Never,
        }
    }
}

/// A daemon's workers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Size of a disk that forgets, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub null_size_bytes: Option<u64>,
    /// Whether the guest may only read.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub read_only: bool,
    /// Whether the host's page cache is passed by.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub direct: bool,
    /// The disk's serial number, at most 20 bytes.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub serial: String,
    /// Queues at most; of a network device, pairs of queues.
    #[serde(default = "one")]
    pub queues: u16,
    /// What a network device's packets go to and come from; without it they are forgotten, for measuring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<NetBackend>,
    /// A network device's address, as `52:54:00:12:34:56`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Most bytes of a network device's packets, without their Ethernet header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Limit of requests a second; 0 for none.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub requests_per_second: u64,
    /// Limit of bytes a second; 0 for none.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub bytes_per_second: u64,
}

/// Kinds of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
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

/// Whether it need not be said.
fn is_usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
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
            device.check()?;
        }
        Ok(())
    }

    /// The file that says so.
    ///
    /// # Errors
    /// [`ConfigError::Nonsense`] when something cannot be written in TOML.
    pub fn text(&self) -> Result<String, ConfigError> {
        toml::to_string(self).map_err(|error| ConfigError::Nonsense(error.to_string()))
    }
}

impl WorkersConfig {
    /// What they do when there is nothing to do.
    #[must_use]
    pub const fn polling(&self) -> Polling {
        self.polling.polling(self.longest_nap_us)
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
    /// Whether it can be by itself.
    ///
    /// # Errors
    /// [`ConfigError::Nonsense`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let nonsense = |what: String| Err(ConfigError::Nonsense(what));
        let name = &self.name;
        if name.is_empty() || name.chars().any(char::is_control) {
            return nonsense("a device's name is one line of text".to_owned());
        }
        if self.serial.len() > SERIAL_BYTES {
            return nonsense(format!("the serial number of {name} has more than {SERIAL_BYTES} bytes"));
        }
        if !(1..=256).contains(&self.queues) {
            return nonsense(format!("{name} has {} queues, and 1 to 256 can be", self.queues));
        }
        self.check_kind()?;
        if self.path.is_some() && self.null_size_bytes.is_some() {
            return nonsense(format!("{name} has a path, and its file's size: leave out null-size-bytes"));
        }
        Ok(())
    }

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
#[path = "config/config_tests.rs"]
mod tests;
