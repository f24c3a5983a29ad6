//! Walks over the windows and records of a recording, and skips damaged parts.
//!
//! `xentrace` (`tools/xentrace/xentrace.c` of Xen) writes no file header: in each round it writes a window for each
//! CPU that has new records, in order of the CPUs. After an invalid record, reading continues with the next window.

use std::io::{ErrorKind, Read};

use super::event::CPU_CHANGE;
use super::record::{Header, LONGEST, Record, Sequence, WINDOW, Window, sequence};
use crate::Damage;
use crate::bytes::u32_at;
use crate::input::Failure;

/// The number of bytes that are read at once.
const CHUNK: usize = 256 << 10;
/// The bytes that are checked to distinguish the start of a window from bytes that look like one.
const LOOK_AHEAD: usize = 256;
const RECORDS_AHEAD: usize = 4;

/// The next item of a recording.
#[derive(Debug)]
pub(super) enum Item<'a> {
    /// Records of this processor follow.
    Window(Window),
    Record(Record<'a>),
    /// The recording is still being made, and nothing new has arrived for a moment.
    Pause,
    /// The rest of the current window could not be read; `all` if other windows may be missing too.
    Gap {
        all: bool,
    },
}

/// The windows and records of a stream.
pub(super) struct Records {
    reader: Box<dyn Read + Send>,
    failure: Failure,
    buffer: Vec<u8>,
    /// The start of the part of `buffer` that was not walked over yet.
    at: usize,
    filled: usize,
    /// The number of bytes before `buffer`.
    before: u64,
    ended: bool,
    window: Window,
    /// The bytes of `window` that were not walked over yet.
    left: u64,
    /// Set after damage: search for the next window, which should be at this offset.
    lost_track: Option<u64>,
    pub(super) damage: Option<Damage>,
    /// The number of damaged places, and of the bytes that were skipped.
    pub(super) broken: u64,
    pub(super) skipped: u64,
}

enum Step {
    Window(Window),
    Record(Header),
    Gap { all: bool },
    Again,
    Pause,
    End,
}

impl Records {
    pub(super) fn new(reader: Box<dyn Read + Send>, failure: Failure) -> Self {
        Self {
            reader,
            failure,
            buffer: vec![0; CHUNK],
            at: 0,
            filled: 0,
            before: 0,
            ended: false,
            window: Window { cpu: 0, length: 0 },
            left: 0,
            lost_track: None,
            damage: None,
            broken: 0,
            skipped: 0,
        }
    }

    /// The offset of the next item in the recording.
    pub(super) fn position(&self) -> u64 {
        self.before + self.at as u64
    }

    /// Passes on the following valid records of the current window, which is the usual case. [`Self::next`] handles
    /// everything else.
    #[inline(always)]
    pub(super) fn sound(&mut self, mut take: impl FnMut(&Record<'_>)) {
        let bytes = &self.buffer[self.at..self.filled];
        let within = usize::try_from(self.left).unwrap_or(usize::MAX);
        let mut rest = bytes;
        while let Some(long) = rest.first_chunk::<LONGEST>() {
            let Some(header) = u32_at(long, 0).map(Header) else { break };
            let size = header.size();
            let sound = header.plausible() && header.event() != CPU_CHANGE;
            if !sound || bytes.len() - rest.len() + size > within {
                break;
            }
            let Some(record) = Record::parse(header, long) else { break };
            take(&record);
            rest = &rest[size..];
        }
        let walked = bytes.len() - rest.len();
        self.at += walked;
        self.left -= walked as u64;
    }

    /// The next window or record; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Item<'_>> {
        loop {
            match self.step() {
                Step::Window(window) => return Some(Item::Window(window)),
                Step::Gap { all } => return Some(Item::Gap { all }),
                Step::Again => {}
                Step::Pause => return Some(Item::Pause),
                Step::End => return None,
                Step::Record(header) => {
                    let from = self.at;
                    self.at += header.size();
                    return Record::parse(header, &self.buffer[from..self.filled]).map(Item::Record);
                }
            }
        }
    }

