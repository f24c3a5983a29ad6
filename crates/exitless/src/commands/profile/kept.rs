//! Hot spots from files.

use std::io::Read;
use std::path::Path;

use anyhow::Context as _;
use hotspots::Recording;

use super::guests_code;

/// Hot spots, and their source.
#[derive(Debug)]
pub(in crate::commands) struct Hot {
    pub(in crate::commands) name: String,
    pub(in crate::commands) recording: Recording,
    pub(in crate::commands) is_damaged: bool,
}

/// The bytes that identify the type of a file.
const BEGINNING: u64 = 64;

/// Reads a file of `--output`, or the guest's code from a recording of exits.
pub(super) fn read(file: &Path, guest_symbols: Option<&Path>) -> anyhow::Result<Hot> {
    if is_kept(file) { read_kept(file) } else { guests_code::read(file, guest_symbols) }
}

fn is_kept(file: &Path) -> bool {
    let mut start = Vec::new();
    // Standard input and pipes can be read only once, and are recordings of exits.
    let is_file = std::fs::metadata(file).is_ok_and(|found| found.is_file());
    is_file
        && std::fs::File::open(file)
            .is_ok_and(|opened| opened.take(BEGINNING).read_to_end(&mut start).is_ok())
        && hotspots::is_recording(&start)
}

/// Reads a file of `--output`.
pub(in crate::commands) fn read_kept(file: &Path) -> anyhow::Result<Hot> {
    let bytes = std::fs::read(file).with_context(|| format!("Could not read {}", file.display()))?;
    let name = file.display().to_string();
    let mut reading = hotspots::read(&name, &bytes)?;
    let is_damaged = !reading.damage.is_empty();
    reading.recording.head.notes.extend(reading.damage);
    Ok(Hot { name, recording: reading.recording, is_damaged })
}
