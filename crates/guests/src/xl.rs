//! Xen's `xl`, run in the control domain.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(500);

/// The program, or a mock of it.
#[derive(Debug, Clone)]
pub(super) struct Xl(pub(super) PathBuf);

impl Default for Xl {
    fn default() -> Self {
        Self(PathBuf::from("xl"))
    }
}

impl Xl {
    /// Its output for these arguments.
    ///
    /// # Errors
    /// Its message, or the reason why it could not be run.
    pub(super) fn ask(&self, words: &[&str]) -> Result<String, String> {
        let line = format!("xl {}", words.join(" "));
        let output =
            Command::new(&self.0).args(words).stdin(Stdio::null()).output().map_err(|error| {
                format!("Could not run `{line}`: {error}; this must be dom0 with xen-utils")
            })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        Err(format!("`{line}` failed: {}", said.join("; ")))
    }

    /// Tests whether a domain of this name exists.
    pub(super) fn has(&self, domain: &str) -> bool {
        self.ask(&["domid", domain]).is_ok()
    }

    /// Waits until the domain is gone, and destroys it after `patience`.
    ///
    /// # Errors
    /// The message of xl if it could not be destroyed.
    pub(super) fn see_off(&self, domain: &str, patience: Duration) -> Result<(), String> {
        let begun = Instant::now();
        while self.has(domain) {
            if begun.elapsed() > patience {
                tracing::warn!("{domain} did not shut down within {} s and is destroyed", patience.as_secs());
                return self.ask(&["destroy", domain]).map(drop);
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}
