//! The arguments of a VM's process.

use super::kept;
use super::{Count, MARK, kernel};

/// Scans arguments; an argument may be the value of the previous one.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    /// The previous option; empty if there is none.
    option: String,
    begun: bool,
}

impl Arguments {
    /// Cleans a command line, whose arguments are separated by NULs.
    pub(super) fn clean(text: &str, count: &mut Count<'_>) -> String {
        let mut arguments = Self::default();
        text.split('\0').map(|one| arguments.next(one, count)).collect::<Vec<_>>().join("\0")
    }

    /// Cleans the next argument.
    pub(super) fn next(&mut self, argument: &str, count: &mut Count<'_>) -> String {
        if !std::mem::replace(&mut self.begun, true) && !argument.starts_with('-') {
            return if kept::is_word(argument) { argument.to_owned() } else { removed("program", count) };
        }
        if argument.is_empty() {
            return String::new();
        }
        if let Some(name) = argument.strip_prefix('-').filter(|name| !name.is_empty()) {
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (name, None),
            };
            self.option.clear();
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
            if name.len() > 64 || !name.bytes().all(is_name) {
                return removed("option", count);
            }
            self.option = format!("-{name}");
            return match value {
                None => argument.to_owned(),
                Some(value) => {
                    let option = std::mem::take(&mut self.option);
                    format!("-{name}={}", of_option(&option, value, count))
                }
            };
        }
        let option = std::mem::take(&mut self.option);
        of_option(&option, argument, count)
    }
}

fn removed(what: &str, count: &mut Count<'_>) -> String {
    count(what.trim_start_matches('-'));
    MARK.to_owned()
}

/// Cleans the value of an option.
fn of_option(option: &str, value: &str, count: &mut Count<'_>) -> String {
    if option == "-append" || option == "--cmdline" {
        return kernel::clean(value, count);
    }
    if value.starts_with('{') || value.starts_with('[') {
        return json(value, count).unwrap_or_else(|| removed(option, count));
    }
    let parts = parts(value);
    let cleaned = parts.iter().enumerate().map(|(place, part)| match part.split_once('=') {
        Some((name, value)) if kept::is_word(name) => match kept::property(name, value) {
            true => (*part).to_owned(),
            false => format!("{name}={}", removed(name, count)),
        },
        // Features of a CPU or a machine.
        None if ["-cpu", "-machine", "-M", "-sandbox"].contains(&option) && kept::is_word(part) => {
            (*part).to_owned()
        }
        None if place == 0 && kept::first_word(option, part) => (*part).to_owned(),
        None if kept::is_plain(option, part) || place > 0 && KNOWN_FLAGS.contains(part) => (*part).to_owned(),
        _ => removed(if option.is_empty() { "argument" } else { option }, count),
    });
    cleaned.collect::<Vec<_>>().join(",")
}

/// Switches without a value, from older command lines.
const KNOWN_FLAGS: &[&str] = &["server", "nowait", "nodelay", "share", "multifunction", "readonly", "strict"];

/// Splits a value at commas; a doubled comma is part of a value.
fn parts(value: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut at) = (Vec::new(), 0, 0);
    let bytes = value.as_bytes();
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b',', Some(b',')) => at += 2,
            (b',', _) => {
                parts.push(&value[begin..at]);
                at += 1;
                begin = at;
            }
            _ => at += 1,
        }
    }
    parts.push(&value[begin..]);
    parts
}

/// A JSON text with only the kept values; `None` if the text is not JSON.
pub(super) fn json(text: &str, count: &mut Count<'_>) -> Option<String> {
    let mut value: serde_json::Value = serde_json::from_str(text).ok()?;
    let mut found = false;
    clean_json(&mut value, "", &mut |what| {
        found = true;
        count(what);
    });
    // Return a text without secrets unchanged, byte for byte.
    if found { serde_json::to_string(&value).ok() } else { Some(text.to_owned()) }
}

fn clean_json(value: &mut serde_json::Value, name: &str, count: &mut Count<'_>) {
    use serde_json::Value;
    match value {
        Value::String(text) if !kept::property(name, text) && text != MARK => *text = removed(name, count),
        Value::Number(_) if kept::is_secret(name) => *value = Value::String(removed(name, count)),
        Value::Array(all) => all.iter_mut().for_each(|one| clean_json(one, name, count)),
        Value::Object(all) => {
            let odd = |name: &String| !kept::is_word(name);
            let odd: Vec<String> = all.keys().filter(|name| odd(name)).cloned().collect();
            for name in odd {
                all.remove(&name);
                count("name");
            }
            all.iter_mut().for_each(|(name, one)| clean_json(one, name, count));
        }
        _ => {}
    }
}
