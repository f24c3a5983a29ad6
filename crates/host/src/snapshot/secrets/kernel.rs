//! Arguments of kernels and hypervisors, and of their modules.

use super::kept;
use super::{Count, MARK};
use crate::inspection::{ModprobeWord, modprobe_lines};
use std::ops::Range;

/// Cleans a command line of words separated by blanks. Words of the form `name=value` may contain secrets.
pub(super) fn clean(text: &str, count: &mut Count<'_>) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for word in words(text) {
        let (plain, end) = word.split_at(word.trim_end().len());
        let argument = match plain.strip_prefix('"') {
            Some(quoted) => quoted.strip_suffix('"').unwrap_or(quoted),
            None => plain,
        };
        match argument.split_once('=') {
            Some((name, value)) if !kept::argument(name, value.trim_matches('"')) && value != MARK => {
                count(name);
                cleaned.push_str(if kept::is_word(name) { name } else { MARK });
                cleaned.push('=');
                cleaned.push_str(MARK);
            }
            None if !kept::is_word(argument) && !argument.split(',').all(kept::is_word) => {
                count("argument");
                cleaned.push_str(MARK);
            }
            _ => cleaned.push_str(plain),
        }
        cleaned.push_str(end);
    }
    cleaned
}

/// Words with the blanks after them. Inside double quotes blanks are part of a word (lib/cmdline.c,
/// `next_arg`).
pub(super) fn words(text: &str) -> Vec<&str> {
    let (mut words, mut begin, mut quoted, mut ended) = (Vec::new(), 0, false, false);
    for (at, character) in text.char_indices() {
        if ended && !character.is_whitespace() {
            words.push(&text[begin..at]);
            (begin, ended) = (at, false);
        }
        quoted ^= character == '"';
        ended |= character.is_whitespace() && !quoted;
    }
    words.push(&text[begin..]);
    words
}

/// Cleans the kernel's messages, some of which repeat its command line.
pub(super) fn messages(text: &str, count: &mut Count<'_>) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let repeats = ["ommand line:", "ommand line parameters", "ommandline"];
        match repeats.iter().find_map(|words| line.find(words).map(|at| at + words.len())) {
            Some(at) => {
                cleaned.push_str(&line[..at]);
                cleaned.push_str(&clean(&line[at..], count));
            }
            None => cleaned.push_str(line),
        }
    }
    cleaned
}

/// Cleans a file of modprobe.d, by the lines and words that kmod sees in it.
pub(super) fn modprobe(text: &str, count: &mut Count<'_>) -> String {
    let (mut cleaned, mut end) = (String::with_capacity(text.len()), 0);
    for (_, words) in modprobe_lines(text.as_bytes()) {
        let [command, module, rest @ ..] = &words[..] else { continue };
        let replaced = match command.text.as_str() {
            "options" => parameters(&module.text, rest, count),
            "install" | "remove" => command_line(&command.text, rest, count).into_iter().collect(),
            _ => Vec::new(),
        };
        for (place, new) in replaced {
            cleaned.push_str(&text[end..place.start]);
            cleaned.push_str(&new);
            // Later lines keep their numbers.
            cleaned.push_str(&" \\\n".repeat(text[place.clone()].matches('\n').count()));
            end = place.end;
        }
    }
    cleaned.push_str(&text[end..]);
    cleaned
}

/// The words of an `options` line to replace.
fn parameters(module: &str, words: &[ModprobeWord], count: &mut Count<'_>) -> Vec<(Range<usize>, String)> {
    let (mut replaced, mut open) = (Vec::new(), None);
    let quoted = |open: Option<char>, one: char| match open {
        None => Some(one).filter(|one| ['"', '\''].contains(one)),
        Some(quote) => Some(quote).filter(|quote| *quote != one),
    };
    for word in words {
        // kmod splits lines at blanks, but the kernel joins the words of a value in double quotes again. People also use
        // single ones.
        let goes_on = open.is_some();
        open = word.text.chars().fold(open, quoted);
        let new = match word.text.split_once('=').filter(|_| !goes_on) {
            Some((name, value)) if kept::parameter(module, name, value) => continue,
            Some((name, _)) => {
                count(name);
                format!("{}={MARK}", if kept::is_word(name) { name } else { MARK })
            }
            None if !goes_on && kept::is_word(&word.text) => continue,
            None => {
                count("argument");
                MARK.to_owned()
            }
        };
        replaced.push((word.place.clone(), new));
    }
    replaced
}

/// The command of an `install` or `remove` line. It may contain anything, and only its presence matters.
fn command_line(what: &str, words: &[ModprobeWord], count: &mut Count<'_>) -> Option<(Range<usize>, String)> {
    const KNOWN: &[&str] =
        &["/bin/true", "/bin/false", "/usr/bin/true", "/usr/bin/false", "true", "false", MARK];
    let (first, last) = (words.first()?, words.last()?);
    if words.len() == 1 && KNOWN.contains(&first.text.as_str()) {
        return None;
    }
    count(what);
    Some((first.place.start..last.place.end, MARK.to_owned()))
}
