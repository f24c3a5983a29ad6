//! Reads lines of a stream of any length in constant memory.

use std::io::{self, Read};

/// Longer than any line of a trace; longer lines are skipped.
const LONGEST: usize = 256 << 10;

/// A line without its line end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) text: &'a [u8],
    /// The offset in the stream.
    pub(super) offset: u64,
    /// True if it ended with a line end: the last line of a stream may be truncated.
    pub(super) ended: bool,
}

/// Reads lines.
pub(super) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// The part of `buffer` that was not returned yet.
    start: usize,
    end: usize,
    /// The offset in the stream of `start`.
    offset: u64,
    at_end: bool,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, buffer: vec![0; LONGEST], start: 0, end: 0, offset: 0, at_end: false }
    }

    /// The number of bytes that were returned.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next line; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut searched = 0;
        let mut too_long = false;
        loop {
            let waiting = &self.buffer[self.start..self.end];
            if let Some(found) = waiting[searched..].iter().position(|&byte| byte == b'\n') {
                let length = searched + found;
                let (from, offset) = (self.start, self.offset);
                self.pass(length + 1);
                let text = if too_long { &[] } else { &self.buffer[from..from + length] };
                let text = text.strip_suffix(b"\r").unwrap_or(text);
                return Ok(Some(Line { text, offset, ended: true }));
            }
            if self.at_end {
                let (from, offset, length) = (self.start, self.offset, waiting.len());
                self.pass(length);
                let text = if too_long { &[] } else { &self.buffer[from..from + length] };
                return Ok((length > 0).then_some(Line { text, offset, ended: false }));
            }
            searched = waiting.len();
            if searched == self.buffer.len() {
                self.pass(searched);
                (searched, too_long) = (0, true);
            }
            self.fill()?;
        }
    }

    fn pass(&mut self, length: usize) {
        self.start += length;
        self.offset += length as u64;
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(length) => {
                    self.end += length;
                    self.at_end = length == 0;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(reader: impl Read) -> Vec<(Vec<u8>, u64, bool)> {
        let mut lines = Lines::new(reader);
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            found.push((line.text.to_vec(), line.offset, line.ended));
        }
        found
    }

    /// Returns a few bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.1.min(self.0.len()).min(buffer.len());
            buffer[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    #[test]
    fn a_line_that_the_stream_ends_in_is_marked() {
        let expected = [(b"ab".to_vec(), 0, true), (Vec::new(), 4, true), (b"c".to_vec(), 5, false)];
        assert_eq!(all(&b"ab\r\n\nc"[..]), expected);
        assert_eq!(all(&b""[..]), []);
        assert_eq!(all(&b"a\n"[..]), [(b"a".to_vec(), 0, true)]);
    }

    #[test]
    fn lines_without_end_take_no_memory() {
        let mut text = vec![b'x'; 3 * LONGEST];
        text.extend(b"\nnext\n");
        let found = all(&text[..]);
        assert_eq!(found.len(), 2);
        assert!(found[0].0.is_empty());
        assert_eq!(found[1], (b"next".to_vec(), 3 * LONGEST as u64 + 1, true));
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_arrive(text in "[ab\n]{0,40}", step in 1..9usize) {
            let expected: Vec<_> = text.split_inclusive('\n').map(|line| line.trim_end_matches('\n').as_bytes().to_vec()).collect();
            let found: Vec<_> = all(Slow(text.as_bytes(), step)).into_iter().map(|line| line.0).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
