//! The daemon's configuration file.

mod control;
mod device;
mod line;
mod net;
mod socket;

use crate::worker::{DEFAULT_NAP_NS, Polling, WorkerOptions};
use host::CpuSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub use control::{ControlConfig, MOUNT, SOCKET, SafetyConfig, Seccomp};
pub use device::{DeviceConfig, DeviceType, DiskFormat};
pub use line::{BadLine, WorkerConfig};
pub use net::NetBackend;
pub use socket::SocketsConfig;

/// A daemon's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Its workers.
    #[serde(default)]
    pub workers: WorkersConfig,
    /// Its devices.
    #[serde(default, rename = "device", skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceConfig>,
    /// The owner, group and mode of all devices' sockets.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub sockets: SocketsConfig,
    /// The control socket and the mount of the control tree.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub control: ControlConfig,
    /// The privileges that it keeps once it runs.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub safety: SafetyConfig,
}

/// The assignment of devices to workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrangement {
    /// All workers share all devices: each queue goes to the worker with the fewest queues.
    #[default]
    Shared,
    /// A worker for each device, as in the kernel's vhost.
    PerDevice,
}

/// Polling of a worker that found nothing to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PollingConfig {
    /// The cheapest way that does not slow guests down.
    #[default]
    Adaptive,
    /// Always poll, on a dedicated core.
    Always,
    /// Always sleep until a kick.
    Never,
}

impl PollingConfig {
    /// The polling mode with this longest nap, microseconds.
    #[must_use]
    pub const fn polling(self, longest_nap_us: u64) -> Polling {
        match self {
            Self::Adaptive => Polling::Adaptive { nap_ns: longest_nap_us.saturating_mul(1000) },
            Self::Always => Polling::Always,
            Self::Never => Polling::Never,
        }
    }
}

/// The workers of a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct WorkersConfig {
    /// The assignment of devices to workers.
    pub arrangement: Arrangement,
    /// The number of workers, if devices share them.
    pub count: u32,
    /// The host CPUs of each worker, as lists such as `2` or `4-7`; workers without a list run on all.
    pub cpus: Vec<String>,
    /// Polling of workers that find nothing to do.
    pub polling: PollingConfig,
    /// The longest nap, and so the longest time that a request waits for its end, microseconds.
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
            longest_nap_us: DEFAULT_NAP_NS / 1000,
        }
    }
}

/// Tests whether a value is the default, which a file may leave out.
fn is_usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("Cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file is not valid TOML for this type. The message has the line and the column.
    #[error("{path} cannot be understood: {why}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The parser's message.
        why: String,
    },
    /// A value is out of range, or contradicts another one.
    #[error("{0}")]
    Invalid(String),
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
            ConfigError::Invalid(why) => ConfigError::Invalid(format!("{}: {why}", path.display())),
            error @ ConfigError::Read { .. } => error,
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
        let invalid = |what: String| Err(ConfigError::Invalid(what));
        if self.workers.count == 0 {
            return invalid("count = 0: there must be an I/O worker at least".to_owned());
        }
        longest_nap(self.workers.longest_nap_us)?;
        for list in &self.workers.cpus {
            cpu_list(list)?;
        }
        let (lists, count) = (self.workers.cpus.len(), self.workers.count);
        if self.workers.arrangement == Arrangement::Shared && lists > count as usize {
            return invalid(format!("cpus has {lists} lists, one for each I/O worker, and count = {count}"));
        }
        self.sockets.check("[sockets]")?;
        for (index, device) in self.devices.iter().enumerate() {
            let name = &device.name;
            if self.devices[..index].iter().any(|other| other.name == *name) {
                return invalid(format!("two devices are called {name}"));
            }
            if self.devices[..index].iter().any(|other| other.socket == device.socket) {
                return invalid(format!("two devices wait on {}", device.socket.display()));
            }
            device.check()?;
        }
        let backends = self.devices.iter().filter_map(|device| device.backend.as_ref());
        let mut numbers = backends.filter_map(|backend| backend.tap_fds.as_ref()).flatten();
        let mut seen = BTreeSet::new();
        if let Some(number) = numbers.find(|number| !seen.insert(**number)) {
            return invalid(format!(
                "tap-fds has {number} twice: each queue pair needs a descriptor of its own"
            ));
        }
        Ok(())
    }

    /// The configuration as TOML.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Invalid`] when a value cannot be written in TOML.
    pub fn text(&self) -> Result<String, ConfigError> {
        toml::to_string(self).map_err(|error| ConfigError::Invalid(error.to_string()))
    }
}

impl WorkersConfig {
    /// The polling of all workers.
    #[must_use]
    pub const fn polling(&self) -> Polling {
        self.polling.polling(self.longest_nap_us)
    }

    /// The options of the worker with this number.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`].
    pub fn worker(&self, number: usize) -> Result<WorkerOptions, ConfigError> {
        let cpus = self.cpus.get(number).map(|list| cpu_list(list)).transpose()?.unwrap_or_default();
        Ok(WorkerOptions { cpus, polling: self.polling(), ..WorkerOptions::default() })
    }
}

/// Checks a longest nap, microseconds.
///
/// # Errors
/// [`ConfigError::Invalid`].
pub(crate) fn longest_nap(us: u64) -> Result<u64, ConfigError> {
    match us {
        1..=1_000_000 => Ok(us),
        _ => Err(ConfigError::Invalid(format!(
            "the longest nap (longest-nap-us) is {us} us, expected 1 to 1000000"
        ))),
    }
}

/// Parses a list of CPUs such as `0-3,6`.
///
/// # Errors
/// [`ConfigError::Invalid`].
pub fn cpu_list(text: &str) -> Result<CpuSet, ConfigError> {
    /// More CPUs than any host has.
    const MAX: u32 = 1 << 13;
    CpuSet::parse(text)
        .filter(|cpus| cpus.last().is_some_and(|last| last < MAX))
        .ok_or_else(|| ConfigError::Invalid(format!("`{text}` is not a list of CPUs such as 2 or 4-7,10")))
}

#[cfg(test)]
#[path = "config/config_tests.rs"]
mod tests;
