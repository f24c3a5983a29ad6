//! Reads the journal again and again, each time only the lines that are new.

use super::{PERSISTENT, VOLATILE, read};
use crate::{Entry, Error, under};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

/// Both files of a journal, as far as they were read. A process that makes thousands of changes would otherwise read all of
/// them again for each.
#[derive(Debug, Default)]
pub(super) struct Followed {
    persistent: FollowedFile,
    volatile: FollowedFile,
}

/// A file to which lines are appended, or which is replaced by another one.
#[derive(Debug, Default)]
pub(super) struct FollowedFile {
    /// Kept open, so that no other file can get its inode number.
    file: Option<File>,
    /// The end of the last complete line that was read.
    end: u64,
    entries: BTreeMap<u64, Entry>,
    /// The end and the number of open changes at the last attempt to shorten the file.
    tried: (u64, usize),
}

impl Followed {
    /// Reads what is new. Others must not write meanwhile, so the caller holds the lock.
    pub(super) fn catch_up(&mut self, root: &Path) -> Result<(), Error> {
        for (journal, followed) in self.files() {
            let file = read::opened(root, journal)?;
            followed
                .catch_up(file)
                .map_err(|source| Error::JournalRead { path: under(root, journal), source })?;
        }
        Ok(())
    }

    /// The files with their paths on the host.
    pub(super) fn files(&mut self) -> [(&'static str, &mut FollowedFile); 2] {
        [(PERSISTENT, &mut self.persistent), (VOLATILE, &mut self.volatile)]
    }

    /// The number of the last change; 0 if there is none.
    pub(super) fn last_id(&self) -> u64 {
        let last = |followed: &FollowedFile| followed.entries.keys().next_back().copied().unwrap_or(0);
        last(&self.persistent).max(last(&self.volatile))
    }

    /// The changes after this one, including undone ones.
    pub(super) fn after(&self, id: u64) -> impl Iterator<Item = &Entry> {
        let all = self.persistent.entries.range(id..).chain(self.volatile.entries.range(id..));
        all.map(|(_, entry)| entry).filter(move |entry| entry.id > id)
    }
}

impl FollowedFile {
    /// Tests whether the file is longer than `least` bytes and has changed much since the last attempt to shorten it, which
    /// reads it completely.
    pub(super) fn may_shrink(&self, least: u64) -> bool {
        let (end, open) = self.tried;
        self.end > least && (self.end >= 2 * end || 2 * self.open() <= open)
    }

    /// Remembers that the file as it is now cannot be shortened.
    pub(super) fn tried(&mut self) {
        self.tried = (self.end, self.open());
    }

    fn open(&self) -> usize {
        self.entries.values().filter(|entry| entry.open()).count()
    }

    fn catch_up(&mut self, file: Option<File>) -> io::Result<()> {
        let Some(mut file) = file else {
            *self = Self::default();
            return Ok(());
        };
        let now = file.metadata()?;
        let before = self.file.as_ref().map(File::metadata).transpose()?;
        let is_same = before.is_some_and(|before| (before.dev(), before.ino()) == (now.dev(), now.ino()));
        if !is_same || now.len() < self.end || !ends_line(&file, self.end)? {
            *self = Self { file: Some(file.try_clone()?), ..Self::default() };
        }
        file.seek(SeekFrom::Start(self.end))?;
        for line in files::read(&file, read::LARGEST)?.split_inclusive(|&byte| byte == b'\n') {
            // Restoring reports lines that cannot be read.
            let _ = read::take(line.trim_ascii(), &mut self.entries);
            // A line that a crash cut is read again when its end has been written.
            if line.ends_with(b"\n") {
                self.end += line.len() as u64;
            }
        }
        Ok(())
    }
}

/// Tests whether a line ends at this offset. It need not if somebody has edited the file.
fn ends_line(file: &File, offset: u64) -> io::Result<bool> {
    let mut last = [b'\n'];
    if let Some(before) = offset.checked_sub(1) {
        file.read_exact_at(&mut last, before)?;
    }
    Ok(last == *b"\n")
}
