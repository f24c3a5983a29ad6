//! Entries of the boot loader specification: lines of a key and a value.

use super::super::words::{self, WordChange};

/// All arguments of an entry: its `options` lines, joined.
pub(super) fn options(text: &str) -> String {
    let lines = text.lines().filter_map(option_line);
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

/// The arguments of an entry, with GRUB's variable `kernelopts` replaced by its value in the environment block. `None` if the
/// block has no such variable: grub.cfg then sets other arguments.
pub(super) fn expanded(text: &str, environment: &str) -> Option<String> {
    let options = options(text);
    let word = |range| match &options[range] {
        "$kernelopts" => variable(environment, "kernelopts"),
        other => Some(other).filter(|word| !word.starts_with('$')).or(Some("")),
    };
    let all: Option<Vec<_>> = words::words(&options).into_iter().map(word).collect();
    all.map(|all| all.join(" "))
}

/// The arguments that TuneD adds to an entry by a variable of GRUB.
pub(super) fn of_tuned<'a>(text: &str, environment: &'a str) -> Option<&'a str> {
    let name = "tuned_params";
    words::has(&options(text), &format!("${name}")).then(|| variable(environment, name)).flatten()
}

/// A value of GRUB's environment block: lines `NAME=VALUE`, and `#` up to its size (grub-core/lib/envblk.c).
fn variable<'a>(environment: &'a str, name: &str) -> Option<&'a str> {
    environment.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

pub(super) fn boots_linux(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with("linux"))
}

fn option_line(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("options").filter(|rest| rest.starts_with([' ', '\t']))
}

/// The entry with the changes; a new word is added to the last `options` line. An entry that does not boot
/// Linux is unchanged.
pub(super) fn changed(text: &str, changes: &[WordChange]) -> String {
    let lines = text.lines().filter_map(option_line).count();
    let Some(last) = lines.checked_sub(1).filter(|_| boots_linux(text)) else {
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
