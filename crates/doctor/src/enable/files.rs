//! The files of the host for which is planned.

use host::Root;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A host by its files. Links in another host's directory stay in it.
pub(super) struct Files {
    pub(super) root: Root,
    pub(super) directory: PathBuf,
}

impl Files {
    /// Those below a directory; this host's if that is `/`.
    pub(super) fn below(directory: &Path) -> Self {
        Self { root: Root::directory(directory), directory: directory.to_owned() }
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.root.exists(path)
    }

    /// The names in a folder, sorted; none if it cannot be read.
    pub(super) fn names(&self, folder: &str) -> Vec<String> {
        self.root.entries(folder, |_| true).unwrap_or_default()
    }

    /// A file to be changed, `None` if there is none. `Err` says why it cannot be.
    pub(super) fn text(&self, path: &str) -> Result<Option<String>, String> {
        match self.root.read(path) {
            Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| format!("{path} is not UTF-8 text")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("{path} cannot be read: {error}")),
        }
    }

    /// A file that is only looked into; empty if it cannot be read.
    pub(super) fn shown(&self, path: &str) -> String {
        String::from_utf8_lossy(&self.root.read(path).unwrap_or_default()).into_owned()
    }

    /// Tests whether it is NixOS, which makes the files of modprobe and of the boot loader from its own configuration.
    pub(super) fn are_of_nixos(&self) -> bool {
        self.has("/etc/NIXOS") || self.shown("/etc/os-release").lines().any(|line| line == "ID=nixos")
    }
}
