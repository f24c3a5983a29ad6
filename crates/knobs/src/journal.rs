//! The journal of changes; each change is recorded on the disk before it is made.
//!
//! Two files with a line of JSON for each event; changes that a reboot undoes are in a file that a reboot removes. A line is
//! synced before the change that it announces. A line that a crash cut is skipped: if it announced a change, that was never
//! made; if it recorded a result, the change is still open. A long journal is replaced by a file with only the open changes.
//!
//! Anyone who can write to root's journal becomes root at the next `exitless restore`. So each file lies in a directory
//! that only the user of this process can write to; this is checked each time, from `/` down.

mod follow;
mod lock;
mod place;
mod read;

use crate::entry::{FORMAT, Intent, Line, Said};
use crate::{After, Before, Change, Entry, Error, Owner, cut_short, under};
use files::{Directory, Missing};
use rustix::fs::{OFlags, renameat};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use follow::Followed;
use lock::BEFORE_UNDOING;
pub(crate) use lock::{BEFORE_A_CHANGE, Lock};
pub use read::{Damage, Recorded};

/// The journal of changes that survive a reboot.
pub(crate) const PERSISTENT: &str = "/var/lib/exitless/journal";
/// The journal of changes that a reboot undoes. Not below `/run/exitless`, which belongs to the user of the I/O
/// daemon.
pub(crate) const VOLATILE: &str = "/run/exitless-journal/journal";
/// The size in bytes above which a journal is rewritten without the undone changes, if that saves at least
/// half. If it does not, the next attempt is made when the journal has doubled or half of its changes are undone.
const TURN: u64 = 1 << 20;

/// The journal of a host.
#[derive(Debug)]
pub struct Journal {
    root: PathBuf,
    /// The journal as this process last read it under the lock.
    followed: RefCell<Followed>,
}

impl Journal {
    /// Creates the journal's directories if they are missing, so that an [`Error::JournalWrite`] comes before any
    /// change.
    ///
    /// # Errors
    /// [`Error::JournalWrite`], or [`Error::JournalPlace`] if others can write there.
    pub fn open(root: &Path) -> Result<Self, Error> {
        for path in [PERSISTENT, VOLATILE] {
            place::directory(root, path, Missing::Made(0o700))?;
        }
        Ok(Self { root: root.to_owned(), followed: RefCell::default() })
    }

