//! Texts of definitions, and the results of changes.

use super::change::DefinitionChange;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Component, Path, PathBuf};

/// A text that a definition is read from and that changes are written into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Its name in errors and doubts: a path, `process 4711`, `libvirt domain web`.
    pub name: String,
    /// Its bytes, as they are in the file or in `/proc/PID/cmdline`.
    pub bytes: Vec<u8>,
}

impl Text {
    /// A text by its name and bytes.
    pub fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), bytes: bytes.into() }
    }
}

/// Reads the files to which a definition refers (QEMU `-readconfig`). No file is opened in any other way.
pub trait Files {
    /// The content of a file, by its path in the definition.
    ///
    /// # Errors
    ///
    /// The error of reading it; the definition then gets a doubt.
    fn contents(&self, path: &Path) -> io::Result<Vec<u8>>;
}

/// Provides no files: every reference to one becomes a doubt.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn contents(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "no files are read here"))
    }
}

/// The size limit, in bytes, of a file to which a definition refers.
const FILE_LIMIT: u64 = 1 << 20;

/// Provides the files below a root directory. Absolute paths start at the root, relative ones at a directory
/// below it.
#[derive(Debug, Clone)]
pub struct FilesBelow {
    root: PathBuf,
    start: Start,
}

/// The directory where relative paths start.
#[derive(Debug, Clone)]
enum Start {
    /// A path as seen from the root.
    Folder(PathBuf),
    /// That of the process with this directory in `/proc`.
    Process(PathBuf),
}

impl FilesBelow {
    /// Files below `root`; relative paths start at `folder` (a path as seen from the root).
    pub fn new(root: impl Into<PathBuf>, folder: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), start: Start::Folder(folder.into()) }
    }

    /// The files that a process of the host below `root` names. Reading them has a time limit, because the process may
    /// name files on a file system that hangs.
    #[must_use]
    pub fn of_process(root: &Path, pid: i32) -> Self {
        Self { root: root.to_owned(), start: Start::Process(root.join(format!("proc/{pid}"))) }
    }
}

impl Files for FilesBelow {
    fn contents(&self, path: &Path) -> io::Result<Vec<u8>> {
        match &self.start {
            Start::Folder(folder) => Self::read(&self.root, folder, path),
            Start::Process(home) => {
                let (root, path, link) = (self.root.clone(), path.to_owned(), home.join("cwd"));
                let look = move || {
                    let folder = std::fs::read_link(link).unwrap_or_else(|_| PathBuf::from("/"));
                    Self::read(&root, &folder, &path)
                };
                files::look_at_files(home, look).and_then(|read| read)
            }
        }
    }
}

impl FilesBelow {
    fn read(root: &Path, folder: &Path, path: &Path) -> io::Result<Vec<u8>> {
        use io::Read;
        let invalid = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        let whole = folder.join(path);
        if whole.components().any(|part| part == Component::ParentDir) {
            return Err(invalid("the path leads upwards (..)"));
        }
        let whole = whole.to_str().ok_or_else(|| invalid("the path is not UTF-8"))?;
        // Links point to paths of the machine of this tree, and must not lead to files of this machine.
        let found = files::Inside::find(root, whole, true)?;
        let mut bytes = Vec::new();
        files::named(&found.path())?.take(FILE_LIMIT + 1).read_to_end(&mut bytes)?;
        if u64::try_from(bytes.len()).is_ok_and(|length| length > FILE_LIMIT) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it has more than 1 MiB"));
        }
        Ok(bytes)
    }
}

/// A part of a text that was replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// The first byte of the replaced part, in the original text.
    pub start: usize,
    /// The byte after its last; `start` for an insertion.
    pub end: usize,
    /// The new text.
    pub new: Vec<u8>,
}

/// A change that cannot be made in the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The change.
    pub change: DefinitionChange,
    /// The reason, and what to do instead: whole sentences.
    pub reason: String,
}

/// A text after changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edited {
    /// The new text; all bytes outside of `edits` are unchanged.
    pub bytes: Vec<u8>,
    /// The replacements, in the order of the text, without overlaps.
    pub edits: Vec<Edit>,
    /// Notes, such as properties that a new device model does not have: whole sentences.
    pub notes: Vec<String>,
    /// Changes that were not made.
    pub refused: Vec<Refusal>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_from_below_the_root_alone() {
        let root = tempfile::tempdir().expect("a folder can be made");
        let path = root.path();
        std::fs::create_dir_all(path.join("etc/qemu")).expect("a folder can be made");
        std::fs::write(path.join("etc/qemu/a.cfg"), "[machine]").expect("a file can be written");
        std::fs::write(path.join("b.cfg"), vec![b'#'; 2 << 20]).expect("a file can be written");
        for (target, link) in [("/etc/passwd", "outside"), ("/etc/qemu/a.cfg", "inside")] {
            std::os::unix::fs::symlink(target, path.join(link)).expect("a link can be made");
        }
        let files = FilesBelow::new(path, "/etc/qemu");
        let contents = |name: &str| files.contents(Path::new(name)).map_err(|problem| problem.to_string());
        assert_eq!(contents("a.cfg").as_deref(), Ok(&b"[machine]"[..]), "relative paths begin in the folder");
        assert_eq!(contents("/etc/qemu/a.cfg").as_deref(), Ok(&b"[machine]"[..]));
        assert_eq!(contents("/inside").as_deref(), Ok(&b"[machine]"[..]), "a link of the other machine");
        for (name, part) in
            [("../qemu/a.cfg", "upwards"), ("/outside", "No such file"), ("/etc", "not a regular file")]
        {
            assert!(contents(name).is_err_and(|problem| problem.contains(part)), "{name}");
        }
        std::fs::create_dir_all(path.join("proc/7")).expect("a folder can be made");
        std::os::unix::fs::symlink("/etc/qemu", path.join("proc/7/cwd")).expect("a link can be made");
        let of_process = |pid| FilesBelow::of_process(path, pid).contents(Path::new("a.cfg"));
        assert_eq!(
            of_process(7).expect("it is there"),
            b"[machine]",
            "relative paths begin in its directory"
        );
        assert!(of_process(8).is_err(), "there is no process, and no such file in /");
        assert!(contents("/b.cfg").is_err_and(|problem| problem.contains("1 MiB")));
        assert!(contents("/none").is_err());
        let of_the_kernel = FilesBelow::new("/", "/").contents(Path::new("/proc/self/comm"));
        assert!(of_the_kernel.is_err_and(|problem| problem.to_string().contains("stores nothing")));
        assert!(NoFiles.contents(Path::new("a")).is_err());
    }
}
