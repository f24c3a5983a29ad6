//! Xen's `xl`, run in the control domain.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(500);
/// The time limit of a command: a domain with much memory takes minutes to create or to destroy, and without xenstored
/// `xl` waits for ever.
const PATIENCE: Duration = Duration::from_secs(600);
/// The most bytes of its output.
const LARGEST_ANSWER: usize = 1 << 20;

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
        let answer = programs::answer(Command::new(&self.0).args(words), PATIENCE, LARGEST_ANSWER);
        let answer = answer.map_err(|error| match error.is_missing() {
            true => format!("Could not run `{line}`: {error}; this must be dom0 with xen-utils"),
            false => format!("`{line}`: {error}; try it by hand"),
        })?;
        answer.text().map_err(|said| format!("`{line}` failed: {said}"))
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
