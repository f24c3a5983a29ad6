//! The receiving side of a stream, which has the result folder.

use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::path::{Component, Path, PathBuf};

use super::{Asked, Message, Reader, SentFile, StreamError};
use crate::engine::Past;
use crate::record::Run;
use crate::store::{Store, StoreError};

/// The most files of one run.
const MOST_FILES: usize = 10_000;
/// The most bytes of one run; usually the tools' output and the samples are a few megabytes.
const LARGEST_RUN: u64 = 8 << 30;

/// The most names in the path of a file; a run's files are in its folder and in one for each guest, and those of a
/// repetition in a folder with the same below it.
const DEEPEST: usize = 4;
/// The longest name of a file (`NAME_MAX` of linux/limits.h).
const LONGEST_NAME: usize = 255;
/// The longest time that a study may have taken, in seconds: 30 years.
const LONGEST_STUDY: f64 = 1e9;

/// A completely received item.
#[derive(Debug)]
pub enum Received {
    /// A message other than a run.
    Message(Message),
    /// A run, which is stored in the result folder.
    Run(Box<Run>),
}

/// Receives the next message. A run is received with all its files and stored in `store`, if it was requested and
/// `past` lacks it.
///
/// # Errors
/// [`StreamError`]; an incomplete run is not stored.
pub fn receive<R: Read>(
    reader: &mut Reader<R>,
    store: &mut Store,
    asked: &Asked,
    past: &Past,
) -> Result<Received, StreamError> {
    let begin = reader.offset();
    let (run, files) = match reader.message()? {
        Message::Run { run, files } => (run, files),
        other => return Ok(Received::Message(other)),
    };
    if !asked.lacks(&run.cell, run.position, past) {
        let what = format!("a run that was not asked for, at position {}", run.position);
        return Err(StreamError::Damaged { offset: begin, what });
    }
    if !(0.0..LONGEST_STUDY).contains(&run.spent) {
        let what = format!("a run at the end of {} s", run.spent);
        return Err(StreamError::Damaged { offset: begin, what });
    }
    let folder = store.unfinished()?;
    let taken = take_files(reader, &files, &folder, begin).and_then(|()| Ok(store.keep(&run, &folder)?));
    if taken.is_err() {
        // Ignore errors: the folder may be gone, and the next writer removes what is left.
        let _ = fs::remove_dir_all(&folder);
    }
    taken.map(|()| Received::Run(run))
}

fn take_files<R: Read>(
    reader: &mut Reader<R>,
    files: &[SentFile],
    folder: &Path,
    begin: u64,
) -> Result<(), StreamError> {
    let damaged = |what: String| StreamError::Damaged { offset: begin, what };
    let whole = files.iter().try_fold(0u64, |sum, file| sum.checked_add(file.length));
    if files.len() > MOST_FILES || whole.is_none_or(|whole| whole > LARGEST_RUN) {
        return Err(damaged(format!("a run with {} files of {whole:?} bytes", files.len())));
    }
    for file in files {
        let path =
            inside(folder, &file.path).ok_or_else(|| damaged(format!("a file called {:?}", file.path)))?;
        take_file(reader, file.length, &path)?;
    }
    Ok(())
}

fn take_file<R: Read>(reader: &mut Reader<R>, length: u64, path: &Path) -> Result<(), StreamError> {
    let failed = || StoreError::file("Could not write", path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed())?;
    }
    let mut written = File::create(path).map_err(failed())?;
    let mut left = length;
    while left > 0 {
        let at = reader.offset();
        let chunk = reader.chunk()?;
        let taken = chunk.len() as u64;
        if taken == 0 || taken > left {
            let what = format!("expected 1 to {left} bytes of {}, found {taken}", path.display());
            return Err(StreamError::Damaged { offset: at, what });
        }
        written.write_all(&chunk).map_err(failed())?;
        left -= taken;
    }
    Ok(())
}

/// The path below the folder; `None` if it would leave the folder, or is longer than those of runs are: each file may
/// bring directories of its own.
fn inside(folder: &Path, path: &str) -> Option<PathBuf> {
    let is_plain =
        |part: Component<'_>| matches!(part, Component::Normal(name) if name.len() <= LONGEST_NAME);
    let mut parts = Path::new(path).components();
    let plain = parts.by_ref().take(DEEPEST).all(is_plain) && parts.next().is_none();
    // Refuse run.json, which the receiver writes itself.
    (plain && !path.is_empty() && path != "run.json" && !path.contains('\0')).then(|| folder.join(path))
}

#[cfg(test)]
#[path = "receive_tests.rs"]
mod tests;
