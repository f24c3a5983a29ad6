//! Reads the journal.

use super::{PERSISTENT, VOLATILE, place};
use crate::entry::{FORMAT, Line, Said};
use crate::{Entry, Error, Progress, under};
use files::Missing;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The contents of a host's journal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Recorded {
    /// All changes, including undone ones, in ascending order of ID.
    #[serde(rename = "changes")]
    pub entries: Vec<Entry>,
    /// The lines that could not be read.
    pub damage: Vec<Damage>,
}

/// A line of a journal that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The journal.
    pub path: PathBuf,
    /// The offset of the line, in bytes.
    pub offset: usize,
    /// The defect.
    pub why: String,
    /// True if a crash cut the line while it was written, which does no harm: a change that it announced was
    /// not made, and one whose result it recorded is still open.
    pub cut: bool,
}

impl Recorded {
    /// The entries of a journal's bytes; `path` is the name for messages.
    #[must_use]
    pub fn parse(path: &Path, bytes: &[u8]) -> Self {
        let mut recorded = Self::default();
        read(path, bytes, &mut recorded);
        recorded.entries.sort_by_key(|entry| entry.id);
        recorded
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, byte {}: {}", self.path.display(), self.offset, self.why)
    }
}

/// The size limit of a journal. Ours stay far below: above 1 MiB they are rewritten without undone changes.
pub(super) const LARGEST: u64 = 1 << 30;

/// The part of a line that shows whether a newer exitless wrote it.
#[derive(Deserialize)]
struct Numbered {
    format: u32,
}

pub(super) fn both(root: &Path) -> Result<Recorded, Error> {
    let mut recorded = Recorded::default();
    for journal in [PERSISTENT, VOLATILE] {
        let Some(file) = opened(root, journal)? else { continue };
        let path = under(root, journal);
        match files::read(&file, LARGEST) {
            Ok(bytes) => read(&path, &bytes, &mut recorded),
            Err(source) => return Err(Error::JournalRead { path, source }),
        }
    }
    recorded.entries.sort_by_key(|entry| entry.id);
    Ok(recorded)
}

/// Opens the journal's file `journal` of the host below `root`; `None` if it does not exist.
pub(super) fn opened(root: &Path, journal: &str) -> Result<Option<File>, Error> {
    let path = under(root, journal);
    let directory = match place::directory(root, journal, Missing::Refused) {
        Ok(directory) => directory,
        Err(Error::JournalWrite { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(Error::JournalWrite { source, .. }) => return Err(Error::JournalRead { path, source }),
        Err(refused) => return Err(refused),
    };
    match place::file(&directory, OFlags::RDONLY) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::JournalRead { path, source }),
    }
}

pub(super) fn read(path: &Path, bytes: &[u8], recorded: &mut Recorded) {
    let mut entries: BTreeMap<u64, Entry> = BTreeMap::new();
    let mut offset = 0;
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        if let Err(why) = take(line.trim_ascii(), &mut entries) {
            // Later writers end a line that a crash cut.
            let cut = !line.ends_with(b"\n") || is_cut(line);
            let harmless =
                "a change that it announced was not made, one whose result it recorded is still open";
            let why = if cut { format!("the line is cut: {harmless} ({why})") } else { why };
            recorded.damage.push(Damage { path: path.to_owned(), offset, why, cut });
        }
        offset += line.len();
    }
    recorded.entries.extend(entries.into_values());
}

/// Adds a line to the entries before it; `Err` is the reason why it cannot be read.
pub(super) fn take(line: &[u8], entries: &mut BTreeMap<u64, Entry>) -> Result<(), String> {
    if line.is_empty() {
        return Ok(());
    }
    let said = match serde_json::from_slice::<Line>(line) {
        Ok(Line { format: FORMAT, said }) => said,
        Ok(Line { format, .. }) => return Err(newer(format)),
        Err(error) => {
            return Err(match serde_json::from_slice::<Numbered>(line) {
                Ok(Numbered { format }) if format != FORMAT => newer(format),
                _ => format!("no entry of a journal: {error}"),
            });
        }
    };
    match said {
        Said::Intend(intent) => {
            intent.check()?;
            entries.insert(intent.id, Entry::new(*intent));
        }
        Said::Done { id, after } => {
            entries.get_mut(&id).ok_or_else(|| lacks(id))?.progress = Progress::Done { after };
        }
        Said::Undoing { id } => {
            entries.get_mut(&id).ok_or_else(|| lacks(id))?.progress = Progress::Undoing;
        }
        Said::Undone { id, how } => {
            entries.get_mut(&id).ok_or_else(|| lacks(id))?.progress = Progress::Undone { how };
        }
    }
    Ok(())
}

fn is_cut(line: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(line.trim_ascii()).is_err_and(|error| error.is_eof())
}

fn newer(format: u32) -> String {
    format!("format {format}, and this exitless reads {FORMAT}: use the exitless that wrote it")
}

fn lacks(id: u64) -> String {
    format!("change {id} was not announced before")
}
