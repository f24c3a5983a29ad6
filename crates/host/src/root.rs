//! The directory that stands for `/`, through which all facts of a host are read.
//!
//! It can be this machine, a tree of files, or files in memory (an archive, or a fake host). All reads go
//! through it, so a recording root knows exactly which files were read.

mod command;
mod cpuid;
mod message;
mod msr;
mod sosreport;
mod tree;

use crate::{AbsenceKind, Error, Fact};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

pub(crate) use cpuid::{BEHIND, HYPERVISOR, hypervisor_of};
pub use message::LogLine;
pub use tree::Ownership;
pub(crate) use tree::{Kind, Node, Tree};

/// The limit of a file, in bytes.
const LONGEST_FILE: u64 = 64 << 20;
/// That of `/proc/interrupts`, whose lines have 11 bytes for each processor (kernel/irq/proc.c, `show_interrupts`): 12,000
/// interrupts and 512 processors make 65 MiB.
const LONGEST_INTERRUPTS: u64 = 256 << 20;

#[derive(Debug)]
enum Source {
    Directory(PathBuf),
    Kept(Tree),
}

/// The source of a host's facts.
///
/// CPUID is executed, MSRs are read and commands are run only on the live machine. For another host the
/// results are in files below `exitless/` (`cpuid`, `msr`, `dmesg` and `commands/NAME`), which `exitless
/// snapshot` writes.
#[derive(Debug)]
pub struct Root {
    source: Source,
    live: bool,
    /// True for an unpacked sosreport, which has some facts in other files.
    sosreport: bool,
    record: Option<Mutex<Tree>>,
}

/// The location of a host's file for this process.
enum Place {
    Own(PathBuf),
    /// A file of another host; links cannot lead out of its directory.
    Inside(files::Inside),
}

impl Place {
    fn path(&self) -> PathBuf {
        match self {
            Self::Own(path) => path.clone(),
            Self::Inside(inside) => inside.path(),
        }
    }
}

impl Root {
    /// This machine.
    #[must_use]
    pub fn live() -> Self {
        Self { source: Source::Directory(PathBuf::from("/")), live: true, sosreport: false, record: None }
    }

    /// The host whose files are below `directory`; this machine if that is `/`.
    #[must_use]
    pub fn directory(directory: &Path) -> Self {
        let live = directory == Path::new("/");
        let sosreport = !live && directory.join(sosreport::MARK).is_dir();
        Self { source: Source::Directory(directory.to_owned()), live, sosreport, record: None }
    }

    /// The same as [`Self::directory`], with a check that the directory contains a host.
    ///
    /// # Errors
    /// [`Error::Root`] if it is not a directory, [`Error::NoHost`] if it has neither `proc` nor `sys`.
    pub fn below(directory: &Path) -> Result<Self, Error> {
        let root = Self::directory(directory);
        let path = || directory.to_owned();
        if !root.is_there() {
            return Err(Error::Root { path: path() });
        }
        let is_host = root.live || root.exists("/proc") || root.exists("/sys");
        if is_host { Ok(root) } else { Err(Error::NoHost { path: path(), below: only_host(directory) }) }
    }

    pub(crate) fn kept(tree: Tree) -> Self {
        Self { source: Source::Kept(tree), live: false, sosreport: false, record: None }
    }

    /// The same host, with a record of everything that is read.
    pub(crate) fn recording(self) -> Self {
        Self { record: Some(Mutex::default()), ..self }
    }

