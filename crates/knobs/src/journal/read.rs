//! Reading what the journal tells.

use super::{PERSISTENT, VOLATILE};
use crate::entry::{FORMAT, Line, Said};
use crate::{Entry, Error, Progress, under};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// All that a host's journal tells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Recorded {
    /// Changes by number ascending, undone ones too.
    pub entries: Vec<Entry>,
    /// What could not be read.
    pub damage: Vec<Damage>,
}

/// A line of a journal that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The journal.
    pub path: PathBuf,
    /// Where the line begins, in bytes.
    pub offset: usize,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, byte {}: {}", self.path.display(), self.offset, self.why)
    }
}

/// Enough of a line to know that it is of a newer exitless.
#[derive(Deserialize)]
struct Numbered {
    format: u32,
}

pub(super) fn both(root: &Path) -> Result<Recorded, Error> {
    let mut recorded = Recorded::default();
    for path in [PERSISTENT, VOLATILE] {
        let path = under(root, path);
        match std::fs::read(&path) {
            Ok(bytes) => read(&path, &bytes, &mut recorded),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(Error::JournalRead { path, source }),
        }
    }
    recorded.entries.sort_by_key(|entry| entry.id);
    Ok(recorded)
}

pub(super) fn read(path: &Path, bytes: &[u8], recorded: &mut Recorded) {
    let mut entries: BTreeMap<u64, Entry> = BTreeMap::new();
    let mut offset = 0;
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let whole = line.ends_with(b"\n");
        if let Err(why) = take(line.trim_ascii(), &mut entries) {
            let why =
                if whole { why } else { format!("the line is cut, so its change was not made ({why})") };
            recorded.damage.push(Damage { path: path.to_owned(), offset, why });
        }
        offset += line.len();
    }
    recorded.entries.extend(entries.into_values());
}

fn take(line: &[u8], entries: &mut BTreeMap<u64, Entry>) -> Result<(), String> {
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

fn newer(format: u32) -> String {
    format!("format {format}, and this exitless reads {FORMAT}: use the exitless that wrote it")
}

fn lacks(id: u64) -> String {
    format!("change {id} was not announced before")
}
