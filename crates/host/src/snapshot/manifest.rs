//! The manifest of an archive: `MANIFEST.json`, its first file.

use crate::root::{Kind, Ownership, Tree};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The manifest's name in the archive.
pub(super) const NAME: &str = "MANIFEST.json";
/// The format number. Within one number fields are added, never changed.
pub(super) const FORMAT: u32 = 1;

/// The manifest of an archive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The format number: 1.
    pub format: u32,
    /// The program that wrote it and its version.
    pub tool: String,
    /// The time of the snapshot, in seconds since 1970.
    pub created: u64,
    /// Every file, with its size in the archive. Paths are the host's.
    pub files: BTreeMap<String, u64>,
    /// Secrets that were removed.
    #[serde(default)]
    pub removed: Vec<Removed>,
    /// Paths that could not be read, listed or opened, with the error's number (errno(3)).
    #[serde(default)]
    pub errors: BTreeMap<String, i32>,
    /// Paths that exist, but of which nothing else is known.
    #[serde(default)]
    pub names: Vec<String>,
    /// Owners of files, if relevant: permission bits, user and group.
    #[serde(default)]
    pub owners: BTreeMap<String, [u32; 3]>,
}

/// Secrets that were removed from one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// The file.
    pub path: String,
    /// The kind of secret, by its name: `password`, `data of secret`, `password in a URL`.
    pub what: String,
    /// The number of these secrets.
    pub count: u32,
}

impl Manifest {
    pub(super) fn of(tree: &Tree, tool: &str, created: u64, removed: Vec<Removed>) -> Self {
        let mut manifest =
            Self { format: FORMAT, tool: tool.to_owned(), created, removed, ..Self::default() };
        for (path, node) in tree.nodes() {
            match &node.kind {
                Kind::File(bytes) => {
                    manifest.files.insert(path.to_owned(), bytes.len() as u64);
                }
                Kind::Name => manifest.names.push(path.to_owned()),
                Kind::Directory | Kind::Link(_) => {}
            }
            if let Some(error) = node.error {
                manifest.errors.insert(path.to_owned(), error);
            }
            if let Some(Ownership { mode, user, group }) = node.ownership {
                manifest.owners.insert(path.to_owned(), [mode, user, group]);
            }
        }
        manifest
    }

    /// Paths that could not be read for lack of permission.
    pub fn denied(&self) -> impl Iterator<Item = &str> {
        /// `EPERM` and `EACCES`.
        const DENIED: [i32; 2] = [1, 13];
        self.errors.iter().filter(|(_, error)| DENIED.contains(error)).map(|(path, _)| path.as_str())
    }

    /// Adds to a tree the facts that the archive's own entries cannot contain, as long as memory is left for their paths.
    pub(super) fn complete(&self, tree: &mut Tree, left: &mut u64, is_path: impl Fn(&str) -> bool) {
        for path in self.names.iter().filter(|path| is_path(path)) {
            tree.make_within(path, left);
        }
        for (path, error) in self.errors.iter().filter(|(path, _)| is_path(path)) {
            if let Some(node) = tree.make_within(path, left) {
                node.error = Some(*error);
            }
        }
        for (path, &[mode, user, group]) in self.owners.iter().filter(|(path, _)| is_path(path)) {
            if let Some(node) = tree.make_within(path, left) {
                node.ownership = Some(Ownership { mode, user, group });
            }
        }
    }
}
