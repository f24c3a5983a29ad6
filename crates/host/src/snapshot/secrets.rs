//! Removes secrets from the files of a snapshot.
//!
//! In command lines, definitions of VMs, and arguments of kernels and modules, only values are kept that are
//! known to be configuration ([`kept`]), because future options may contain secrets. In the kernel's messages
//! and the output of programs, all values whose names sound like a secret are removed. Addresses of network
//! cards and names of VMs are kept: they identify VMs and devices.

mod command_line;
mod kept;
mod kernel;
mod xml;

use super::manifest::Removed;
use crate::root::{Kind, Tree};
use std::collections::BTreeMap;

/// The replacement of a secret.
const MARK: &str = "REMOVED";
/// A value is a secret if its name contains one of these parts, in lower case, between dots, dashes or
/// underscores.
const SECRET: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pass",
    "passwords",
    "pwd",
    "rootpw",
    "key",
    "apikey",
    "token",
    "secret",
    "credential",
    "credentials",
    "psk",
    "cookie",
    "auth",
    "authkey",
    "privatekey",
];
/// Switches, which are not secrets: `-vnc :1,password=on`.
const SWITCHES: &[&str] = &["on", "off", "yes", "no", "true", "false", "none", "auto"];

/// Removes the secrets from all files that may contain any.
pub(super) fn remove(tree: &mut Tree) -> Vec<Removed> {
    let mut removed = Vec::new();
    for (path, node) in tree.nodes_mut() {
        let Kind::File(bytes) = &mut node.kind else { continue };
        if !can_hold(path) {
            continue;
        }
        let mut found: BTreeMap<String, u32> = BTreeMap::new();
        let mut count = |what: &str| *found.entry(what.to_owned()).or_default() += 1;
        let text = String::from_utf8_lossy(bytes);
        let cleaned = cleaned(path, &text, &mut count);
        if !found.is_empty() {
            *bytes = cleaned.into_bytes();
            removed.extend(found.into_iter().map(|(what, count)| Removed {
                path: path.to_owned(),
                what,
                count,
            }));
        }
    }
    removed
}

/// The kernel's command line without its secrets.
pub(super) fn without_those_of_kernel(line: &str) -> String {
    cleaned("/proc/cmdline", line, &mut |_: &str| ())
}

/// Tests whether two command lines of kernels are alike where neither lacks a secret. Versions of this program differ in what
/// they keep, so one line can have an argument that was removed from the other.
pub(super) fn are_alike(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(kernel::words);
    let lacks = |cleaned: &str, whole: &str| {
        cleaned.split_once(MARK).is_some_and(|(before, after)| {
            whole.strip_prefix(before).is_some_and(|rest| rest.ends_with(after))
        })
    };
    one.len() == other.len()
        && one.iter().zip(&other).all(|(one, other)| {
            let [one, other] = [one, other].map(|word| word.trim_end());
            one == other || lacks(one, other) || lacks(other, one)
        })
}

/// Counts a removed secret of this kind.
type Count<'a> = dyn FnMut(&str) + 'a;

fn cleaned(path: &str, text: &str, count: &mut Count<'_>) -> String {
    let begins = |folder: &str| path.starts_with(folder);
    let kept = if path == "/proc/cmdline" {
        kernel::clean(text, count)
    } else if path.ends_with("/cmdline") {
        return command_line::Arguments::clean(text, count);
    } else if path.contains("/modprobe.d/") {
        kernel::modprobe(text, count)
    } else if path.ends_with(".xml") {
        return xml::clean(text, count);
    } else if begins("/exitless/commands/") && text.trim_start().starts_with(['{', '[']) {
        return command_line::json(text, count).unwrap_or_else(|| MARK.to_owned());
    } else {
        kernel::messages(text, count)
    };
    clean(&kept, count)
}

fn can_hold(path: &str) -> bool {
    const FOLDERS: &[&str] = &["/etc/libvirt/", "/run/libvirt/", "/exitless/dmesg", "/exitless/commands/"];
    path.ends_with("/cmdline")
        || path.contains("/modprobe.d/")
        || FOLDERS.iter().any(|one| path.starts_with(one))
}

