//! Xen's `xl`, asked from the control domain.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(500);

/// The program, or a stand-in for it.
#[derive(Debug, Clone)]
pub(super) struct Xl(pub(super) PathBuf);

impl Default for Xl {
    fn default() -> Self {
        Self(PathBuf::from("xl"))
    }
}

impl Xl {
    /// What it prints when it is given these words.
    ///
    /// # Errors
    /// What it said, or why it could not be run.
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

    /// Whether a domain of this name is there.
    pub(super) fn has(&self, domain: &str) -> bool {
        self.ask(&["domid", domain]).is_ok()
    }

    /// Waits until the domain is gone, and destroys it when it takes longer than `patience`.
    ///
    /// # Errors
    /// What xl said when it could not be destroyed.
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
