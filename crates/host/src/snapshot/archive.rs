//! The archive: a tar file with the manifest first. This program compresses it with zstd; the collector script does
//! not compress it; users may have compressed it with gzip.

use super::SnapshotError;
use super::manifest::{FORMAT, Manifest, NAME};
use crate::root::{Kind, Tree};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::path::{Component, Path};
use std::rc::Rc;

/// The size limit of an unpacked archive, in bytes, and of the memory for its paths: hosts with hundreds of processors and
/// VMs have tens of millions.
const MOST_BYTES: u64 = 512 << 20;
/// The largest number of entries of an archive.
const MOST_ENTRIES: usize = 1_000_000;
/// The size limit of one file, in bytes.
const LONGEST_FILE: u64 = 64 << 20;
/// The limits of a path's size, in bytes, and of its depth: each directory above an entry takes memory for its own path.
const LONGEST_PATH: usize = 1024;
const DEEPEST_PATH: usize = 32;
/// The largest number of warnings about single entries.
const MOST_WARNINGS: usize = 100;
/// zstd's window, as a power of two: the default limit of its own tool.
const WINDOW: u32 = 27;

pub(super) fn write(tree: &Tree, manifest: &Manifest, writer: impl Write) -> io::Result<()> {
    let mut archive = tar::Builder::new(zstd::Encoder::new(writer, 0)?);
    let header = |kind: tar::EntryType, size: u64, mode: u32| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(mode);
        header.set_mtime(manifest.created);
        header
    };
    let text = serde_json::to_vec_pretty(manifest)?;
    archive.append_data(
        &mut header(tar::EntryType::Regular, text.len() as u64, 0o600),
        NAME,
        text.as_slice(),
    )?;
    for (path, node) in tree.nodes() {
        let place = path.trim_start_matches('/');
        let mode = node.ownership.map_or(0o600, |ownership| ownership.mode);
        match &node.kind {
            Kind::File(bytes) => {
                let mut header = header(tar::EntryType::Regular, bytes.len() as u64, mode);
                archive.append_data(&mut header, place, bytes.as_slice())?;
            }
            Kind::Directory => {
                archive.append_data(&mut header(tar::EntryType::Directory, 0, 0o700), place, io::empty())?;
            }
            Kind::Link(target) => {
                archive.append_link(&mut header(tar::EntryType::Symlink, 0, 0o777), place, target)?;
            }
            Kind::Name => {}
        }
    }
    archive.into_inner()?.finish()?.flush()
}

/// Counts unpacked bytes, for the offsets in warnings, and stops a stream that is too long.
struct Counted<R> {
    inner: R,
    count: Rc<Cell<u64>>,
    /// Set if it cannot be unpacked further.
    is_broken: Rc<Cell<bool>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.count.get() >= MOST_BYTES {
            return Err(io::Error::other(format!("it unpacks to more than {} MiB", MOST_BYTES >> 20)));
        }
        let length = self.inner.read(buffer).inspect_err(|_| self.is_broken.set(true))?;
        self.count.set(self.count.get() + length as u64);
        Ok(length)
    }
}

/// The tar stream in an archive, whose first bytes show the compression.
fn unpacked<'r>(mut reader: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
    const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
    const GZIP: &[u8] = &[0x1f, 0x8b];
    /// The magic of a tar header and its place (POSIX, pax interchange format).
    const TAR: (usize, &[u8]) = (257, b"ustar");
    let mut start = Vec::new();
    reader.by_ref().take(512).read_to_end(&mut start)?;
    let kind = start.clone();
    let whole = io::Cursor::new(start).chain(reader);
    if kind.starts_with(ZSTD) {
        let mut packed = zstd::Decoder::new(whole)?;
        packed.window_log_max(WINDOW)?;
        Ok(Box::new(packed))
    } else if kind.starts_with(GZIP) {
        Ok(Box::new(flate2::read::MultiGzDecoder::new(whole)))
    } else if kind.get(TAR.0..).is_some_and(|rest| rest.starts_with(TAR.1)) {
        Ok(Box::new(whole))
    } else {
        Err(io::Error::other("it is neither a tar nor one compressed with zstd or gzip"))
    }
}

