//! The agent's spool: a folder with collected but undelivered files. They are sent oldest first, and limited
//! in size.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::document::{self, LARGEST_FILE, Origin, Rows, digest};
use crate::store::{UNFINISHED, write_whole};

/// The file of losses that were not yet reported to the data set.
const LOST: &str = "lost.json";
/// The file that is locked by the agent that uses the folder.
const LOCK: &str = "lock";
const FORMAT: u32 = 1;

/// The data of one tick. The time is the agent's; the documents are the commands' unchanged output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tick {
    format: u32,
    /// The host.
    pub host: String,
    /// The time in microseconds since 1970 UTC.
    pub time: i64,
    /// The outputs of the commands.
    pub documents: Vec<String>,
    /// The losses before this tick.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<Lost>,
}

/// Ticks that were dropped for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The number of ticks.
    pub ticks: i64,
    /// Their size in bytes.
    pub bytes: i64,
    /// The time of the oldest one.
    pub first: i64,
    /// The time of the newest one.
    pub last: i64,
    /// The reason: `spool-full`, `no-space` or `refused`.
    pub reason: String,
}

impl Tick {
    /// A tick with data just collected.
    #[must_use]
    pub fn new(host: String, time: DateTime<Utc>, documents: Vec<String>, lost: Vec<Lost>) -> Self {
        Self { format: FORMAT, host, time: time.timestamp_micros(), documents, lost }
    }

    /// The rows, the same on each call.
    ///
    /// # Errors
    /// A document is invalid.
    pub fn rows(&self) -> Result<Rows, document::Error> {
        let mut all = Rows::new();
        let time = DateTime::from_timestamp_micros(self.time).unwrap_or_default();
        for text in &self.documents {
            let origin = Origin { file: "the spool".to_owned(), host: Some(self.host.clone()), time };
            for (table, rows) in document::rows(text.as_bytes(), &origin)? {
                all.entry(table).or_default().extend(rows);
            }
        }
        for lost in &self.lost {
            let row = json!({
                "host_name": self.host, "time": self.time, "source": "agent", "tool_version": env!("CARGO_PKG_VERSION"),
                "document": digest(&serde_json::to_vec(lost).unwrap_or_default()),
                "ticks": lost.ticks, "bytes": lost.bytes, "first": lost.first, "last": lost.last, "reason": lost.reason,
            });
            all.entry("losses").or_default().extend(row.as_object().cloned());
        }
        Ok(all)
    }
}

/// An open spool.
#[derive(Debug)]
pub struct Spool {
    folder: PathBuf,
    /// The limit on the total size of the files, in bytes.
    limit: u64,
    /// Held while the spool is open: two agents would drop each other's files.
    _lock: fs::File,
    /// Losses that no tick reports yet.
    lost: Vec<Lost>,
    /// Losses in a tick that is not yet stored.
    telling: Vec<Lost>,
}

/// A file of the spool.
#[derive(Debug, Clone)]
pub struct Spooled {
    number: u64,
    time: i64,
    bytes: u64,
    /// The path of the file.
    pub path: PathBuf,
}

impl Spool {
    /// Opens the folder, creating it if necessary, and removes what a killed agent left unfinished.
    ///
    /// # Errors
    /// The folder cannot be created or read, or another agent uses it.
    pub fn open(folder: &Path, limit: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let lock = fs::File::create(folder.join(LOCK))?;
        lock.try_lock().map_err(|_| io::Error::new(io::ErrorKind::ResourceBusy, "another agent uses it"))?;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            // Other hidden files are not ours: the folder may be the user's home.
            if name.to_string_lossy().starts_with(UNFINISHED) || files::is_unfinished(&name, LOST) {
                fs::remove_file(entry.path())?;
            }
        }
        let lost =
            read_bounded(&folder.join(LOST)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let mut spool = Self {
            folder: folder.to_owned(),
            limit,
            _lock: lock,
            lost: lost.unwrap_or_default(),
            telling: Vec::new(),
        };
        // The agent may have been killed after it stored the tick that tells them, and before it forgot them.
        if let Some(last) = spool.files()?.last()
            && let Ok(tick) = spool.read(last)
        {
            let before = spool.lost.len();
            spool.lost.retain(|one| !tick.lost.contains(one));
            if spool.lost.len() < before {
                spool.remember();
            }
        }
        Ok(spool)
    }

