//! Workers and devices in one line, for adding them to a running daemon.

use super::{ConfigError, DeviceConfig, PollingConfig, WorkersConfig, cpu_list, longest_nap};
use crate::worker::WorkerOptions;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A worker to be added while the daemon runs. Missing values come from `[workers]` in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct WorkerConfig {
    /// The host CPUs on which it may run, a list such as `2` or `4-7`; all by default.
    pub cpus: Option<String>,
    /// Polling when it finds nothing to do.
    pub polling: Option<PollingConfig>,
    /// The longest that a request waits for a nap to end, microseconds.
    pub longest_nap_us: Option<u64>,
}

/// A line that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadLine(pub String);

impl WorkerConfig {
    /// Parses a line: nothing, a TOML inline table, a JSON object, or a TOML document.
    ///
    /// # Errors
    /// [`BadLine`].
    pub fn parse(text: &str) -> Result<Self, BadLine> {
        let config: Self = parse(text)?;
        config.options(&WorkersConfig::default())?;
        Ok(config)
    }

    /// The options of the worker; those that the line leaves out come from `usual`.
    ///
    /// # Errors
    /// [`BadLine`] when its CPUs are not a list, or its longest nap cannot be.
    pub fn options(&self, usual: &WorkersConfig) -> Result<WorkerOptions, BadLine> {
        let cpus = self.cpus.as_deref().map(cpu_list).transpose();
        let bad = |error: ConfigError| BadLine(error.to_string());
        let nap = longest_nap(self.longest_nap_us.unwrap_or(usual.longest_nap_us)).map_err(bad)?;
        Ok(WorkerOptions {
            cpus: cpus.map_err(bad)?.unwrap_or_default(),
            polling: self.polling.unwrap_or(usual.polling).polling(nap),
            ..WorkerOptions::default()
        })
    }
}

impl DeviceConfig {
    /// Parses a line: a TOML inline table, a JSON object, or a TOML document.
    ///
    /// # Errors
    /// [`BadLine`].
    pub fn parse(text: &str) -> Result<Self, BadLine> {
        let config: Self = parse(text)?;
        config.check().map_err(|error| BadLine(error.to_string()))?;
        Ok(config)
    }
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, BadLine> {
    /// The key that an inline table needs in TOML.
    #[derive(Deserialize)]
    struct Line<T> {
        line: T,
    }
    let text = text.trim();
    let bad = |error: &dyn std::fmt::Display| BadLine(error.to_string().trim_end().to_owned());
    if !text.starts_with('{') {
        return toml::from_str(text).map_err(|error| bad(&error));
    }
    // TOML inline tables begin like JSON objects: a text that is not JSON is taken for TOML.
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(value) => serde_json::from_value(value).map_err(|error| bad(&error)),
        Err(_) => match toml::from_str::<Line<T>>(&format!("line = {text}")) {
            Ok(line) => Ok(line.line),
            Err(error) => Err(bad(&error.message())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_toml_or_json() {
        let lines = [
            "{ name = \"a\", type = \"block\", socket = \"/run/a\", queues = 2 }\n",
            "{\"name\":\"a\",\"type\":\"block\",\"socket\":\"/run/a\",\"queues\":2}",
            "name = \"a\"\ntype = \"block\"\nsocket = \"/run/a\"\nqueues = 2",
        ];
        for line in lines {
            let device = DeviceConfig::parse(line).unwrap();
            assert_eq!((device.name.as_str(), device.queues), ("a", 2), "{line}");
        }
        assert_eq!(WorkerConfig::parse("").unwrap(), WorkerConfig::default());
        let worker = WorkerConfig::parse("{ cpus = \"2-3\", polling = \"always\" }").unwrap();
        assert_eq!(worker.options(&WorkersConfig::default()).unwrap().cpus.to_string(), "2-3");
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        let why = |line| DeviceConfig::parse(line).unwrap_err().to_string();
        assert!(
            why("{ name = \"a\", speed = 3 }").contains("speed"),
            "{}",
            why("{ name = \"a\", speed = 3 }")
        );
        assert!(why("{\"name\": 3}").contains("string"), "{}", why("{\"name\": 3}"));
        assert!(why("").contains("name"));
        assert!(why("{").contains("table") || !why("{").is_empty());
        assert!(WorkerConfig::parse("{ cpus = \"x\" }").unwrap_err().to_string().contains("`x`"));
        let nap = WorkerConfig::parse("{ longest-nap-us = 1000001 }").unwrap_err().to_string();
        assert!(nap.contains("1000001 us"), "{nap}");
    }
}