    /// Everything read since [`Self::recording`].
    pub(crate) fn into_record(self) -> Tree {
        let record = self.record.unwrap_or_default();
        record.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// All paths of files in memory.
    #[cfg(test)]
    pub(crate) fn into_tree_paths(self) -> Vec<String> {
        match self.source {
            Source::Directory(_) => Vec::new(),
            Source::Kept(tree) => tree.nodes().map(|(path, _)| path.to_owned()).collect(),
        }
    }

    /// Tests whether it is the machine on which this program runs.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Tests whether it is an unpacked sosreport.
    #[must_use]
    pub fn is_sosreport(&self) -> bool {
        self.sosreport
    }

    /// The directory, if it is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::Directory(path) => Some(path),
            Source::Kept(_) => None,
        }
    }

    /// The path of a host's file for this process; for files in memory the path itself.
    pub(crate) fn place(&self, path: &str) -> PathBuf {
        match &self.source {
            Source::Directory(root) => root.join(path.trim_start_matches('/')),
            Source::Kept(_) => PathBuf::from(path),
        }
    }

    /// The file that a path of the host leads to.
    fn find(&self, path: &str) -> io::Result<Place> {
        match &self.source {
            Source::Directory(root) if !self.live => files::Inside::find(root, path, true).map(Place::Inside),
            _ => Ok(Place::Own(self.place(path))),
        }
    }

    /// The process that may block readers of this path; see [`holder`]. Only the live machine has processes.
    fn holder<'p>(&self, path: &'p str) -> Option<(&'p str, &'p str)> {
        holder(path).filter(|_| self.live)
    }

    /// Tests whether the directory exists.
    pub(crate) fn is_there(&self) -> bool {
        match &self.source {
            Source::Directory(path) => path.is_dir(),
            Source::Kept(_) => true,
        }
    }

    /// A file's content.
    ///
    /// # Errors
    /// Those of open(2) and read(2); [`io::ErrorKind::FileTooLarge`] above the limit of a file, but what a process states about
    /// itself is cut there.
    pub fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let found = match self.holder(path) {
            Some((home, name)) => files::look_into(&self.place(home), name, LONGEST_FILE),
            None => self.peek(path),
        };
        let found = match found {
            Err(error) if self.sosreport && error.kind() == io::ErrorKind::NotFound => {
                sosreport::read(path, |other| self.peek(other)).unwrap_or(Err(error))
            }
            found => found,
        };
        self.note(path, &found, |bytes| Kind::File(bytes.clone()));
        found
    }

    /// A file's content, without recording it. For files that are too long to keep; the caller records the facts it
    /// takes from them.
    pub(crate) fn peek(&self, path: &str) -> io::Result<Vec<u8>> {
        match &self.source {
            Source::Directory(_) => {
                let found = self.find(path)?;
                // A process can make its own files, such as its command line, as long as it likes.
                match holder(path) {
                    Some(_) => files::read_start(&found.path(), LONGEST_FILE),
                    None => read_whole(&found.path(), most_bytes(path)),
                }
            }
            Source::Kept(tree) => tree.read(path),
        }
    }

    /// The names in a directory that `wanted` selects, sorted.
    ///
    /// # Errors
    /// Those of open(2) and getdents(2).
    pub fn entries(&self, path: &str, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
        let mut found = match &self.source {
            Source::Directory(_) => self.find(path).and_then(|found| names(&found.path())),
            Source::Kept(tree) => tree.entries(path),
        };
        if let Ok(names) = &mut found {
            names.retain(|name| wanted(name));
            names.sort_unstable();
        }
        self.note(path, &found, |_| Kind::Directory);
        if let (Some(record), Ok(names)) = (&self.record, &found) {
            let mut record = record.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            for name in names {
                record.make(&format!("{}/{name}", path.trim_end_matches('/')));
            }
        }
        found
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// Those of readlink(2): `EINVAL` for anything but a link.
    pub fn link(&self, path: &str) -> io::Result<PathBuf> {
        let found = match &self.source {
            Source::Kept(tree) => tree.link(path),
            Source::Directory(root) if !self.live => {
                files::Inside::find(root, path, false).and_then(|found| found.link())
            }
            Source::Directory(_) => {
                let place = self.place(path);
                match self.holder(path) {
                    Some((home, _)) => {
                        files::look(&self.place(home), move || fs::read_link(place)).and_then(|link| link)
                    }
                    None => fs::read_link(place),
                }
            }
        };
        self.note(path, &found, |target| Kind::Link(target.clone()));
        found
    }

    /// The links in a directory of a process with the targets that `wanted` selects. The other links are not
    /// recorded.
    ///
    /// # Errors
    /// Those of open(2) and getdents(2), of links that may not be read, and [`io::ErrorKind::TimedOut`] if the process
    /// blocks its readers or has more than [`MOST_LINKS`] such links.
    pub(crate) fn links(&self, path: &str, wanted: fn(&Path) -> bool) -> io::Result<Vec<(String, PathBuf)>> {
        let Some((home, _)) = self.holder(path) else {
            let mut found = Vec::new();
            for name in self.entries(path, |name| name.bytes().all(|byte| byte.is_ascii_digit()))? {
                let place = format!("{path}/{name}");
                match self.link(&place) {
                    Ok(target) if wanted(&target) => found.push((name, target)),
                    Ok(_) => self.forget(&place),
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
                    Err(_) => {}
                }
            }
            return Ok(found);
        };
        let folder = self.place(path);
        // In one call of `look`, because there may be half a million.
        let found = files::look(&self.place(home), move || links(&folder, wanted, MOST_LINKS));
        let found = found.and_then(|found| found);
        self.note(path, &found, |_| Kind::Directory);
        for (name, target) in found.iter().flatten() {
            self.keep(&format!("{path}/{name}"), |node| node.kind = Kind::Link(target.clone()));
        }
        found
    }

    /// Tests whether there is a directory.
    pub(crate) fn is_directory(&self, path: &str) -> bool {
        let found = match &self.source {
            Source::Directory(_) => self.find(path).is_ok_and(|found| found.path().is_dir()),
            Source::Kept(tree) => {
                tree.node(path).is_some_and(|node| matches!(node.kind, Kind::Directory | Kind::Name))
            }
        };
        let present = || match &self.source {
            Source::Directory(_) => self.find(path).is_ok_and(|found| found.path().exists()),
            Source::Kept(tree) => tree.node(path).is_some(),
        };
        if self.record.is_some() && (found || present()) {
            self.keep(path, |node| {
                if node.kind == Kind::Name {
                    node.kind = if found { Kind::Directory } else { Kind::File(Vec::new()) };
                }
            });
        }
        found
    }

    /// Tests whether a file or directory exists.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        let found = match &self.source {
            Source::Directory(_) => self.find(path).is_ok_and(|found| found.path().exists()),
            Source::Kept(tree) => tree.node(path).is_some(),
        };
        if found {
            self.keep(path, |_| ());
        }
        found
    }

    /// The owner and permissions of a file.
    pub(crate) fn ownership(&self, path: &str) -> io::Result<Ownership> {
        let found = match &self.source {
            Source::Directory(_) => {
                self.find(path).and_then(|found| fs::metadata(found.path())).map(|metadata| Ownership {
                    mode: metadata.mode() & 0o7777,
                    user: metadata.uid(),
                    group: metadata.gid(),
                })
            }
            Source::Kept(tree) => {
                let ownership = tree.node(path).and_then(|node| node.ownership);
                ownership.ok_or_else(|| io::Error::from_raw_os_error(NOT_THERE))
            }
        };
        if let Ok(ownership) = found {
            self.keep(path, |node| node.ownership = Some(ownership));
        }
        found
    }

    /// Opens KVM's device for reading and writing, and closes it again. In a copy of a host it can be any other device, and
    /// opening that can have effects (a watchdog starts).
    pub(crate) fn open_device(&self, path: &str) -> io::Result<()> {
        let open = |place: &Path| {
            let about = fs::metadata(place)?;
            let is_kvm = about.file_type().is_char_device() && about.rdev() == KVM;
            if !(self.live || is_kvm || about.is_file()) {
                return Err(io::Error::from_raw_os_error(NO_DEVICE));
            }
            OpenOptions::new().read(true).write(true).open(place).map(|_| ())
        };
        let found = match &self.source {
            Source::Directory(_) => self.find(path).and_then(|found| open(&found.path())),
            Source::Kept(tree) => tree.read(path).map(|_| ()),
        };
        self.note(path, &found, |()| Kind::File(Vec::new()));
        found
    }

    /// Removes a path that is unrelated to VMs, and everything below it, from the record.
    pub(crate) fn forget(&self, path: &str) {
        if let Some(record) = &self.record {
            record.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(path);
        }
    }

    fn keep(&self, path: &str, change: impl FnOnce(&mut Node)) {
        if let Some(record) = &self.record {
            change(record.lock().unwrap_or_else(std::sync::PoisonError::into_inner).make(path));
        }
    }

    fn note<T>(&self, path: &str, found: &io::Result<T>, kind: impl FnOnce(&T) -> Kind) {
        if self.record.is_none() {
            return;
        }
        match found {
            Ok(value) => self.keep(path, |node| node.kind = kind(value)),
            // A missing file is not recorded.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let number = error.raw_os_error().unwrap_or(match error.kind() {
                    io::ErrorKind::FileTooLarge => TOO_LARGE,
                    _ => EIO,
                });
                self.keep(path, |node| node.error = Some(number));
            }
        }
    }

    /// A file's text, trimmed.
    pub(crate) fn text(&self, path: &str, expected: &'static str) -> Result<String, Error> {
        let bytes = self.read(path).map_err(|source| Error::read(self.place(path), expected, source))?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// A file's text, trimmed, as a fact.
    pub(crate) fn line(&self, path: &str, expected: &'static str) -> Fact<String> {
        match self.read(path) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes).trim().to_owned();
                Fact::known(text.clone(), path, text)
            }
            Err(error) => Fact::absent(kind_of(&error), why(path, expected, &error)),
        }
    }

    /// A file's text, parsed.
    pub(crate) fn fact<T>(
        &self,
        path: &str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Fact<T> {
        let line = self.line(path, expected);
        understood(line, path, expected, parse)
    }
}

