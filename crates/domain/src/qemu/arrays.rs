//! Shell arrays: `args=( -m 4G ); args+=( -smp 4 ); qemu-system-x86_64 "${args[@]}"`.

use super::argument::Argument;
use super::words::{Token, Words};

/// The largest number of arrays to look up for a command: each takes a pass through the text.
const LIMIT: usize = 16;

/// The arguments, with each array replaced by its elements.
pub(super) fn expanded(arguments: Vec<Argument>, bytes: &[u8]) -> Vec<Argument> {
    if !arguments.iter().any(|argument| name(&argument.text).is_some()) {
        return arguments;
    }
    let mut lookups = 0;
    let mut found = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let elements = match name(&argument.text) {
            Some(name) if lookups < LIMIT => {
                lookups += 1;
                elements(name, bytes)
            }
            _ => Vec::new(),
        };
        if elements.is_empty() {
            found.push(argument);
        } else {
            found.extend(elements);
        }
    }
    found
}

/// The name in `${name[@]}`.
fn name(argument: &str) -> Option<&str> {
    let name = argument.strip_prefix("${")?.strip_suffix("[@]}")?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (!name.is_empty() && name.len() < 64 && name.bytes().all(fits)).then_some(name)
}

/// The elements that the text adds to an array.
fn elements(name: &str, bytes: &[u8]) -> Vec<Argument> {
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let end =
            bytes[at..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |length| at + length + 1);
        let blanks = bytes[at..end].len() - bytes[at..end].trim_ascii_start().len();
        let rest = bytes[at + blanks..end].strip_prefix(name.as_bytes()).unwrap_or_default();
        let adds = rest.starts_with(b"+=(");
        if adds || rest.starts_with(b"=(") {
            let mut words = Words::new(bytes, at + blanks + name.len() + if adds { 3 } else { 2 }, line);
            let mut elements = Vec::new();
            let closed = loop {
                match words.next() {
                    Some(Token::Word(word)) => elements.push(word),
                    Some(Token::LineEnd) => {}
                    Some(Token::Operator(byte)) => break byte == b')',
                    Some(Token::Unclosed { .. }) | None => break false,
                }
            };
            if closed {
                if !adds {
                    found.clear();
                }
                found.append(&mut elements);
            }
            (at, line) = (words.at.max(end), words.line.max(line + 1));
            // Skip the rest of the array's last line: no other array starts there.
            if let Some(length) = bytes[at..].iter().position(|&byte| byte == b'\n').filter(|_| at > end) {
                at += length + 1;
                line += 1;
            }
        } else {
            (at, line) = (end, line + 1);
        }
    }
    found
}