/// Scans a text once: names with `=`, names in JSON, elements of XML, and addresses with `user:password@`.
fn clean(text: &str, count: &mut Count<'_>) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['=', ':', '>']) {
        let (passed, after) = rest.split_at(at);
        let (sign, after) = after.split_at(1);
        cleaned.push_str(passed);
        cleaned.push_str(sign);
        rest = after;
        let before = behind(text, text.len() - rest.len() - 1);
        let name = match sign {
            "=" => last_name(before),
            ":" if before.ends_with('"') => {
                before.trim_end_matches('"').rsplit('"').next().unwrap_or_default()
            }
            ":" if rest.starts_with("//") => {
                let length = credentials(&rest[2..]);
                if let Some((user, all)) = length {
                    cleaned.push_str(&rest[..2 + user + 1]);
                    cleaned.push_str(MARK);
                    count("password in a URL");
                    rest = &rest[2 + all..];
                }
                continue;
            }
            ">" => element(before),
            _ => "",
        };
        if !(is_secret(name) || is_credential(rest)) {
            continue;
        }
        let (kept, length) = value(rest, sign);
        let secret = &rest[kept..kept + length];
        if length > 0 && !SWITCHES.contains(&secret) && secret != MARK {
            cleaned.push_str(&rest[..kept]);
            cleaned.push_str(MARK);
            rest = &rest[kept + length..];
            count(if is_secret(name) { name } else { "text for the guest" });
        }
    }
    cleaned.push_str(rest);
    cleaned
}

/// The text before a position, limited to the length of a name or a tag: a search back to the start each time
/// would be quadratic.
fn behind(text: &str, end: usize) -> &str {
    const LONGEST_TAG: usize = 1024;
    let mut begin = end.saturating_sub(LONGEST_TAG);
    while !text.is_char_boundary(begin) {
        begin += 1;
    }
    &text[begin..end]
}

/// Tests for a systemd credential, which is passed to the guest in a firmware string.
fn is_credential(value: &str) -> bool {
    value.trim_start_matches(['"', '\'']).starts_with("io.systemd.credential")
}

/// Tests whether values with this name are secrets. `password-secret=ID` and `key-secret=ID` are not: ID is
/// the name of an object, which is needed.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let mut parts = name.split(['.', '-', '_']).rev();
    let last = parts.next().unwrap_or_default();
    if last == "secret" && parts.clone().next().is_some() {
        return false;
    }
    SECRET.contains(&last) || parts.any(|part| SECRET.contains(&part) && part != "auth" && part != "key")
}

/// The name at the end of a text.
fn last_name(text: &str) -> &str {
    let is_name = |one: char| one.is_ascii_alphanumeric() || "._-".contains(one);
    let begin = text
        .rfind(|one: char| !is_name(one))
        .map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    &text[begin..]
}

/// The name of the element whose tag ends here; empty for an end tag or an element without content.
fn element(before: &str) -> &str {
    let tag = before.rsplit('<').next().unwrap_or_default();
    if tag.len() == before.len() || tag.starts_with('/') || tag.ends_with('/') {
        return "";
    }
    tag.split(char::is_whitespace).next().unwrap_or_default()
}

/// The number of bytes before the value (blanks and a quote), and its length.
fn value(text: &str, sign: &str) -> (usize, usize) {
    if sign == ">" {
        return (0, text.find('<').unwrap_or(text.len()));
    }
    let blanks = if sign == ":" { text.len() - text.trim_start().len() } else { 0 };
    let text = &text[blanks..];
    if let Some(quote) = text.chars().next().filter(|one| *one == '"' || *one == '\'') {
        let mut escaped = false;
        let end = text[1..].find(|one: char| {
            let ends = one == quote && !escaped;
            escaped = one == '\\' && !escaped;
            ends
        });
        return (blanks + 1, end.unwrap_or(text.len() - 1));
    }
    // A doubled comma is part of the value.
    let mut length = 0;
    while let Some(at) = text[length..].find(|one: char| ",\0\"'<>&".contains(one) || one.is_whitespace()) {
        length += at;
        if !text[length..].starts_with(",,") {
            return (blanks, length);
        }
        length += 2;
    }
    (blanks, text.len())
}

/// In `user:password@host/...`, the ends of the user and of the password.
fn credentials(text: &str) -> Option<(usize, usize)> {
    let end = text.find(|one: char| "/\"'<>,\0".contains(one) || one.is_whitespace()).unwrap_or(text.len());
    let all = text[..end].rfind('@')?;
    let user = text[..all].find(':')?;
    (user + 1 < all && &text[user + 1..all] != MARK).then_some((user, all))
}

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
