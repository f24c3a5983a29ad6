//! Files in memory: the record of a root, or the content of an archive or a fake host.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// The owner and permissions of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ownership {
    /// Permission bits, as of `chmod`.
    pub mode: u32,
    /// The user ID.
    pub user: u32,
    /// The group ID.
    pub group: u32,
}

/// The kind of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only the name is known.
    #[default]
    Name,
    File(Vec<u8>),
    Directory,
    Link(PathBuf),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) ownership: Option<Ownership>,
    /// The error number of reading, listing or opening.
    pub(crate) error: Option<i32>,
}

/// Nodes by their paths on the host (`/proc/cpuinfo`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    nodes: BTreeMap<String, Node>,
}

impl Tree {
    pub(crate) fn node(&self, path: &str) -> Option<&Node> {
        self.nodes.get(path)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_str(), node))
    }

    pub(crate) fn nodes_mut(&mut self) -> impl Iterator<Item = (&str, &mut Node)> {
        self.nodes.iter_mut().map(|(path, node)| (path.as_str(), node))
    }

    /// The node at `path`, created if necessary, with the directories above it.
    pub(crate) fn make(&mut self, path: &str) -> &mut Node {
        let mut above = path;
        while let Some(at) = above.rfind('/').filter(|&at| at > 0) {
            above = &above[..at];
            if let Some(node) = self.nodes.get_mut(above) {
                if node.kind == Kind::Name {
                    node.kind = Kind::Directory;
                }
                break;
            }
            self.nodes.insert(above.to_owned(), Node { kind: Kind::Directory, ..Node::default() });
        }
        self.nodes.entry(path.to_owned()).or_default()
    }

    /// The same as [`Self::make`] as long as memory is left for paths, in bytes; `None` from then on.
    pub(crate) fn make_within(&mut self, path: &str, left: &mut u64) -> Option<&mut Node> {
        /// A node and its share of the map, without its path.
        const NODE: usize = 128;
        if *left == 0 {
            return None;
        }
        let before = self.nodes.len();
        self.make(path);
        let made = (self.nodes.len() - before) * (path.len() + NODE);
        *left = left.saturating_sub(made as u64);
        self.nodes.get_mut(path)
    }

    /// Appends a line to a file.
    pub(crate) fn append(&mut self, path: &str, line: &str) {
        let node = self.make(path);
        if !matches!(node.kind, Kind::File(_)) {
            node.kind = Kind::File(Vec::new());
        }
        if let Kind::File(bytes) = &mut node.kind {
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
        }
    }

    /// Removes a path and everything below it.
    pub(crate) fn remove(&mut self, path: &str) {
        self.nodes.remove(path);
        let below: Vec<String> = self.below(path).map(str::to_owned).collect();
        for path in below {
            self.nodes.remove(&path);
        }
    }

    fn below<'a>(&'a self, path: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let first = format!("{}/", path.trim_end_matches('/'));
        self.nodes
            .range(first.clone()..)
            .map(|(path, _)| path.as_str())
            .take_while(move |path| path.starts_with(&first))
    }

    pub(crate) fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let node = self.nodes.get(path).ok_or_else(not_there)?;
        match (&node.kind, node.error) {
            (_, Some(error)) => Err(io::Error::from_raw_os_error(error)),
            (Kind::File(bytes), None) => Ok(bytes.clone()),
            (Kind::Directory, None) => Err(io::Error::from_raw_os_error(IS_A_DIRECTORY)),
            _ => Err(not_there()),
        }
    }

    pub(crate) fn entries(&self, path: &str) -> io::Result<Vec<String>> {
        let node = self.nodes.get(path).ok_or_else(not_there)?;
        if let Some(error) = node.error {
            return Err(io::Error::from_raw_os_error(error));
        }
        if matches!(node.kind, Kind::File(_) | Kind::Link(_)) {
            return Err(io::Error::from_raw_os_error(NO_DIRECTORY));
        }
        let from = path.trim_end_matches('/').len() + 1;
        let names = self.below(path).filter_map(|below| below.get(from..));
        Ok(names.filter(|name| !name.contains('/')).map(str::to_owned).collect())
    }

    pub(crate) fn link(&self, path: &str) -> io::Result<PathBuf> {
        let node = self.nodes.get(path).ok_or_else(not_there)?;
        match (&node.kind, node.error) {
            (_, Some(error)) => Err(io::Error::from_raw_os_error(error)),
            (Kind::Link(target), None) => Ok(target.clone()),
            _ => Err(io::Error::from_raw_os_error(INVALID)),
        }
    }
}

fn not_there() -> io::Error {
    io::Error::from_raw_os_error(NOT_THERE)
}

// The kernel's error numbers, so that an inspection of a record gives the same record: `ENOENT`, `ENOTDIR`,
// `EISDIR`, `EINVAL`.
const NOT_THERE: i32 = 2;
const NO_DIRECTORY: i32 = 20;
const IS_A_DIRECTORY: i32 = 21;
const INVALID: i32 = 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_take_no_more_memory_than_is_left() {
        let (mut tree, mut left) = (Tree::default(), 1_000);
        let made = (0..100).filter(|number| tree.make_within(&format!("/{number}/a/b"), &mut left).is_some());
        assert!((2..5).contains(&made.count()));
        assert!(tree.node("/0/a/b").is_some() && tree.make_within("/0/a/b", &mut left).is_none());
    }

    #[test]
    fn names_of_one_directory_and_no_other() {
        let mut tree = Tree::default();
        for path in ["/proc/1/comm", "/proc/1/fd/3", "/proc/10/comm", "/process", "/proc/1-"] {
            tree.make(path).kind = Kind::File(b"x".to_vec());
        }
        assert_eq!(tree.entries("/proc").unwrap(), ["1", "1-", "10"]);
        assert_eq!(tree.entries("/proc/1").unwrap(), ["comm", "fd"]);
        tree.remove("/proc/1");
        assert_eq!(tree.entries("/proc").unwrap(), ["1-", "10"]);
        assert_eq!(tree.read("/proc/1/comm").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(tree.read("/proc/10").unwrap_err().kind(), io::ErrorKind::IsADirectory);
        tree.make("/proc/10/comm").error = Some(13);
        assert_eq!(tree.read("/proc/10/comm").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