/// The only directory in this one that has proc and sys: archives of hosts often have one directory around them.
fn only_host(directory: &Path) -> Option<PathBuf> {
    let inside = fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path());
    let mut hosts = inside.filter(|path| path.join("proc").is_dir() && path.join("sys").is_dir());
    let first = hosts.next();
    first.filter(|_| hosts.next().is_none())
}

/// The limit of this file, in bytes.
fn most_bytes(path: &str) -> u64 {
    if path == "/proc/interrupts" { LONGEST_INTERRUPTS } else { LONGEST_FILE }
}

/// Reads a file of any type. Refuses one that is longer than `most`: without its end, it would state wrong facts.
fn read_whole(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let bytes = files::read_start(path, most + 1)?;
    if bytes.len() as u64 > most {
        let why = format!("it has more than {} MiB", most >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// The limit of the links of one process that are kept. KVM has at most 4,096 vCPUs in a VM (`KVM_MAX_VCPUS`), with two
/// descriptors each.
const MOST_LINKS: usize = 16_384;
/// `ETIMEDOUT`.
const TIMED_OUT: i32 = 110;
/// The number of KVM's device: major 10 and minor 232 (include/linux/miscdevice.h, `KVM_MINOR`).
const KVM: u64 = (10 << 8) | 232;
/// `ENODEV`.
pub(crate) const NO_DEVICE: i32 = 19;
/// `ENOENT`.
const NOT_THERE: i32 = 2;
/// `EIO`, for errors without a number.
const EIO: i32 = 5;
/// `EFBIG`.
const TOO_LARGE: i32 = 27;

/// A text, parsed.
pub(crate) fn understood<T>(
    line: Fact<String>,
    path: &str,
    expected: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Fact<T> {
    let value = line.value.and_then(|text| {
        parse(&text).ok_or_else(|| crate::Absence {
            kind: AbsenceKind::Malformed,
            why: format!("{path} does not say {expected}"),
        })
    });
    Fact { value, evidence: line.evidence }
}

pub(crate) fn kind_of(error: &io::Error) -> AbsenceKind {
    match error.kind() {
        io::ErrorKind::NotFound => AbsenceKind::NotThere,
        io::ErrorKind::PermissionDenied => AbsenceKind::Denied,
        _ => AbsenceKind::Unreadable,
    }
}

/// A hexadecimal number, with or without `0x`.
pub(crate) fn hexadecimal(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.strip_prefix("0x").unwrap_or(text);
    // `from_str_radix` would accept a sign.
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, 16).ok())?
}

fn why(path: &str, expected: &str, error: &io::Error) -> String {
    match kind_of(error) {
        AbsenceKind::NotThere => format!("there is no {path}, which would hold {expected}"),
        AbsenceKind::Denied => format!("{path} may not be read; run as root"),
        _ if error.kind() == io::ErrorKind::TimedOut => {
            format!("{path} cannot be read: its process blocks inspection")
        }
        _ => format!("{path} cannot be read: {error}"),
    }
}

/// Files of a process that the kernel generates without taking any lock of that process (fs/proc/base.c and
/// array.c).
const NEVER_HELD: &[&str] = &["comm", "status", "schedstat", "cgroup"];

/// The directory in `/proc` of the process that may block readers of this path, and the rest of the path.
fn holder(path: &str) -> Option<(&str, &str)> {
    let below = path.strip_prefix("/proc/")?;
    let (process, rest) = below.split_once('/')?;
    if process.is_empty() || !process.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let name = rest.rsplit('/').next().unwrap_or(rest);
    (!NEVER_HELD.contains(&name)).then(|| (&path[..path.len() - rest.len() - 1], rest))
}

/// `O_NONBLOCK` of Linux on x86.
const NONBLOCK: i32 = 0o4000;

/// The links in a directory with the targets that `wanted` selects, at most `most`. Keeps none of the others: a process can
/// have half a million descriptors of a file with a path of 4 KiB.
fn links(folder: &Path, wanted: fn(&Path) -> bool, most: usize) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match (fs::read_link(entry.path()), entry.file_name().into_string()) {
            (Ok(target), Ok(name)) if wanted(&target) => found.push((name, target)),
            (Err(error), _) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            _ => {}
        }
        if found.len() > most {
            return Err(io::Error::from_raw_os_error(TIMED_OUT));
        }
    }
    Ok(found)
}

