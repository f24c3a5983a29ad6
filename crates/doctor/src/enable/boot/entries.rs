//! Entries of the boot loader specification: lines of a key and a value.

use super::super::words::{self, WordChange};
use std::fs;
use std::path::Path;

/// The mount points of boot partitions.
const PLACES: [&str; 3] = ["/boot", "/efi", "/boot/efi"];

/// The entries of the host below `root`: path and text, by path. Those that may not be read are left out.
pub(super) fn read(root: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for place in PLACES {
        let folder = format!("{place}/loader/entries");
        for entry in fs::read_dir(root.join(&folder[1..])).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".conf") {
                found.extend(
                    fs::read_to_string(entry.path()).ok().map(|text| (format!("{folder}/{name}"), text)),
                );
            }
        }
    }
    found.sort();
    found
}

/// All arguments of an entry, its lines of options joined.
pub(super) fn options(text: &str) -> String {
    let lines = text.lines().filter_map(option_line);
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

fn option_line(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("options").filter(|rest| rest.starts_with([' ', '\t']))
}

/// The entry with the changes; a new word comes behind the last line of options. One that boots no Linux stays.
pub(super) fn changed(text: &str, changes: &[WordChange]) -> String {
    let is_linux = text.lines().any(|line| line.trim_start().starts_with("linux"));
    let Some(last) = text.lines().filter_map(option_line).count().checked_sub(1).filter(|_| is_linux) else {
        return text.to_owned();
    };
    let mut whole = text.to_owned();
    for change in changes {
        let there = change.new.as_deref().is_some_and(|word| words::has(&options(&whole), word));
        let mut placed = there || change.new.is_none();
        let mut number = 0;
        let lines: Vec<&str> = whole.split_inclusive('\n').collect();
        let mut new = String::with_capacity(whole.len());
        for line in lines {
            let Some(rest) = option_line(line) else {
                new.push_str(line);
                continue;
            };
            let has_old = change.old.as_deref().is_some_and(|old| words::has(rest, old));
            let here = if has_old || number == last { change.new.clone().filter(|_| !placed) } else { None };
            placed |= here.is_some();
            new.push_str(&line[..line.len() - rest.len()]);
            new.push_str(&words::changed(rest, &[WordChange { old: change.old.clone(), new: here }]));
            number += 1;
        }
        whole = new;
    }
    whole
}
