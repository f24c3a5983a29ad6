//! An argument of a command line: its value, and the bytes of the text for each part of it.

use crate::Place;
use std::ops::Range;

/// The quoting of an argument's byte in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quote {
    /// Literal: the arguments of a process, or a line that is one argument.
    Plain,
    /// In a shell, outside of quotation marks.
    Bare,
    /// Between `'`.
    Single,
    /// Between `"`.
    Double,
    /// Between `$'` and `'`.
    Ansi,
}

impl Quote {
    fn opening(self) -> &'static str {
        match self {
            Self::Plain | Self::Bare => "",
            Self::Single => "'",
            Self::Double => "\"",
            Self::Ansi => "$'",
        }
    }

    fn closing(self) -> &'static str {
        match self {
            Self::Plain | Self::Bare => "",
            Self::Single | Self::Ansi => "'",
            Self::Double => "\"",
        }
    }

    /// Tests whether a shell interprets the character.
    fn escapes(self, character: char) -> bool {
        match self {
            Self::Plain => false,
            Self::Bare => !(character.is_ascii_alphanumeric() || "-_=,./:+@%".contains(character)),
            Self::Single => character == '\'',
            Self::Double => "\"\\$`".contains(character),
            Self::Ansi => "'\\".contains(character),
        }
    }

    /// A text quoted within these quotation marks.
    fn write(self, text: &str) -> String {
        let mut written = String::with_capacity(text.len());
        for character in text.chars() {
            match (self, character) {
                (Self::Single, '\'') => written.push_str("'\\''"),
                _ if self.escapes(character) => written.extend(['\\', character]),
                _ => written.push(character),
            }
        }
        written
    }
}

/// A run of an argument's bytes with one quoting.
#[derive(Debug, Clone)]
struct Segment {
    /// Its range in the argument's value.
    said: Range<usize>,
    /// Its range in the text. If both ranges have the same length, their bytes correspond one to one;
    /// otherwise only the ranges as a whole do.
    written: Range<usize>,
    quote: Quote,
}

impl Segment {
    fn byte(&self, at: usize) -> Range<usize> {
        if self.said.len() == self.written.len() {
            let start = self.written.start + (at - self.said.start);
            start..start + 1
        } else {
            self.written.clone()
        }
    }
}

/// One argument.
#[derive(Debug, Clone, Default)]
pub(super) struct Argument {
    /// Its value. Bytes that are not UTF-8 are U+FFFD here.
    pub(super) text: String,
    /// Its range in the text, with quotation marks.
    pub(super) written: Range<usize>,
    /// Its line, from 1.
    pub(super) line: usize,
    segments: Vec<Segment>,
}

impl Argument {
    /// An argument that begins at a byte of the text.
    pub(super) fn new(start: usize, line: usize) -> Self {
        Self { text: String::new(), written: start..start, line, segments: Vec::new() }
    }

    /// Appends bytes that are the same in the text and in the value.
    pub(super) fn take(&mut self, bytes: &[u8], mut from: usize, quote: Quote) {
        for chunk in bytes.utf8_chunks() {
            let valid = chunk.valid();
            self.push(valid, from..from + valid.len(), quote);
            from += valid.len();
            if !chunk.invalid().is_empty() {
                self.push("\u{fffd}", from..from + chunk.invalid().len(), quote);
                from += chunk.invalid().len();
            }
        }
    }

    /// Appends a part of the value that is written differently in the text.
    pub(super) fn push(&mut self, said: &str, written: Range<usize>, quote: Quote) {
        self.written.end = self.written.end.max(written.end);
        if said.is_empty() {
            return;
        }
        let start = self.text.len();
        self.text.push_str(said);
        let own = said.len() == written.len();
        if let Some(last) = self.segments.last_mut() {
            let joins = own && last.said.len() == last.written.len();
            if joins && last.quote == quote && last.written.end == written.start {
                last.said.end = self.text.len();
                last.written.end = written.end;
                return;
            }
        }
        self.segments.push(Segment { said: start..self.text.len(), written, quote });
    }

