//! A text with replacements, each as a range of the original text.

use crate::Edit;
use std::ops::Range;

/// A text during changes.
#[derive(Debug, Clone)]
pub(super) struct Draft<'a> {
    original: &'a [u8],
    /// In the order of the text, without overlaps.
    edits: Vec<Edit>,
}

impl<'a> Draft<'a> {
    /// An unchanged text.
    pub(super) const fn new(original: &'a [u8]) -> Self {
        Self { original, edits: Vec::new() }
    }

    /// The current text.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.original.len());
        let mut at = 0;
        for edit in &self.edits {
            bytes.extend_from_slice(&self.original[at..edit.start]);
            bytes.extend_from_slice(&edit.new);
            at = edit.end;
        }
        bytes.extend_from_slice(&self.original[at..]);
        bytes
    }

    /// Replaces parts of the current text. The parts must not overlap; insertions at the same place keep
    /// their order.
    pub(super) fn replace(&mut self, mut parts: Vec<(Range<usize>, String)>) {
        parts.sort_by_key(|(range, _)| (range.start, range.end));
        // Start at the end, because a replacement moves the text after it.
        for (range, new) in parts.into_iter().rev() {
            self.replace_one(range, new.as_bytes());
        }
    }

    fn replace_one(&mut self, range: Range<usize>, new: &[u8]) {
        let now = self.bytes();
        // The current places of the edits: each edit moves the text after it.
        let mut placed = Vec::new();
        let (mut grown, mut shrunk) = (0_usize, 0_usize);
        for edit in self.edits.drain(..) {
            let start = edit.start + grown - shrunk;
            let end = start + edit.new.len();
            grown += edit.new.len();
            shrunk += edit.end - edit.start;
            placed.push((start..end, edit));
        }
        let touches = |other: &Range<usize>| other.start <= range.end && range.start <= other.end;
        let touched: Vec<_> = placed.iter().filter(|(at, _)| touches(at)).cloned().collect();
        let before: Vec<_> =
            placed.iter().filter(|(at, _)| at.end < range.start).map(|(_, edit)| edit.clone()).collect();
        let after: Vec<_> =
            placed.iter().filter(|(at, _)| at.start > range.end).map(|(_, edit)| edit.clone()).collect();
        // The original position of a byte of the current text, after some edits.
        let original = |at: usize, edits: &[Edit]| {
            let grown: usize = edits.iter().map(|edit| edit.new.len()).sum();
            let shrunk: usize = edits.iter().map(|edit| edit.end - edit.start).sum();
            at + shrunk - grown
        };
        let start = touched.first().map_or(range.start, |(at, _)| at.start.min(range.start));
        let end = touched.last().map_or(range.end, |(at, _)| at.end.max(range.end));
        let mut behind = before.clone();
        behind.extend(touched.iter().map(|(_, edit)| edit.clone()));
        let whole = Edit {
            start: original(start, &before),
            end: original(end, &behind),
            new: [&now[start..range.start], new, &now[range.end..end]].concat(),
        };
        self.edits = before;
        if self.original[whole.start..whole.end] != whole.new {
            self.edits.push(whole);
        }
        self.edits.extend(after);
    }

    /// The replacements.
    pub(super) fn into_edits(self) -> Vec<Edit> {
        self.edits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn edits_amount_to_what_was_done(
            text in "[a-d]{0,20}",
            steps in proptest::collection::vec((0_usize..30, 0_usize..5, "[x-z]{0,4}"), 0..8),
        ) {
            let mut draft = Draft::new(text.as_bytes());
            let mut expected = text.clone();
            for (start, length, new) in steps {
                let start = start.min(expected.len());
                let end = (start + length).min(expected.len());
                expected.replace_range(start..end, &new);
                draft.replace(vec![(start..end, new)]);
                prop_assert_eq!(draft.bytes(), expected.as_bytes());
            }
            let edits = draft.into_edits();
            prop_assert!(edits.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", edits);
            let mut rebuilt = text.into_bytes();
            for edit in edits.iter().rev() {
                rebuilt.splice(edit.start..edit.end, edit.new.iter().copied());
            }
            prop_assert_eq!(rebuilt, expected.into_bytes());
        }
    }
}
