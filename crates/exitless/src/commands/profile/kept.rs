//! Hot spots from files.

use std::io::Read;
use std::path::Path;

use anyhow::Context as _;

use super::Hot;

/// The number of bytes needed to recognise a file's format.
const BEGINNING: u64 = 64;

/// Tests whether a file was written by `--output`.
pub(super) fn is_kept(file: &Path) -> bool {
    let mut start = Vec::new();
    // Do not probe standard input or pipes, which can be read only once; they are recordings of exits.
    let is_file = std::fs::metadata(file).is_ok_and(|found| found.is_file());
    is_file
        && std::fs::File::open(file)
            .is_ok_and(|opened| opened.take(BEGINNING).read_to_end(&mut start).is_ok())
        && hotspots::is_recording(&start)
}

/// Reads a file written by `--output`.
pub(in crate::commands) fn read(file: &Path) -> anyhow::Result<Hot> {
    let bytes = std::fs::read(file).with_context(|| format!("Could not read {}", file.display()))?;
    let name = file.display().to_string();
    let mut reading = hotspots::read(&name, &bytes)?;
    let is_damaged = !reading.damage.is_empty();
    reading.recording.head.notes.extend(reading.damage);
    Ok(Hot { name, recording: reading.recording, is_damaged })
}
