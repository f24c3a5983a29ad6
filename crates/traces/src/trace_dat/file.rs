//! The bytes of a `trace.dat`, at any offset.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;

use crate::Error;
pub(super) use crate::fields::{Fields, Flaw};

/// The next step if the first part of a file is invalid.
const AGAIN: &str = "copy the file once more, or record again";

/// The open recording.
pub(super) struct Recorded {
    pub(super) name: String,
    pub(super) file: File,
    /// The length in bytes.
    pub(super) length: u64,
}

impl Recorded {
    /// Fills `buffer` from `offset` on, as far as the file reaches.
    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], offset.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(length) => filled += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Reads numbers and texts from `offset` on.
    pub(super) fn fields(&self, offset: u64) -> Fields<impl Read> {
        Fields::new(BufReader::new(From { recorded: self, at: offset }), offset)
    }
}

struct From<'a> {
    recorded: &'a Recorded,
    at: u64,
}

impl Read for From<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.recorded.file.read_at(buffer, self.at)?;
        self.at = self.at.saturating_add(length as u64);
        Ok(length)
    }
}

impl Flaw {
    /// Converts it to an error, if nothing can be read without the part.
    pub(super) fn error(self, recorded: &Recorded) -> Error {
        Error::Header { name: recorded.name.clone(), what: self.what, offset: self.offset, next: AGAIN }
    }
}
