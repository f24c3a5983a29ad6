//! The files of the host for which a plan is made.

use host::Root;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A host's files. Links cannot lead out of another host's directory.
pub(super) struct Files {
    pub(super) root: Root,
    pub(super) directory: PathBuf,
}

impl Files {
    /// The files below a directory; those of this host if it is `/`.
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

    /// The text of a file to change, `None` if there is no such file. `Err` is the reason why it cannot be
    /// changed.
    pub(super) fn text(&self, path: &str) -> Result<Option<String>, String> {
        match self.root.read(path) {
            Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| format!("{path} is not UTF-8 text")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("{path} cannot be read: {error}")),
        }
    }

    /// The text of a file that is only read; empty if it cannot be read.
    pub(super) fn shown(&self, path: &str) -> String {
        String::from_utf8_lossy(&self.root.read(path).unwrap_or_default()).into_owned()
    }

    /// Tests whether the host runs NixOS, which generates the files of modprobe and of the boot loader from its own
    /// configuration.
    pub(super) fn are_of_nixos(&self) -> bool {
        self.has("/etc/NIXOS") || self.shown("/etc/os-release").lines().any(|line| line == "ID=nixos")
    }
}