    /// The contents of the journal of the host below `root`. Changes nothing.
    ///
    /// # Errors
    /// [`Error::JournalRead`], or [`Error::JournalPlace`] if others could have written it. Damage is not an error: the intact
    /// lines are returned, together with the offsets of the damaged ones.
    pub fn read(root: &Path) -> Result<Recorded, Error> {
        read::both(root)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn lock(&self) -> Result<Lock, Error> {
        Lock::take(&self.root, BEFORE_A_CHANGE)
    }

    /// The lock for undoing several changes, with more patience.
    pub(crate) fn lock_to_undo(&self) -> Result<Lock, Error> {
        Lock::take(&self.root, BEFORE_UNDOING)
    }

    /// Announces a change. `lock` proves that no other process takes the same ID.
    pub(crate) fn intend(
        &self,
        lock: &Lock,
        who: (&Owner, &[String]),
        temporary: bool,
        change: Change,
        before: Before,
    ) -> Result<Entry, Error> {
        change.check().map_err(|why| Error::Unknown { why })?;
        self.turn(lock)?;
        // The last one before the turn, which may have removed its line.
        let id = self.followed.borrow().last_id().saturating_add(1);
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (owner, command) = (who.0.clone(), who.1.to_vec());
        let intent = Intent { id, time, owner, command, temporary, change, before };
        self.append(&intent.change, Said::Intend(Box::new(intent.clone())))?;
        Ok(Entry::new(intent))
    }

    pub(crate) fn done(&self, entry: &Entry, after: &After) -> Result<(), Error> {
        self.append(&entry.change, Said::Done { id: entry.id, after: after.clone() })
    }

    pub(crate) fn undoing(&self, entry: &Entry) -> Result<(), Error> {
        self.append(&entry.change, Said::Undoing { id: entry.id })
    }

    pub(crate) fn undone(&self, entry: &Entry, how: &str) -> Result<(), Error> {
        let id = entry.id;
        self.append(&entry.change, Said::Undone { id, how: how.to_owned() }).map_err(|error| match error {
            Error::JournalWrite { path, source } => Error::JournalUndone { id, path, source },
            other => other,
        })
    }

    fn path(&self, change: &Change) -> PathBuf {
        under(&self.root, file_of(change))
    }

    fn append(&self, change: &Change, said: Said) -> Result<(), Error> {
        let directory = place::directory(&self.root, file_of(change), Missing::Made(0o700))?;
        let path = self.path(change);
        append_line(&directory, said).map_err(|source| Error::JournalWrite { path, source })
    }

    /// The open changes that hold up this one, in ascending order of ID; see [`Entry::holds_up`]. `_lock` proves that no
    /// other process makes or undoes any meanwhile.
    pub(crate) fn holding_up(
        &self,
        _lock: &Lock,
        entry: &Entry,
        undone: &[u64],
    ) -> Result<Vec<Entry>, Error> {
        let mut followed = self.followed.borrow_mut();
        followed.catch_up(&self.root)?;
        let holds_up = |later: &&Entry| later.open() && later.holds_up(entry, undone);
        let mut holding: Vec<Entry> = followed.after(entry.id).filter(holds_up).cloned().collect();
        holding.sort_by_key(|later| later.id);
        Ok(holding)
    }

    /// Removes undone changes from a long journal. `_lock` proves that no other process appends to it.
    pub(crate) fn turn(&self, _lock: &Lock) -> Result<(), Error> {
        let mut followed = self.followed.borrow_mut();
        followed.catch_up(&self.root)?;
        for (journal, file) in followed.files() {
            if !file.may_shrink(TURN) {
                continue;
            }
            let directory = place::directory(&self.root, journal, Missing::Made(0o700))?;
            let path = under(&self.root, journal);
            turn(&directory, &path).map_err(|source| Error::JournalWrite { path, source })?;
            file.tried();
        }
        Ok(())
    }
}

fn turn(directory: &Directory, path: &Path) -> io::Result<()> {
    let bytes = files::read(&place::file(directory, OFlags::RDONLY)?, read::LARGEST)?;
    let recorded = Recorded::parse(path, &bytes);
    // The unreadable lines may be open changes of a newer exitless.
    if recorded.damage.iter().any(|damage| !damage.cut) {
        return Ok(());
    }
    let mut kept = Vec::new();
    for said in recorded.entries.into_iter().filter(Entry::open).flat_map(Entry::said) {
        put(&mut kept, said)?;
    }
    if kept.len() > bytes.len() / 2 {
        return Ok(());
    }
    cut_short::here()?;
    if kept.is_empty() {
        directory.remove(place::NAME.as_ref())?;
        return directory.sync();
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let mut new = place::named(directory, place::NEW, flags)?;
    new.write_all(cut_short::written(&kept))?;
    cut_short::here()?;
    new.sync_all()?;
    cut_short::here()?;
    renameat(directory, place::NEW, directory, place::NAME)?;
    directory.sync()
}

fn put(lines: &mut Vec<u8>, said: Said) -> io::Result<()> {
    serde_json::to_writer(&mut *lines, &Line { format: FORMAT, said })?;
    lines.push(b'\n');
    Ok(())
}

fn file_of(change: &Change) -> &'static str {
    if change.volatile() { VOLATILE } else { PERSISTENT }
}

fn append_line(directory: &Directory, said: Said) -> io::Result<()> {
    cut_short::here()?;
    let flags = OFlags::RDWR | OFlags::APPEND;
    let (file, is_new) = match place::file(directory, flags) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            (place::file(directory, flags | OFlags::CREATE)?, true)
        }
        opened => (opened?, false),
    };
    write_line(file, said)?;
    if is_new { directory.sync() } else { Ok(()) }
}

fn write_line(mut file: File, said: Said) -> io::Result<()> {
    let whole = file.metadata()?.len();
    let mut line = Vec::new();
    if whole > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        // A crash cut the previous line: start a new one.
        if last != *b"\n" {
            line.push(b'\n');
        }
    }
    put(&mut line, said)?;
    let written = file
        .write_all(cut_short::written(&line))
        .and_then(|()| cut_short::here())
        .and_then(|()| file.sync_all());
    // On a full disk half of the line may have been written.
    if written.is_err() && cut_short::here().is_ok() {
        let _ = file.set_len(whole);
    }
    written
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