    fn step(&mut self) -> Step {
        if let Some(expected) = self.lost_track {
            return self.find_window(expected);
        }
        if self.want(LONGEST) {
            return Step::Pause;
        }
        let bytes = &self.buffer[self.at..self.filled];
        if self.left == 0 {
            return self.window();
        }
        let Some(header) = u32_at(bytes, 0).map(Header) else { return self.cut() };
        if header.event() == CPU_CHANGE && Window::parse(bytes).is_some() {
            let missing = self.left;
            self.damaged(format!("a window begins {missing} bytes before the one before it ends"));
            self.left = 0;
            return Step::Gap { all: true };
        }
        let size = header.size();
        if !header.plausible() || header.event() == CPU_CHANGE {
            return self.lose_track(format!("no record begins with {:#010x}", header.0));
        }
        if size as u64 > self.left {
            return self
                .lose_track(format!("a record of {size} bytes in the last {} of its window", self.left));
        }
        if bytes.len() < size {
            return self.cut();
        }
        self.left -= size as u64;
        Step::Record(header)
    }

    /// Reads the header of a window.
    fn window(&mut self) -> Step {
        let bytes = &self.buffer[self.at..self.filled];
        if bytes.is_empty() {
            self.note_failure();
            return Step::End;
        }
        match Window::parse(bytes) {
            Some(window) => {
                self.at += WINDOW;
                self.left = u64::from(window.length);
                self.window = window;
                Step::Window(window)
            }
            None if bytes.len() < WINDOW => self.cut(),
            None => self.lose_track("a window ends here, but no other begins".into()),
        }
    }

    /// Handles the end of the recording within a window or a header.
    fn cut(&mut self) -> Step {
        if !self.note_failure() {
            let what = match self.left {
                0 => "it ends within the header of a window".to_owned(),
                left => {
                    let rest = left.saturating_sub((self.filled - self.at) as u64);
                    let (cpu, length) = (self.window.cpu, self.window.length);
                    format!(
                        "it ends within a window of processor {cpu}: {rest} of its {length} bytes are missing"
                    )
                }
            };
            self.damaged(what);
        }
        self.skipped += (self.filled - self.at) as u64;
        self.at = self.filled;
        self.left = 0;
        Step::Gap { all: false }
    }

    fn lose_track(&mut self, what: String) -> Step {
        self.lost_track = Some(self.position() + self.left);
        self.left = 0;
        self.damaged(what);
        Step::Again
    }

    /// Skips bytes up to a valid sequence of windows.
    fn find_window(&mut self, expected: u64) -> Step {
        if self.want(LOOK_AHEAD) {
            return Step::Pause;
        }
        let bytes = &self.buffer[self.at..self.filled];
        let first = Header(super::record::WINDOW_HEADER).0.to_le_bytes();
        let candidates = bytes.len().saturating_sub(if self.ended { WINDOW - 1 } else { LOOK_AHEAD - 1 });
        let found = (0..candidates).find(|&at| {
            bytes[at] == first[0]
                && bytes[at..].starts_with(&first)
                && matches!(sequence(&bytes[at..], RECORDS_AHEAD), Sequence::Sound { .. })
        });
        let skipped = found.unwrap_or(if self.ended { bytes.len() } else { candidates });
        self.at += skipped;
        self.skipped += skipped as u64;
        match found {
            Some(_) => {
                self.lost_track = None;
                Step::Gap { all: self.position() != expected }
            }
            None if self.ended => {
                self.lost_track = None;
                Step::Gap { all: true }
            }
            None => Step::Again,
        }
    }

    /// Reads until this number of bytes is available, or the recording ends. Returns true if the stream would block.
    fn want(&mut self, bytes: usize) -> bool {
        if self.filled - self.at >= bytes || self.ended {
            return false;
        }
        self.buffer.copy_within(self.at..self.filled, 0);
        self.before += self.at as u64;
        self.filled -= self.at;
        self.at = 0;
        while self.filled < bytes && !self.ended {
            match self.reader.read(&mut self.buffer[self.filled..]) {
                Ok(0) => self.ended = true,
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) => {
                    self.ended = true;
                    self.damaged_at(self.before + self.filled as u64, unreadable(&error));
                }
            }
        }
        false
    }

    /// Tests whether the stream ended because of an error, and notes the damage.
    fn note_failure(&mut self) -> bool {
        let failure = self.failure.take();
        if let Some(error) = &failure {
            self.damaged_at(self.before + self.filled as u64, unreadable(error));
        }
        failure.is_some()
    }

    #[cold]
    fn damaged(&mut self, what: String) {
        self.damaged_at(self.position(), what);
    }

    fn damaged_at(&mut self, offset: u64, what: String) {
        self.broken += 1;
        self.damage.get_or_insert(Damage { offset, what });
    }
}

fn unreadable(error: &std::io::Error) -> String {
    format!("it cannot be read further ({error})")
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
