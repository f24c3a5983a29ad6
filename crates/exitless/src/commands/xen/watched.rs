//! The requested domains, and their end.

use host::inspection::XenDomain;
use host::{Root, XenControl};

use crate::commands::watching;

/// The domains that `--vm` names. They may start later. Once all those seen have ended, nothing is left to
/// watch.
#[derive(Debug)]
pub(crate) struct WatchedDomains {
    root: Root,
    /// Domain IDs or names; empty for all domains.
    names: Vec<String>,
    /// True once one of the domains has been seen running.
    seen: bool,
}

impl WatchedDomains {
    /// Checks for the first time which of the domains run.
    pub(super) fn new(root: Root, names: &[String]) -> Self {
        let mut watched = Self { root, names: names.to_vec(), seen: false };
        watched.have_ended();
        watched
    }

    /// Tests whether domains were requested and seen, and none of them runs any more. Slow, because it asks
    /// `xl`.
    pub(crate) fn have_ended(&mut self) -> bool {
        if self.names.is_empty() {
            return false;
        }
        // If `xl` cannot list domains, assume that they have not ended.
        let listed = XenControl::domains(&self.root);
        let Some(domains) = listed.get() else { return false };
        let run = domains.iter().any(|domain| domain.is_alive() && self.names.iter().any(named(domain)));
        self.seen |= run;
        self.seen && !run
    }

    /// The exit status of a command that has watched the domains. Warns if they have ended.
    pub(crate) fn status(&mut self) -> u8 {
        if self.have_ended() { watching::tell_of_the_end(&self.names) } else { 0 }
    }
}

fn named(domain: &XenDomain) -> impl Fn(&String) -> bool + '_ {
    |name| *name == domain.name || *name == domain.id.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status;

    /// Sets what `xl list` prints from now on.
    fn say(folder: &tempfile::TempDir, domains: &str) {
        let commands = folder.path().join("exitless/commands");
        std::fs::create_dir_all(&commands).unwrap();
        let text = format!("Name ID Mem VCPUs\tState\tTime(s)\nDomain-0 0 832 2 r----- 9.1\n{domains}");
        std::fs::write(commands.join("xl-list"), text).unwrap();
    }

    fn watched(folder: &tempfile::TempDir, name: &str) -> WatchedDomains {
        WatchedDomains::new(Root::directory(folder.path()), &[name.to_owned()])
    }

    #[test]
    fn a_domain_ends_when_it_was_there_and_is_gone_or_shut_down() {
        let folder = tempfile::tempdir().unwrap();
        say(&folder, "my vm 3 256 1 -b---- 1.0\n");
        for name in ["my vm", "3"] {
            let mut watched = watched(&folder, name);
            assert_eq!(watched.status(), 0);
            for ended in
                ["", "my vm 3 256 1 ---s-- 1.0\n", "(null) 3 0 1 --ps-d 1.0\n", "my vm2 4 256 1 -b---- 1.0\n"]
            {
                say(&folder, ended);
                assert_eq!(watched.status(), status::SOME_FAILED, "{ended}");
            }
            say(&folder, "my vm 3 256 1 -b---- 1.0\n");
        }
    }

    #[test]
    fn a_domain_that_is_yet_to_come_has_not_ended_nor_has_one_of_which_nothing_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let mut unknown = watched(&folder, "web");
        assert!(!unknown.have_ended());
        say(&folder, "");
        let mut later = watched(&folder, "web");
        assert!(!later.have_ended());
        say(&folder, "web 7 256 1 ------ 0.0\n");
        assert!(!later.have_ended());
        std::fs::remove_file(folder.path().join("exitless/commands/xl-list")).unwrap();
        assert!(!later.have_ended());
        say(&folder, "");
        assert!(later.have_ended());
        let mut all = WatchedDomains::new(Root::directory(folder.path()), &[]);
        assert!(!all.have_ended());
    }
}
