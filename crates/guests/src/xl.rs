//! Xen's `xl`, run in the control domain.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::manager;

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
    /// Runs xl with these arguments, and returns its output.
    ///
    /// # Errors
    /// xl's message, or the reason why it could not be run.
    pub(super) fn ask(&self, words: &[&str]) -> Result<String, String> {
        let line = format!("xl {}", words.join(" "));
        manager::ask(&line, Command::new(&self.0).args(words), "this must be dom0 with xen-utils")
    }

    /// Tests whether a domain of this name exists.
    pub(super) fn has(&self, domain: &str) -> bool {
        self.ask(&["domid", domain]).is_ok()
    }

    /// Waits until the domain is gone, and destroys it if that takes longer than `patience`, or if xl cannot tell.
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