    /// The files, oldest first: ordered by their numbers, because clocks can be set back.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn files(&self) -> io::Result<Vec<Spooled>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let numbers = name.to_str().and_then(|name| name.strip_suffix(".json")?.split_once('-'));
            if let Some((number, time)) = numbers
                && let (Ok(number), Ok(time)) = (number.parse(), time.parse())
                // Files with other names, for example 2026-03.json, are not ours.
                && name == *file_name(number, time)
            {
                files.push(Spooled { number, time, bytes: entry.metadata()?.len(), path: entry.path() });
            }
        }
        files.sort_by_key(|file| file.number);
        Ok(files)
    }

    /// The losses that a tick should report. Call [`Self::told`] or [`Self::not_told`] afterwards.
    #[must_use]
    pub fn tell(&mut self) -> Vec<Lost> {
        self.telling.append(&mut self.lost);
        self.telling.clone()
    }

    /// Forgets the losses from [`Self::tell`], because the tick that reports them was stored or delivered.
    pub fn told(&mut self) {
        if !self.telling.is_empty() {
            self.telling.clear();
            self.remember();
        }
    }

    /// Keeps the losses from [`Self::tell`] for another tick.
    pub fn not_told(&mut self) {
        for lost in std::mem::take(&mut self.telling) {
            self.add(lost);
        }
    }

    /// Stores a tick; it is durable when this returns. Makes room by dropping the oldest ticks, and counts
    /// those.
    ///
    /// # Errors
    /// It is larger than the spool may be, or there is no room even after dropping all others. The tick is not yet
    /// counted as lost.
    pub fn keep(&mut self, tick: &Tick) -> io::Result<()> {
        let bytes = serde_json::to_vec(tick)?;
        // Dropping others would not make room for it.
        if bytes.len() as u64 > self.limit {
            let why = "a tick is larger than the spool may be";
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        let mut files = self.files()?;
        let number = files.last().map_or(0, |last| last.number) + 1;
        let path = self.folder.join(file_name(number, tick.time));
        let mut held: u64 = files.iter().map(|file| file.bytes).sum();
        files.reverse();
        while held + bytes.len() as u64 > self.limit
            && let Some(oldest) = files.pop()
        {
            held -= oldest.bytes;
            self.drop_file(&oldest, "spool-full")?;
        }
        loop {
            match write_whole(&self.folder, &path, &bytes) {
                Ok(_) => return Ok(()),
                Err(error) if is_full(&error) => match files.pop() {
                    Some(oldest) => self.drop_file(&oldest, "no-space")?,
                    None => return Err(error),
                },
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the tick in a file.
    ///
    /// # Errors
    /// The file cannot be read; or it is not a tick, which is [`io::ErrorKind::InvalidData`].
    pub fn read(&self, file: &Spooled) -> io::Result<Tick> {
        let bytes = read_bounded(&file.path)?;
        let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let tick: Tick = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        if tick.format == FORMAT { Ok(tick) } else { Err(wrong(format!("format {}", tick.format))) }
    }

    /// Deletes the file of a delivered tick.
    ///
    /// # Errors
    /// The file cannot be deleted.
    pub fn delivered(&self, file: &Spooled) -> io::Result<()> {
        fs::remove_file(&file.path)
    }

    /// Drops a file, and counts its tick as lost.
    ///
    /// # Errors
    /// The file cannot be deleted.
    pub fn drop_file(&mut self, file: &Spooled, reason: &str) -> io::Result<()> {
        let told = self.read(file).map(|tick| tick.lost).unwrap_or_default();
        fs::remove_file(&file.path)?;
        // Keep the losses that it would have reported.
        for lost in told {
            self.add(lost);
        }
        self.count(file.time, file.bytes, reason);
        Ok(())
    }

    /// Counts a tick that could not be stored.
    pub fn count(&mut self, time: i64, bytes: u64, reason: &str) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.add(Lost { ticks: 1, bytes, first: time, last: time, reason: reason.to_owned() });
        self.remember();
    }

    fn add(&mut self, more: Lost) {
        match self.lost.iter_mut().find(|lost| lost.reason == more.reason) {
            Some(lost) => {
                lost.ticks = lost.ticks.saturating_add(more.ticks);
                lost.bytes = lost.bytes.saturating_add(more.bytes);
                lost.first = lost.first.min(more.first);
                lost.last = lost.last.max(more.last);
            }
            None => self.lost.push(more),
        }
    }

    /// Saves the losses for a restart. On a full disk they are only in memory.
    fn remember(&self) {
        let path = self.folder.join(LOST);
        let all: Vec<&Lost> = self.telling.iter().chain(&self.lost).collect();
        let _ = match serde_json::to_vec(&all) {
            Ok(bytes) if !all.is_empty() => files::write(&path, &bytes),
            _ => fs::remove_file(&path),
        };
    }
}

fn file_name(number: u64, time: i64) -> String {
    format!("{number:012}-{time}.json")
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Documents are strings within JSON here, and escaping may double their size.
    fs::File::open(path)?.take(4 * LARGEST_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(time: i64) -> Tick {
        Tick::new(
            "web-1".to_owned(),
            DateTime::from_timestamp_micros(time).unwrap(),
            vec!["x".repeat(1000)],
            Vec::new(),
        )
    }

    #[test]
    fn the_oldest_are_dropped_and_counted_and_the_count_outlives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), 3500).unwrap();
        // The clock is set back meanwhile; the order must not change.
        for time in [50, 60, 10, 20, 30] {
            spool.keep(&tick(time)).unwrap();
        }
        drop(spool);
        let mut spool = Spool::open(folder.path(), 3500).unwrap();
        let times: Vec<i64> =
            spool.files().unwrap().iter().map(|file| spool.read(file).unwrap().time).collect();
        assert_eq!(times, [10, 20, 30]);
        let [lost] = spool.tell().try_into().unwrap();
        assert_eq!((lost.ticks, lost.first, lost.last, lost.reason.as_str()), (2, 50, 60, "spool-full"));
    }

    #[test]
    fn losses_are_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), 1 << 20).unwrap();
        spool.count(5, 100, "no-space");
        let told = spool.tell();
        drop(spool);
        // As if killed before the tick was stored.
        let mut spool = Spool::open(folder.path(), 1 << 20).unwrap();
        assert_eq!(spool.tell(), told);
        spool.told();
        assert_eq!(spool.tell(), []);
        let busy = Spool::open(folder.path(), 1 << 20).unwrap_err();
        assert_eq!(busy.to_string(), "another agent uses it");
        drop(spool);
        assert_eq!(Spool::open(folder.path(), 1 << 20).unwrap().tell(), []);
        let rows = Tick::new("a".to_owned(), Utc::now(), Vec::new(), told).rows().unwrap();
        assert_eq!(rows["losses"][0]["ticks"], 1);
    }

    #[test]
    fn losses_of_a_tick_that_was_stored_before_a_kill_are_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), 1 << 20).unwrap();
        spool.count(5, 100, "no-space");
        let lost = spool.tell();
        spool.keep(&Tick { lost, ..tick(1) }).unwrap();
        // As if killed before `told`.
        drop(spool);
        let mut spool = Spool::open(folder.path(), 1 << 20).unwrap();
        assert_eq!(spool.tell(), []);
        // Nor after the tick has left the spool.
        let [file] = spool.files().unwrap().try_into().unwrap();
        spool.delivered(&file).unwrap();
        drop(spool);
        assert_eq!(Spool::open(folder.path(), 1 << 20).unwrap().tell(), []);
    }

    #[test]
    fn a_tick_that_is_dropped_hands_on_the_losses_that_it_tells() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), 2500).unwrap();
        for time in 0..9 {
            let lost = spool.tell();
            spool.keep(&Tick { lost, ..tick(time) }).unwrap();
            spool.told();
        }
        let kept: Vec<Tick> = spool.files().unwrap().iter().map(|file| spool.read(file).unwrap()).collect();
        let told =
            kept.iter().flat_map(|tick| &tick.lost).chain(&spool.tell()).map(|lost| lost.ticks).sum::<i64>();
        assert_eq!(told + i64::try_from(kept.len()).unwrap(), 9);
    }

    #[test]
    fn a_tick_larger_than_the_spool_is_an_error_and_foreign_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at(".git")).unwrap();
        for name in ["README", ".mine", ".unfinished-x", ".lost.json.new-7-0", "2026-03.json"] {
            fs::write(at(name), "x").unwrap();
        }
        let mut spool = Spool::open(folder.path(), 2500).unwrap();
        assert!(["README", ".mine", ".git"].iter().all(|name| at(name).exists()));
        assert!(![".unfinished-x", ".lost.json.new-7-0"].iter().any(|name| at(name).exists()));
        spool.keep(&tick(1)).unwrap();
        let large = Tick { documents: vec!["x".repeat(2500)], ..tick(2) };
        assert!(is_full(&spool.keep(&large).unwrap_err()));
        // It would not fit without the others either, so those stay.
        assert_eq!((spool.files().unwrap().len(), spool.tell()), (1, vec![]));
    }
}
