//! One argument of a command line: what it says, and which bytes of the text say each part of it.

use crate::Place;
use std::ops::Range;

/// How a byte of an argument is written in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quote {
    /// As it is: the arguments of a process, or a line that is one argument.
    Plain,
    /// For a shell, outside of quotation marks.
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

    /// Whether a shell takes the character for itself.
    fn escapes(self, character: char) -> bool {
        match self {
            Self::Plain => false,
            Self::Bare => !(character.is_ascii_alphanumeric() || "-_=,./:+@%".contains(character)),
            Self::Single => character == '\'',
            Self::Double => "\"\\$`".contains(character),
            Self::Ansi => "'\\".contains(character),
        }
    }

    /// A text as it is written within these quotation marks.
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

/// A run of an argument's bytes that is written in one way.
#[derive(Debug, Clone)]
struct Segment {
    /// Its first byte in the argument, and the byte after its last.
    said: Range<usize>,
    /// The bytes of the text that say it. As many as `said` has: then each says its own. Otherwise all say it together.
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
    /// What it says. Bytes that are no UTF-8 are U+FFFD here.
    pub(super) text: String,
    /// The bytes of the text that it has, quotation marks included.
    pub(super) written: Range<usize>,
    /// The line it begins in, from 1.
    pub(super) line: usize,
    segments: Vec<Segment>,
}

impl Argument {
    /// An argument that begins at a byte of the text.
    pub(super) fn new(start: usize, line: usize) -> Self {
        Self { text: String::new(), written: start..start, line, segments: Vec::new() }
    }

    /// Takes bytes that say themselves.
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

    /// Takes something that is written otherwise than it is said.
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

    /// Drops what comes before a byte of what it says.
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

    /// The bytes of the text that say a part of the argument, and how its first and its last byte are quoted.
    fn part(&self, said: Range<usize>) -> Option<(Range<usize>, Quote, Quote)> {
        if said.is_empty() {
            // What is put in joins what stands before it.
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

    /// What to write where, so that a part of the argument says something else.
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
            // A quotation mark that is opened in the part is shown closed.
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

/// The place of some bytes of a text.
pub(super) fn place(written: Range<usize>, line: usize, bytes: &[u8]) -> Place {
    Place {
        text: shown(bytes.get(written.clone()).unwrap_or_default()),
        start: written.start,
        end: written.end,
        line,
    }
}

/// The most characters of a place that are shown.
const SHOWN: usize = 120;

fn shown(bytes: &[u8]) -> String {
    // Four bytes are the most that a character has.
    let head = &bytes[..bytes.len().min(4 * SHOWN + 4)];
    let text = String::from_utf8_lossy(head).replace('\0', " ");
    // A shell's continuation says nothing.
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

/// A new argument for a shell, in single quotation marks where it needs any.
pub(super) fn quoted(text: &str) -> String {
    if !text.is_empty() && !text.chars().any(|character| Quote::Bare.escapes(character)) {
        return text.to_owned();
    }
    format!("'{}'", Quote::Single.write(text))
}
