//! Hot spots from files.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;

use anyhow::Context as _;
use traces::Source;

use super::Hot;

/// The number of bytes needed to recognise a file's format.
const BEGINNING: u64 = 64;

/// A file, by its first bytes.
pub(super) enum Given {
    /// Hot spots that `--output` wrote.
    Kept(Box<Hot>),
    /// Something else from a pipe, which can be read only once.
    Stream(Box<dyn Read + Send>),
    /// Something else.
    Path,
}

/// Reads hot spots, or finds that a file has none.
pub(super) fn look(file: &Path) -> anyhow::Result<Given> {
    let source = Source::from(file);
    let name = source.to_string();
    let could_not = || format!("Could not read {name}");
    let is_input = source == Source::StandardInput;
    let about = if is_input { None } else { std::fs::metadata(file).ok() };
    if about.as_ref().is_some_and(std::fs::Metadata::is_dir) {
        return Ok(Given::Path);
    }
    let mut reader: Box<dyn Read + Send> = match is_input {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(file).with_context(could_not)?),
    };
    let mut start = Vec::new();
    reader.by_ref().take(BEGINNING).read_to_end(&mut start).with_context(could_not)?;
    let is_kept = hotspots::is_recording(&start);
    let mut whole = Cursor::new(start).chain(reader);
    if is_kept {
        let mut bytes = Vec::new();
        whole.read_to_end(&mut bytes).with_context(could_not)?;
        return Ok(Given::Kept(Box::new(hot(name, &bytes)?)));
    }
    let is_file = about.is_some_and(|about| about.is_file());
    Ok(if is_file { Given::Path } else { Given::Stream(Box::new(whole)) })
}

/// Reads a file written by `--output`.
pub(in crate::commands) fn read(file: &Path) -> anyhow::Result<Hot> {
    let bytes = std::fs::read(file).with_context(|| format!("Could not read {}", file.display()))?;
    hot(file.display().to_string(), &bytes)
}

fn hot(name: String, bytes: &[u8]) -> anyhow::Result<Hot> {
    let mut reading = hotspots::read(&name, bytes)?;
    let is_damaged = !reading.damage.is_empty();
    reading.recording.head.notes.extend(reading.damage);
    Ok(Hot { name, recording: reading.recording, is_damaged })
}