    /// Drops the part before a byte of the value.
    pub(super) fn without_first(mut self, bytes: usize) -> Self {
        if let Some(segment) = self.segment(bytes) {
            self.written.start = segment.byte(bytes).start;
        }
        self.segments.retain(|segment| segment.said.end > bytes);
        for segment in &mut self.segments {
            if segment.said.len() == segment.written.len() && segment.said.start < bytes {
                segment.written.start += bytes - segment.said.start;
            }
            segment.said = segment.said.start.saturating_sub(bytes)..segment.said.end - bytes;
        }
        self.text.drain(..bytes);
        self
    }

    fn segment(&self, byte: usize) -> Option<&Segment> {
        let position = self.segments.partition_point(|segment| segment.said.end <= byte);
        self.segments.get(position)
    }

    /// The range of the text for a part of the value, and the quoting of its first and its last byte.
    fn part(&self, said: Range<usize>) -> Option<(Range<usize>, Quote, Quote)> {
        if said.is_empty() {
            // An insertion gets the quoting of the byte before it.
            let (byte, after) = match said.start.checked_sub(1) {
                Some(before) => (before, true),
                None => (0, false),
            };
            let segment = self.segment(byte)?;
            let written = segment.byte(byte);
            let at = if after { written.end } else { written.start };
            return Some((at..at, segment.quote, segment.quote));
        }
        let (first, last) = (self.segment(said.start)?, self.segment(said.end - 1)?);
        Some((first.byte(said.start).start..last.byte(said.end - 1).end, first.quote, last.quote))
    }

    /// The replacement in the text that changes a part of the value.
    pub(super) fn replacement(&self, said: Range<usize>, new: &str) -> (Range<usize>, String) {
        let Some((written, first, last)) = self.part(said) else {
            return (self.written.clone(), quoted(new));
        };
        let mut text = first.write(new);
        if first != last {
            text.push_str(first.closing());
            text.push_str(last.opening());
        }
        (written, text)
    }

    /// The place of a part of the argument.
    pub(super) fn place(&self, said: Range<usize>, bytes: &[u8]) -> Place {
        let written = match self.part(said) {
            // Close a quotation mark that the part opens.
            Some((written, first, last)) if first != last => {
                let closing = last.closing();
                let closed =
                    bytes.get(written.end..).is_some_and(|rest| rest.starts_with(closing.as_bytes()));
                written.start..written.end + if closed { closing.len() } else { 0 }
            }
            Some((written, _, _)) => written,
            None => self.written.clone(),
        };
        place(written, self.line, bytes)
    }
}

/// The place of a range of the text.
pub(super) fn place(written: Range<usize>, line: usize, bytes: &[u8]) -> Place {
    Place {
        text: shown(bytes.get(written.clone()).unwrap_or_default()),
        start: written.start,
        end: written.end,
        line,
    }
}

/// The largest number of characters of a place to show.
const SHOWN: usize = 120;

fn shown(bytes: &[u8]) -> String {
    // Enough bytes: a character has at most four.
    let head = &bytes[..bytes.len().min(4 * SHOWN + 4)];
    let text = String::from_utf8_lossy(head).replace('\0', " ");
    // Omit the shell's line continuations.
    let text = text.replace("\\\r\n", " ").replace("\\\n", " ");
    let mut words = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = words.char_indices().nth(SHOWN) {
        words.truncate(end);
        words.push('…');
    } else if head.len() < bytes.len() {
        words.push('…');
    }
    words
}

/// A new argument for a shell, in single quotation marks if it needs any.
pub(super) fn quoted(text: &str) -> String {
    if !text.is_empty() && !text.chars().any(|character| Quote::Bare.escapes(character)) {
        return text.to_owned();
    }
    format!("'{}'", Quote::Single.write(text))
}
