//! The limits of the monitor's policy, from a file.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use iocm_monitor::Settings;

use crate::commands::paths;
use crate::status::Usage;

/// The policy's bounds.
#[derive(Debug, Args)]
pub(crate) struct SettingsArguments {
    /// A TOML file with bounds of the policy that replace the defaults, such as `most-cores = 4`.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
}

impl SettingsArguments {
    pub(super) fn read(&self) -> anyhow::Result<Settings> {
        let Some(path) = &self.settings else { return Ok(Settings::default()) };
        let what = format!("Cannot read the settings {}", path.display());
        let told = |error: &dyn std::fmt::Display| Usage(format!("{what}: {error}"));
        let text = fs::read_to_string(path).map_err(|error| paths::unread(&what, error))?;
        let settings: Settings = toml::from_str(&text).map_err(|error| told(&error))?;
        settings.check().map_err(|error| told(&error))?;
        Ok(settings)
    }
}
