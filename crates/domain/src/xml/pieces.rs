//! A text that is changed repeatedly, with a record of the original bytes.

use crate::Edit;
use std::ops::Range;

/// A part of the current text.
#[derive(Debug, Clone)]
enum Piece {
    /// A range of the original text.
    Old(Range<usize>),
    New(String),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Old(range) => range.len(),
            Self::New(text) => text.len(),
        }
    }

    /// Both sides of a split.
    fn cut(self, at: usize) -> [Self; 2] {
        match self {
            Self::Old(range) => {
                let middle = range.start + at;
                [Self::Old(range.start..middle), Self::Old(middle..range.end)]
            }
            Self::New(text) => [Self::New(text[..at].to_owned()), Self::New(text[at..].to_owned())],
        }
    }
}

/// The text as its pieces.
#[derive(Debug, Clone)]
pub(crate) struct Pieces {
    pieces: Vec<Piece>,
}

impl Pieces {
    /// An unchanged text with this many bytes.
    pub(crate) fn of(length: usize) -> Self {
        Self { pieces: vec![Piece::Old(0..length)] }
    }

    /// Replaces a part of the current text.
    pub(crate) fn replace(&mut self, part: &Range<usize>, new: &str) {
        let first = self.boundary(part.start);
        let last = self.boundary(part.end);
        let new = (!new.is_empty()).then(|| Piece::New(new.to_owned()));
        self.pieces.splice(first..last, new);
    }

    /// The index of the piece that begins at a byte of the current text, split there if necessary.
    fn boundary(&mut self, at: usize) -> usize {
        let mut start = 0;
        for number in 0..self.pieces.len() {
            let length = self.pieces[number].len();
            if at == start {
                return number;
            }
            if at < start + length {
                let halves = self.pieces[number].clone().cut(at - start);
                self.pieces.splice(number..=number, halves);
                return number + 1;
            }
            start += length;
        }
        self.pieces.len()
    }

    /// Tests whether nothing was replaced.
    pub(crate) fn is_untouched(&self) -> bool {
        matches!(self.pieces[..], [Piece::Old(_)] | [])
    }

    /// The current position of a byte of the original text; `None` if it was removed.
    pub(crate) fn now(&self, old: usize) -> Option<usize> {
        let mut start = 0;
        for piece in &self.pieces {
            match piece {
                Piece::Old(range) if range.contains(&old) => return Some(start + old - range.start),
                _ => start += piece.len(),
            }
        }
        None
    }

    /// All changes together, as ranges of the original text.
    pub(crate) fn edits(&self, old: &str) -> Vec<Edit> {
        let mut edits = Vec::new();
        let mut new = String::new();
        let mut reached = 0;
        let end = [Piece::Old(old.len()..old.len())];
        for piece in self.pieces.iter().chain(&end) {
            match piece {
                Piece::New(text) => new.push_str(text),
                Piece::Old(range) => {
                    if range.start != reached || !new.is_empty() {
                        edits.extend(smallest(old, reached..range.start, &new));
                        new.clear();
                    }
                    reached = range.end;
                }
            }
        }
        edits
    }
}

/// The edit without unchanged bytes at its ends; `None` if nothing changed.
fn smallest(old: &str, part: Range<usize>, new: &str) -> Option<Edit> {
    (old[part.clone()] != *new).then(|| Edit {
        start: part.start,
        end: part.end,
        new: new.as_bytes().to_vec(),
    })
}
