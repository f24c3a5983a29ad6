//! Reads what [`crate::write`] wrote, even if it is damaged.

use std::collections::HashMap;

use crate::object_symbols::shortened;
use crate::writing::{FORMAT, HeadLine, Line};
use crate::{Frame, FrameNumber, Measured, Recording, Stack};

/// The first bytes of a recording.
const BEGINNING: &[u8] = b"{\"exitless_hot_spots\":";
/// The most frames of a stack. Recorders keep far fewer, and code that draws stacks recurses once per frame.
const MOST_FRAMES: usize = 1024;
/// The most damaged places that are reported one by one.
const TOLD: usize = 4;

/// The reason why a recording of hot spots cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file is not a recording of hot spots.
    #[error(
        "{name} is no recording of hot spots: its first line does not begin with `{{\"exitless_hot_spots\":`; make \
         one with `exitless profile --output FILE`"
    )]
    NotThis {
        /// The file.
        name: String,
    },
    /// A later program wrote it.
    #[error(
        "{name} has format {found} of hot spots, and {FORMAT} is known here; read it with a newer exitless"
    )]
    Newer {
        /// The file.
        name: String,
        /// Its format.
        found: u32,
    },
    /// The first line cannot be parsed.
    #[error(
        "{name} has a damaged first line, which says what the rest means: {cause}; nothing of it can be used"
    )]
    Head {
        /// The file.
        name: String,
        /// The fault.
        cause: String,
    },
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The contents of the intact lines.
    pub recording: Recording,
    /// Descriptions of the damaged places, with their offsets in bytes. Empty if the file is intact.
    pub damage: Vec<String>,
}

/// Tests whether bytes begin as a recording of hot spots does.
#[must_use]
pub fn is_recording(start: &[u8]) -> bool {
    start.starts_with(BEGINNING)
}

/// Reads a recording. Damaged lines are skipped and reported.
///
/// # Errors
/// [`ReadError`] if the first line cannot be used.
pub fn read(name: &str, bytes: &[u8]) -> Result<Reading, ReadError> {
    let name = || name.to_owned();
    if !is_recording(bytes) {
        return Err(ReadError::NotThis { name: name() });
    }
    let mut lines = Lines { bytes, at: 0 };
    let Some((_, first)) = lines.next() else { return Err(ReadError::NotThis { name: name() }) };
    let version = first[BEGINNING.len()..].iter().map_while(|byte| char::from(*byte).to_digit(10));
    let version = version.fold(0u32, |sum, digit| sum.saturating_mul(10).saturating_add(digit));
    if version > FORMAT {
        return Err(ReadError::Newer { name: name(), found: version });
    }
    let head: HeadLine = serde_json::from_slice(first)
        .map_err(|error| ReadError::Head { name: name(), cause: error.to_string() })?;
    let mut reader = Reader {
        recording: Recording::new(head.head),
        numbers: HashMap::new(),
        damage: Vec::new(),
        damaged: 0,
        ended: false,
    };
    for (at, line) in lines.filter(|(_, line)| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(line) => reader.take(at, line),
            Err(error) => reader.damaged(at, &format!("the line cannot be read ({error})")),
        }
    }
    Ok(reader.finish(bytes.len()))
}

struct Lines<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Iterator for Lines<'b> {
    type Item = (usize, &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        let end = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
        let at = self.at;
        self.at += end + 1;
        Some((at, &rest[..end]))
    }
}

struct Reader {
    recording: Recording,
    /// Our number of each of the file's frames: the two differ if lines are missing.
    numbers: HashMap<FrameNumber, FrameNumber>,
    damage: Vec<String>,
    damaged: usize,
    ended: bool,
}

impl Reader {
    fn take(&mut self, at: usize, line: Line) {
        match line {
            // Names are cut as recorders do it: what is written repeats them for each reason or stack.
            Line::Vm { vm, name } => drop(self.recording.names.insert(vm, shortened(&name))),
            Line::Exits { vm, reason, exits, handling_ns, away } => {
                let measured = self.recording.measured.entry((vm, reason)).or_default();
                measured.add(Measured { exits, handling_ns, away });
            }
            Line::Frame { number, frame } => {
                let (symbol, object) = (frame.symbol.as_deref().map(shortened), shortened(&frame.object));
                let ours = self.recording.number(Frame { symbol, object, ..frame });
                self.numbers.insert(number, ours);
            }
            Line::Stack { vm, thread, activity, reason, frames, samples, away, cut } => {
                let Some(activity) = activity.activity(reason) else {
                    return self.damaged(at, "a stack within an exit has no reason");
                };
                if frames.len() > MOST_FRAMES {
                    return self.damaged(at, "a stack has more frames than any recorder keeps");
                }
                let known: Option<Vec<_>> =
                    frames.iter().map(|number| self.numbers.get(number).copied()).collect();
                let Some(frames) = known else {
                    return self.damaged(at, "a stack names code that is in no line before it");
                };
                self.recording.stacks.push(Stack { vm, thread, activity, frames, samples, away, cut });
            }
            Line::End(losses) => {
                self.recording.losses = losses;
                self.ended = true;
            }
        }
    }

    fn damaged(&mut self, at: usize, what: &str) {
        self.damaged += 1;
        if self.damage.len() < TOLD {
            self.damage.push(format!("At byte {at}: {what}; the line is left out"));
        }
    }

    fn finish(mut self, length: usize) -> Reading {
        if self.damaged > self.damage.len() {
            self.damage.push(format!("{} more lines are left out", self.damaged - self.damage.len()));
        }
        if !self.ended {
            self.damage
                .push(format!("It ends at byte {length} without its last line: what follows is missing"));
        }
        Reading { recording: self.recording, damage: self.damage }
    }
}

#[cfg(test)]
#[path = "reading_tests.rs"]
mod tests;
