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

    /// Runs a command of xl for the domain of this name. xl takes a number for the ID of a domain
    /// (`libxl_domain_qualifier_to_domid`, tools/libs/light/libxl_utils.c), which may be that of another one, but `xl domid`
    /// does not (`main_domid`, tools/xl/xl_info.c).
    ///
    /// # Errors
    /// Those of [`Self::ask`].
    pub(super) fn tell(&self, command: &str, domain: &str) -> Result<String, String> {
        if domain.bytes().all(|byte| byte.is_ascii_digit()) {
            return self.ask(&[command, &self.ask(&["domid", domain])?]);
        }
        self.ask(&[command, domain])
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
                return self.tell("destroy", domain).map(drop);
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
    fn a_domain_whose_name_is_a_number_is_not_taken_for_an_id() {
        let folder = tempfile::tempdir().unwrap();
        let xl = Xl(folder.path().join("xl"));
        let fake = "#!/bin/sh\n[ $1 = domid ] || { echo \"$*\"; exit; }\ncase $2 in\n2) echo 5 ;;\nvm) echo 2 ;;\n\
                    *) echo 'no such domain' >&2; exit 1 ;;\nesac\n";
        fs::write(&xl.0, fake).unwrap();
        fs::set_permissions(&xl.0, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(xl.tell("destroy", "2").as_deref(), Ok("destroy 5"));
        assert_eq!(xl.tell("destroy", "vm").as_deref(), Ok("destroy vm"));
        let refused = xl.tell("destroy", "5").unwrap_err();
        assert!(refused.ends_with(" failed: no such domain"), "{refused}");
    }

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
