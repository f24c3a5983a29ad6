//! Entries of the boot loader specification: lines of a key and a value.

use super::super::words::{self, WordChange};

/// All arguments of an entry: its `options` lines, joined.
pub(super) fn options(text: &str) -> String {
    words::in_lines(text, |_, line| option_line(line))
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

/// The version of an entry that ostree wrote. It counts the deployments, and the one that boots next has the largest
/// (src/libostree/ostree-sysroot-deploy.c, `install_deployment_kernel`).
pub(super) fn deployment(text: &str) -> Option<u32> {
    text.lines().find_map(|line| line.trim_start().strip_prefix("version")?.trim().parse().ok())
}

pub(super) fn boots_linux(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with("linux"))
}

fn option_line(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("options")?.strip_prefix([' ', '\t'])
}

/// The entry with the changes; a new word is added to the last `options` line, which need not exist yet. An entry that does not
/// boot Linux is unchanged.
pub(super) fn changed(text: &str, changes: &[WordChange]) -> String {
    if !boots_linux(text) {
        return text.to_owned();
    }
    words::changed_in_lines(text, "options ", |_, line| option_line(line), changes)
}
