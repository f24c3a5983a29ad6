//! The sending side of a stream, which has the guests.

use std::fs::{self, File};
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{LARGEST_CHUNK, Message, SentFile, StreamError, Writer};
use crate::engine::{Sink, StudyProgress};
use crate::record::Run;
use crate::store::StoreError;

/// A result folder on the other side of a connection. Runs stay in `place` until they are sent.
#[derive(Debug)]
pub struct Link<W> {
    writer: Arc<Mutex<Writer<W>>>,
    place: PathBuf,
    number: u32,
}

impl<W: Write> Link<W> {
    /// Sends runs that are made below `place` through `writer`.
    pub fn new(writer: Writer<W>, place: &Path) -> Self {
        let writer = Arc::new(Mutex::new(writer));
        Self { writer, place: place.to_owned(), number: 0 }
    }

    /// Sends a message other than a run.
    ///
    /// # Errors
    /// Those of [`Writer::message`].
    pub fn say(&mut self, message: &Message) -> Result<(), StreamError> {
        said(&self.writer, message)
    }

    /// A function for another thread that sends a sign of life. It blocks while a run is being sent.
    pub fn alive(&self) -> impl Fn() -> Result<(), StreamError> + Send + use<W>
    where
        W: Send,
    {
        let writer = Arc::clone(&self.writer);
        move || said(&writer, &Message::Alive)
    }

    fn send(&mut self, run: &Run, folder: &Path) -> Result<(), StoreError> {
        let mut files = Vec::new();
        list(folder, "", &mut files)?;
        let link = |error: StreamError| StoreError::Link(Box::new(error));
        let message = Message::Run { run: Box::new(run.clone()), files: files.clone() };
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.message(&message).map_err(link)?;
        for file in &files {
            let path = folder.join(&file.path);
            let failed = || StoreError::file("Could not read", &path);
            let mut source = File::open(&path).map_err(failed())?.take(file.length);
            let mut left = file.length;
            while left > 0 {
                let mut chunk = Vec::new();
                let most = u64::from(LARGEST_CHUNK).min(left);
                source.by_ref().take(most).read_to_end(&mut chunk).map_err(failed())?;
                if chunk.is_empty() {
                    // The file became shorter while it was sent, though no process should still write it. Pad it with
                    // zeros: its length has already been sent.
                    chunk = vec![0; usize::try_from(most).unwrap_or(0)];
                }
                left -= chunk.len() as u64;
                writer.chunk(&chunk).map_err(link)?;
            }
        }
        writer.flush().map_err(link)?;
        drop(writer);
        fs::remove_dir_all(folder).map_err(StoreError::file("Could not remove", folder))
    }
}

fn said<W: Write>(writer: &Mutex<Writer<W>>, message: &Message) -> Result<(), StreamError> {
    writer.lock().unwrap_or_else(PoisonError::into_inner).message(message)
}

/// Regular files below a folder, in the order of their names.
fn list(folder: &Path, above: &str, files: &mut Vec<SentFile>) -> Result<(), StoreError> {
    let failed = || StoreError::file("Could not read", folder);
    let entries = fs::read_dir(folder).map_err(failed())?.collect::<Result<Vec<_>, _>>();
    let mut entries = entries.map_err(failed())?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = format!("{above}{}", entry.file_name().to_string_lossy());
        let metadata = entry.metadata().map_err(failed())?;
        if metadata.is_dir() {
            list(&entry.path(), &format!("{path}/"), files)?;
        } else if metadata.is_file() {
            files.push(SentFile { path, length: metadata.len() });
        }
    }
    Ok(())
}

impl<W: Write> Sink for Link<W> {
    fn folder(&mut self) -> Result<PathBuf, StoreError> {
        self.number += 1;
        let path = self.place.join(self.number.to_string());
        fs::create_dir_all(&path).map_err(StoreError::file("Could not create", &path))?;
        Ok(path)
    }

    fn keep(&mut self, run: &Run, folder: &Path) -> Result<(), StoreError> {
        self.send(run, folder)
    }

    fn progress(&mut self, progress: &StudyProgress) {
        // Ignore errors: sending the next run reports a broken connection.
        let _ = self.say(&Message::Progress(progress.clone()));
    }
}