fn names(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        // The kernel's names are valid UTF-8.
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_long_is_refused_and_not_cut() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("proc")).unwrap();
        let root = Root::directory(folder.path()).recording();
        fs::File::create(root.place("/proc/cpuinfo")).unwrap().set_len(LONGEST_FILE + 1).unwrap();
        let error = root.read("/proc/cpuinfo").unwrap_err();
        assert_eq!(error.to_string(), "it has more than 64 MiB");
        assert_eq!(root.line("/proc/cpuinfo", "processors").value.unwrap_err().kind, AbsenceKind::Unreadable);
        let again = Root::kept(root.into_record()).read("/proc/cpuinfo").unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::FileTooLarge, "a record says the same");
    }

    #[test]
    fn no_other_device_of_a_copy_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("dev")).unwrap();
        fs::write(folder.path().join("dev/kvm"), "").unwrap();
        let fifo = folder.path().join("dev/fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let root = Root::directory(folder.path());
        assert!(root.open_device("/dev/kvm").is_ok());
        assert_eq!(root.open_device("/dev/fifo").unwrap_err().raw_os_error(), Some(NO_DEVICE));
    }

    #[test]
    fn of_descriptors_without_number_only_those_that_are_asked_for_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..20 {
            let target = if number < 3 { "anon_inode:kvm-vm" } else { "/a/path" };
            std::os::unix::fs::symlink(target, folder.path().join(number.to_string())).unwrap();
        }
        fs::write(folder.path().join("20"), "no link").unwrap();
        let is_kvm =
            |target: &Path| target.to_str().is_some_and(|target| target.starts_with("anon_inode:kvm-"));
        let mut found = links(folder.path(), is_kvm, 3).unwrap();
        found.sort_unstable();
        assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["0", "1", "2"]);
        assert_eq!(links(folder.path(), is_kvm, 2).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn the_links_of_a_running_process_are_read() {
        let root = Root::live().recording();
        let file = fs::File::open("/dev/null").unwrap();
        let home = format!("/proc/{}/fd", std::process::id());
        let found = root.links(&home, |target| target == Path::new("/dev/null")).unwrap();
        let name = std::os::fd::AsRawFd::as_raw_fd(&file).to_string();
        assert!(found.contains(&(name.clone(), "/dev/null".into())), "{found:?}");
        assert!(root.links(&home, |_| false).unwrap().is_empty());
        let record = root.into_record();
        let kept = record.nodes().filter_map(|(path, _)| path.strip_prefix(&format!("{home}/")));
        assert_eq!(kept.count(), found.len());
        assert_eq!(record.link(&format!("{home}/{name}")).unwrap(), Path::new("/dev/null"));
    }
}
