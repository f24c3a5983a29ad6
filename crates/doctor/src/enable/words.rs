//! Changes words of a kernel's command line in place.

use std::ops::Range;

/// The removal, addition or replacement of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WordChange {
    /// The present word; `None` for an addition.
    pub(super) old: Option<String>,
    /// The new word; `None` for a removal.
    pub(super) new: Option<String>,
}

impl WordChange {
    pub(super) fn add(word: impl Into<String>) -> Self {
        Self { old: None, new: Some(word.into()) }
    }
}

/// The words of a line: separated by blanks, except inside double quotes (lib/cmdline.c, `next_arg`).
pub(super) fn words(line: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let (mut begin, mut quoted) = (None, false);
    for (at, character) in line.char_indices() {
        if character == '"' {
            quoted = !quoted;
        }
        if character.is_whitespace() && !quoted {
            found.extend(begin.take().map(|begin| begin..at));
        } else if begin.is_none() {
            begin = Some(at);
        }
    }
    found.extend(begin.map(|begin| begin..line.len()));
    found
}

pub(super) fn has(line: &str, word: &str) -> bool {
    words(line).into_iter().any(|range| &line[range] == word)
}

/// The line with the changes; all other bytes are unchanged. A word is added at the end, unless the line
/// already contains it.
pub(super) fn changed(line: &str, changes: &[WordChange]) -> String {
    changes.iter().fold(line.to_owned(), |line, change| one(&line, change))
}

fn one(line: &str, change: &WordChange) -> String {
    let mut line = line.to_owned();
    let mut placed = change.new.as_deref().is_none_or(|new| has(&line, new));
    if let Some(old) = &change.old {
        // Start at the end, so that the ranges before a change stay valid.
        for range in
            words(&line).into_iter().rev().filter(|range| &line[range.clone()] == old).collect::<Vec<_>>()
        {
            match &change.new {
                Some(new) if !placed => {
                    line.replace_range(range, new);
                    placed = true;
                }
                _ => line.replace_range(with_blank(&line, range), ""),
            }
        }
    }
    if let (Some(new), false) = (&change.new, placed) {
        // Words after `--` are for init.
        let end =
            words(&line).into_iter().find(|range| &line[range.clone()] == "--").map(|range| range.start);
        match end {
            Some(at) => line.insert_str(at, &format!("{new} ")),
            None => {
                let end = line.trim_end().len();
                let blank = if end == 0 { "" } else { " " };
                line.insert_str(end, &format!("{blank}{new}"));
            }
        }
    }
    line
}

/// The arguments of a text of several lines, as one line. `part` gives the end of a line that has arguments, by the line's
/// number from 0.
pub(super) fn in_lines(text: &str, part: impl Fn(usize, &str) -> Option<&str>) -> String {
    let parts = text.lines().enumerate().filter_map(|(number, line)| part(number, line));
    parts.map(str::trim).collect::<Vec<_>>().join(" ")
}

/// The text with the changes in the arguments of [`in_lines`]; all other bytes are unchanged. A word is added to the last of
/// them, or to a new line that begins with `start` if there are none.
pub(super) fn changed_in_lines(
    text: &str,
    start: &str,
    part: impl Fn(usize, &str) -> Option<&str>,
    changes: &[WordChange],
) -> String {
    let mut whole = text.to_owned();
    for change in changes {
        let mut new = change.new.clone().filter(|new| !has(&in_lines(&whole, &part), new));
        if new.is_some() && whole.lines().enumerate().all(|(at, line)| part(at, line).is_none()) {
            let end = if whole.is_empty() || whole.ends_with('\n') { "" } else { "\n" };
            whole = format!("{whole}{end}{start}\n");
        }
        let parts = whole.lines().enumerate().filter_map(|(at, line)| Some((at, part(at, line)?)));
        let parts: Vec<_> = parts.collect();
        // Words after `--` are for init.
        let before_init = parts.iter().find(|(_, part)| has(part, "--"));
        let last = || parts.iter().rfind(|(_, part)| !part.trim().is_empty()).or(parts.last());
        let target = before_init.or_else(last).map(|(at, _)| *at);
        let lines = whole.split_inclusive('\n').enumerate().map(|(at, line)| {
            let Some(part) = part(at, line) else { return line.to_owned() };
            let has_old = change.old.as_deref().is_some_and(|old| has(part, old));
            let new = if has_old || target == Some(at) { new.take() } else { None };
            let before = &line[..line.len() - part.len()];
            before.to_owned() + &changed(part, &[WordChange { old: change.old.clone(), new }])
        });
        whole = lines.collect();
    }
    whole
}

/// The word with one adjacent blank, so that no double blank remains.
fn with_blank(line: &str, range: Range<usize>) -> Range<usize> {
    if line[..range.start].ends_with(' ') {
        range.start - 1..range.end
    } else if line[range.end..].starts_with(' ') {
        range.start..range.end + 1
    } else {
        range
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn change(old: Option<&str>, new: Option<&str>) -> WordChange {
        WordChange { old: old.map(str::to_owned), new: new.map(str::to_owned) }
    }

    #[test]
    fn only_the_word_changes() {
        for (line, old, new, expected) in [
            ("quiet splash", None, Some("a=1"), "quiet splash a=1"),
            ("", None, Some("a=1"), "a=1"),
            ("quiet  a=0 ro", Some("a=0"), Some("a=1"), "quiet  a=1 ro"),
            ("quiet  a=0 ro", Some("a=0"), None, "quiet  ro"),
            ("a=0", Some("a=0"), None, ""),
            ("a=0 ro a=0", Some("a=0"), Some("a=1"), "ro a=1"),
            ("a=00 b", Some("a=0"), None, "a=00 b"),
            ("x=\"b c\" b", Some("b"), None, "x=\"b c\""),
            ("root=x\n", None, Some("a=1"), "root=x a=1\n"),
            ("ro -- single", None, Some("a=1"), "ro a=1 -- single"),
            ("ro a=1", None, Some("a=1"), "ro a=1"),
        ] {
            assert_eq!(changed(line, &[change(old, new)]), expected, "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn a_change_made_twice_is_the_change(line in "[ab=\" \n-]{0,30}", old in "[ab=]{1,3}", new in "[ab=]{1,3}") {
            for change in [change(Some(&old), Some(&new)), change(None, Some(&new)), change(Some(&old), None)] {
                let once = changed(&line, std::slice::from_ref(&change));
                // Without unclosed quotes, which would include all following words.
                if line.matches('"').count() % 2 == 0 && old != new {
                    prop_assert_eq!(changed(&once, std::slice::from_ref(&change)), once);
                }
            }
        }
    }
}
