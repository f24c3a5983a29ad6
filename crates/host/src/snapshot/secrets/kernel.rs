//! Arguments of kernels and hypervisors, and of their modules.

use super::kept;
use super::{Count, MARK};

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
fn words(text: &str) -> Vec<&str> {
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

/// Cleans a file of modprobe.d.
pub(super) fn modprobe(text: &str, count: &mut Count<'_>) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("options"), Some(module)) => {
                let rest_at = line.find(module).map_or(line.len(), |at| at + module.len());
                cleaned.push_str(&line[..rest_at]);
                let words = line[rest_at..].split_inclusive(char::is_whitespace);
                for word in words {
                    let (plain, end) = word.split_at(word.trim_end().len());
                    match plain.split_once('=') {
                        Some((name, value)) if !kept::parameter(module, value) && value != MARK => {
                            count(name);
                            cleaned.push_str(&format!("{name}={MARK}"));
                        }
                        _ => cleaned.push_str(plain),
                    }
                    cleaned.push_str(end);
                }
            }
            // A command may contain anything. Only its presence matters.
            (Some(word @ ("install" | "remove")), Some(module)) => {
                let command = words.collect::<Vec<_>>().join(" ");
                let known =
                    ["/bin/true", "/bin/false", "/usr/bin/true", "/usr/bin/false", "true", "false", MARK];
                if command.is_empty() || known.contains(&&command[..]) {
                    cleaned.push_str(line);
                } else {
                    count(word);
                    cleaned.push_str(&format!("{word} {module} {MARK}\n"));
                }
            }
            _ => cleaned.push_str(line),
        }
    }
    cleaned
}
