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
    ///
    /// # Errors
    /// xl's message if it cannot tell.
    pub(super) fn has(&self, domain: &str) -> Result<bool, String> {
        if self.ask(&["domid", domain]).is_ok() {
            return Ok(true);
        }
        // `xl domid` also fails if it cannot ask, for example when xenstored does not answer. A list shows who is there.
        let listed = self.ask(&["list"])?;
        Ok(listed.lines().any(|line| line.split_whitespace().next() == Some(domain)))
    }

    /// Waits until the domain is gone, and destroys it if that takes longer than `patience`, or if xl cannot tell.
    ///
    /// # Errors
    /// The message of xl if it could not be destroyed.
    pub(super) fn see_off(&self, domain: &str, patience: Duration) -> Result<(), String> {
        let begun = Instant::now();
        while self.has(domain) != Ok(false) {
            if begun.elapsed() > patience {
                tracing::warn!("{domain} did not shut down within {} s and is destroyed", patience.as_secs());
                return self.ask(&["destroy", domain]).map(drop);
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_domain_that_xl_cannot_ask_about_is_not_taken_for_gone() {
        let folder = tempfile::tempdir().unwrap();
        let xl = Xl(folder.path().join("xl"));
        let patience = Duration::ZERO;
        for (list, has, end) in [
            ("echo 'Name ID'; echo 'vm-2 5'", Ok(false), Ok(())),
            ("echo 'Name ID'; echo 'vm 5'", Ok(true), Err("in use")),
            ("echo 'no xenstored' >&2; exit 1", Err("no xenstored"), Err("in use")),
        ] {
            let fake = format!(
                "#!/bin/sh\ncase $1 in\ndomid) exit 1 ;;\nlist) {list} ;;\ndestroy) echo 'in use' >&2; exit 1 ;;\nesac\n"
            );
            fs::write(&xl.0, fake).unwrap();
            fs::set_permissions(&xl.0, fs::Permissions::from_mode(0o755)).unwrap();
            let like = |said: &str, end: &str| said.ends_with(&format!(" failed: {end}"));
            match (xl.has("vm"), has) {
                (Err(why), Err(end)) => assert!(like(&why, end), "{why}"),
                (found, wanted) => assert_eq!(found.ok(), wanted.ok(), "{list}"),
            }
            match (xl.see_off("vm", patience), end) {
                (Err(why), Err(end)) => assert!(like(&why, end), "{why}"),
                (found, wanted) => assert_eq!(found.ok(), wanted.ok(), "{list}"),
            }
        }
    }
}
