//! Secrets in libvirt's definitions and states of VMs.

use super::command_line::Arguments;
use super::kept;
use super::{Count, MARK, kernel};

/// Scans a text once: tags with their attributes, and the text between them. Comments are removed.
pub(super) fn clean(text: &str, count: &mut Count<'_>) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let (mut rest, mut element, mut arguments) = (text, String::new(), Arguments::default());
    // libvirt's list of QEMU arguments does not start with the program, so skip it.
    let _ = arguments.next("qemu", count);
    while !rest.is_empty() {
        let (between, tag) = rest.split_at(rest.find('<').unwrap_or(rest.len()));
        push_text(&mut cleaned, &element, between, count);
        if tag.is_empty() {
            break;
        }
        if tag.starts_with("<!") || tag.starts_with("<?") && !tag.starts_with("<?xml ") {
            let end = if tag.starts_with("<!--") { "-->" } else { ">" };
            rest = tag.find(end).map_or("", |at| &tag[at + end.len()..]);
            // Do not count empty comments.
            if !tag.starts_with("<!---->") {
                count("comment");
            }
            continue;
        }
        let length = tag_length(tag);
        let (tag, after) = tag.split_at(length);
        rest = after;
        let name = tag[1..].trim_end_matches(['>', '/', '?']);
        let name = name.split(char::is_whitespace).next().unwrap_or_default();
        element = if tag.starts_with("</") || tag.ends_with("/>") { String::new() } else { name.to_owned() };
        push_tag(&mut cleaned, name, tag, &mut arguments, count);
    }
    cleaned
}

fn push_text(cleaned: &mut String, element: &str, text: &str, count: &mut Count<'_>) {
    let trimmed = text.trim();
    let before = text.len() - text.trim_start().len();
    if trimmed.is_empty() || trimmed == MARK {
        return cleaned.push_str(text);
    }
    cleaned.push_str(&text[..before]);
    if element == "cmdline" {
        cleaned.push_str(&kernel::clean(trimmed, count));
    } else if kept::text(element, trimmed) {
        cleaned.push_str(trimmed);
    } else {
        count(if element.is_empty() { "text" } else { element });
        cleaned.push_str(MARK);
    }
    cleaned.push_str(&text[before + trimmed.len()..]);
}

/// The length of a tag; a `>` inside quotes does not end it.
fn tag_length(tag: &str) -> usize {
    let mut quote = None;
    for (at, byte) in tag.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return at + 1,
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    tag.len()
}

fn push_tag(cleaned: &mut String, name: &str, tag: &str, arguments: &mut Arguments, count: &mut Count<'_>) {
    let mut rest = tag;
    while let Some(at) = rest.find('=') {
        let (before, after) = rest.split_at(at + 1);
        let attribute = before[..at].trim_end().rsplit(char::is_whitespace).next().unwrap_or_default();
        let blanks = after.len() - after.trim_start().len();
        let quote = after[blanks..].chars().next().filter(|one| ['"', '\''].contains(one));
        let begin = blanks + usize::from(quote.is_some());
        let end = match quote {
            Some(quote) => after[begin..].find(quote).map_or(after.len(), |at| begin + at),
            None => after.len(),
        };
        let value = &after[begin..end];
        cleaned.push_str(before);
        cleaned.push_str(&after[..begin]);
        cleaned.push_str(&of_attribute(name, attribute, value, arguments, count));
        rest = &after[end..];
        if let Some(quote) = quote.filter(|quote| rest.starts_with(*quote)) {
            cleaned.push(quote);
            rest = &rest[1..];
        }
    }
    cleaned.push_str(rest);
}

fn of_attribute(
    element: &str,
    attribute: &str,
    value: &str,
    arguments: &mut Arguments,
    count: &mut Count<'_>,
) -> String {
    let is_kept = match (element, attribute) {
        ("qemu:arg", "value") => return arguments.next(value, count),
        // Environment variables often contain secrets.
        ("qemu:env", "value") => value == MARK,
        ("?xml", _) => kept::is_word(value),
        _ => value == MARK || kept::attribute(attribute, value),
    };
    if is_kept {
        return value.to_owned();
    }
    count(attribute);
    MARK.to_owned()
}