/// Reads an archive. Nothing is written to disk, links are never followed, and paths are only keys, so none
/// can lead outside.
pub(super) fn read(reader: impl Read, name: &Path) -> Result<(Tree, Manifest, Vec<String>), SnapshotError> {
    let no_snapshot = |why: String| SnapshotError::NoSnapshot { path: name.to_owned(), why };
    let unpacked = unpacked(reader).map_err(|error| no_snapshot(error.to_string()))?;
    let (count, is_broken) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let counted = Counted { inner: unpacked, count: Rc::clone(&count), is_broken: Rc::clone(&is_broken) };
    let mut archive = tar::Archive::new(counted);
    let entries = archive.entries().map_err(|error| no_snapshot(error.to_string()))?;

    let (mut tree, mut left) = (Tree::default(), MOST_BYTES);
    let mut manifest: Option<Manifest> = None;
    let mut warnings = Vec::new();
    let mut left_out = 0;
    let mut leave_out = |warnings: &mut Vec<String>, why: String| {
        left_out += 1;
        if left_out <= MOST_WARNINGS {
            warnings.push(why);
        }
    };
    for (number, entry) in entries.enumerate() {
        let at = count.get();
        let mut entry = match entry {
            Ok(entry) if number < MOST_ENTRIES => entry,
            Ok(_) => {
                warnings.push(format!(
                    "it has more than {MOST_ENTRIES} entries; those behind byte {at} were left out"
                ));
                break;
            }
            Err(error) => {
                warnings.push(format!("it is damaged at byte {at} of what it unpacks to: {error}"));
                break;
            }
        };
        let path = entry.path().ok().and_then(|path| key(&path));
        let kind = entry.header().entry_type();
        let Some(path) = path else {
            let why = format!("an entry at byte {at} has a path that no snapshot has; it was left out");
            leave_out(&mut warnings, why);
            continue;
        };
        let kind = match kind {
            tar::EntryType::Directory => Kind::Directory,
            tar::EntryType::Symlink => match entry.link_name() {
                Ok(Some(target)) => Kind::Link(target.into_owned()),
                _ => continue,
            },
            tar::EntryType::Regular if entry.size() <= LONGEST_FILE => {
                // Do not allocate the claimed size: a damaged header may claim anything.
                let mut bytes = Vec::new();
                if let Err(error) = entry.read_to_end(&mut bytes) {
                    let at = count.get();
                    warnings.push(format!(
                        "{path} is cut: it is damaged at byte {at} of what it unpacks to ({error})"
                    ));
                    break;
                }
                Kind::File(bytes)
            }
            _ => {
                let why = format!("{path} at byte {at} is nothing that a snapshot has; it was left out");
                leave_out(&mut warnings, why);
                continue;
            }
        };
        match kind {
            Kind::File(bytes) if manifest.is_none() && path == format!("/{NAME}") => {
                let read: Manifest = serde_json::from_slice(&bytes)
                    .map_err(|error| no_snapshot(format!("its {NAME} cannot be understood: {error}")))?;
                if read.format > FORMAT {
                    return Err(SnapshotError::Format {
                        path: name.to_owned(),
                        found: read.format,
                        known: FORMAT,
                        tool: read.tool,
                    });
                }
                manifest = Some(read);
            }
            _ if manifest.is_none() => return Err(no_snapshot(format!("its first file is not {NAME}"))),
            kind => {
                let Some(node) = tree.make_within(&path, &mut left) else {
                    warnings.push(format!("it has too many paths; those behind byte {at} were left out"));
                    break;
                };
                node.kind = kind;
            }
        }
    }
    if left_out > MOST_WARNINGS {
        warnings.push(format!("entries left out besides: {}", left_out - MOST_WARNINGS));
    }
    let Some(manifest) = manifest else {
        let why = warnings.first().cloned().unwrap_or_else(|| "it is empty".to_owned());
        return Err(match is_broken.get() {
            true => SnapshotError::Damaged { path: name.to_owned(), why },
            false => no_snapshot(why),
        });
    };
    let is_there = |path: &String| matches!(tree.node(path).map(|node| &node.kind), Some(Kind::File(_)));
    let lacking: Vec<&String> = manifest.files.keys().filter(|path| !is_there(path)).collect();
    if let [first, ..] = lacking.as_slice() {
        let (lacking, all) = (lacking.len(), manifest.files.len());
        warnings.push(format!("{lacking} of its {all} files are not there, the first is {first}"));
    }
    let is_path = |path: &str| key(Path::new(path.trim_start_matches('/'))).as_deref() == Some(path);
    manifest.complete(&mut tree, &mut left, is_path);
    if left == 0 {
        warnings.push("its paths take more memory than those of a host, so some were left out".to_owned());
    }
    Ok((tree, manifest, warnings))
}

/// The host's path of an entry; `None` if the entry's path could lead out of the archive, or is longer than those of hosts.
fn key(path: &Path) -> Option<String> {
    if path.as_os_str().len() > LONGEST_PATH || path.components().count() > DEEPEST_PATH {
        return None;
    }
    let mut key = String::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => {
                key.push('/');
                key.push_str(name.to_str()?);
            }
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (!key.is_empty()).then_some(key)
}
