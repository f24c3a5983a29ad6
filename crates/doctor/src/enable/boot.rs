//! The kernel's arguments in the boot loader's configuration, and the smallest change of it.

mod detect;
mod entries;

use super::grub;
use super::words::{self, WordChange};
use knobs::{Change, Content};

/// The program or files that configure the kernel's arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Boot {
    /// `rpm-ostree kargs`, with the options of the deployment that boots next, the only one that it changes.
    RpmOstree(Vec<String>),
    /// `grubby`, with the options of the boot loader's entries, and those that TuneD adds to them.
    Grubby { options: Vec<String>, tuned: String },
    /// `kernelstub`, with the text of its configuration.
    Kernelstub(String),
    /// Settings of grub-mkconfig, in the order in which they are read, and the program that generates the
    /// configuration from them.
    Grub { files: Vec<(String, String)>, refresh: Option<Vec<String>> },
    /// One file with all arguments, the lines of it that count, and the program that generates the boot entries from it.
    CommandLine { path: String, text: String, counts: Counts, refresh: Vec<String> },
    /// Entries of systemd-boot that were written by hand.
    Entries(Vec<(String, String)>),
    /// Something that is not changed here: the command lines, the reason, and the next step if it is a special one.
    ByHand { lines: Vec<String>, why: String, next: Option<&'static str> },
    /// No known boot loader.
    Unknown,
}

/// The lines of a file of arguments that the program which generates boot entries reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    /// All, as one line (systemd's src/kernel-install/90-loaderentry.install.in).
    All,
    /// The first (proxmox-kernel-helper's src/proxmox-boot/zz-proxmox-boot; sdbootutil, which substitutes line by line).
    First,
    /// Those that do not begin with `#` (mkinitcpio, `build_uki`).
    NoComments,
}

impl Counts {
    fn part(self, number: usize, line: &str) -> Option<&str> {
        let counts = match self {
            Self::All => true,
            Self::First => number == 0,
            Self::NoComments => !line.starts_with('#'),
        };
        counts.then_some(line)
    }

    fn arguments(self, text: &str) -> String {
        words::in_lines(text, |number, line| self.part(number, line))
    }

    fn changed(self, text: &str, changes: &[WordChange]) -> String {
        words::changed_in_lines(text, "", |number, line| self.part(number, line), changes)
    }
}

/// The kernel or hypervisor whose arguments are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Linux,
    Xen,
}

impl Whose {
    /// The variables of grub-mkconfig: the first is for normal boots, the second also for recovery.
    const fn variables(self) -> [&'static str; 2] {
        match self {
            Self::Linux => ["GRUB_CMDLINE_LINUX_DEFAULT", "GRUB_CMDLINE_LINUX"],
            Self::Xen => ["GRUB_CMDLINE_XEN_DEFAULT", "GRUB_CMDLINE_XEN"],
        }
    }

    /// The place of the arguments of this boot.
    const fn running(self) -> &'static str {
        match self {
            Self::Linux => "/proc/cmdline",
            Self::Xen => "`xl info`",
        }
    }
}

/// The result of a change of arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Taken {
    /// The configuration already contains the change.
    Nothing,
    /// These changes.
    Changes(Vec<Change>),
    /// It must be done by hand: the reason, and the next step.
    ByHand(String, String),
}

impl Boot {
    /// The configured command lines; empty if they are not known.
    pub(super) fn lines(&self, whose: Whose) -> Vec<String> {
        match self {
            Self::Grub { files, .. } => grub_line(files, whose).into_iter().collect(),
            _ if whose == Whose::Xen => Vec::new(),
            Self::RpmOstree(options) => options.clone(),
            Self::Grubby { options, tuned } => options.iter().map(|one| format!("{one} {tuned}")).collect(),
            Self::Kernelstub(configuration) => vec![kernelstub_words(configuration).join(" ")],
            Self::CommandLine { text, counts, .. } => vec![counts.arguments(text)],
            Self::Entries(files) => {
                let linux = files.iter().filter(|(_, text)| entries::boots_linux(text));
                linux.map(|(_, text)| entries::options(text)).collect()
            }
            Self::ByHand { lines, .. } => lines.clone(),
            Self::Unknown => Vec::new(),
        }
    }

    /// [`Self::lines`], or that of this boot if they are not known.
    pub(super) fn lines_or(&self, whose: Whose, running: &str) -> Vec<String> {
        let lines = self.lines(whose);
        if lines.is_empty() { vec![running.to_owned()] } else { lines }
    }

    /// A note on words that the changes remove, but that are only in the command line of this boot and not in the boot
    /// loader's configuration.
    pub(super) fn of_this_boot(&self, whose: Whose, changes: &[WordChange]) -> Option<String> {
        let lines = self.lines(whose);
        let typed = changes.iter().filter_map(|change| change.old.as_deref());
        let typed: Vec<_> = typed.filter(|old| lines.iter().all(|line| !words::has(line, old))).collect();
        (!lines.is_empty() && !typed.is_empty()).then(|| {
            format!(
                "No setting of the boot loader has {} of {}. If it was neither typed for this boot nor removed since, look \
                 for what adds it.",
                typed.join(" "),
                whose.running()
            )
        })
    }

    pub(super) fn take(&self, whose: Whose, changes: &[WordChange]) -> Taken {
        let told = || {
            let words: Vec<_> = changes.iter().map(told).collect();
            format!("change the arguments by hand: {}", words.join(", "))
        };
        if whose == Whose::Xen && !matches!(self, Self::Grub { .. }) {
            return Taken::ByHand("only GRUB's settings of Xen's command line are known".to_owned(), told());
        }
        match self {
            Self::RpmOstree(options) => by_program(options, changes, |removed, added| {
                let removed = removed.iter().map(|word| format!("--delete-if-present={word}"));
                let added = added.iter().map(|word| format!("--append-if-missing={word}"));
                ["rpm-ostree".to_owned(), "kargs".to_owned()]
                    .into_iter()
                    .chain(removed)
                    .chain(added)
                    .collect()
            }),
            Self::Grubby { tuned, .. } if has_old(tuned, changes) => {
                Taken::ByHand("a profile of TuneD adds it to the boot entries".to_owned(), told())
            }
            Self::Grubby { options, .. } => by_program(options, changes, |removed, added| {
                let mut command = vec!["grubby".to_owned(), "--update-kernel=ALL".to_owned()];
                if !removed.is_empty() {
                    command.push(format!("--remove-args={}", removed.join(" ")));
                }
                if !added.is_empty() {
                    command.push(format!("--args={}", added.join(" ")));
                }
                command
            }),
            Self::Kernelstub(configuration) => kernelstub(configuration, changes),
            Self::Grub { files, refresh } => match grub_files(files, whose, changes) {
                Err(line) => Taken::ByHand(format!("`{line}` is more than plain text"), told()),
                // The word may be in a variable that the settings use.
                Ok(_) if !changes.iter().all(|change| is_named(files, whose, change)) => Taken::ByHand(
                    "no setting of the boot loader names an argument of this boot".to_owned(),
                    "look for it in the variables that its settings use; if it was removed since, reboot"
                        .to_owned(),
                ),
                Ok(new) if new.is_empty() => Taken::Nothing,
                Ok(new) => match refresh {
                    Some(refresh) => Taken::Changes(refreshed(new, refresh)),
                    None => Taken::ByHand("neither update-grub nor grub-mkconfig exists".to_owned(), told()),
                },
            },
            Self::CommandLine { path, text, counts, refresh } => {
                let new = counts.changed(text, changes);
                if new == *text {
                    return Taken::Nothing;
                }
                Taken::Changes(refreshed(vec![(path.clone(), new)], refresh))
            }
            Self::Entries(files) => {
                let new = files.iter().map(|(path, text)| (path.clone(), entries::changed(text, changes)));
                let new: Vec<_> =
                    new.zip(files).filter(|(new, old)| new.1 != old.1).map(|(new, _)| new).collect();
                if new.is_empty() {
                    Taken::Nothing
                } else {
                    Taken::Changes(new.into_iter().map(file).collect())
                }
            }
            Self::ByHand { why, next, .. } => {
                Taken::ByHand(why.clone(), next.map_or_else(told, str::to_owned))
            }
            Self::Unknown => {
                Taken::ByHand("no known boot loader keeps kernel arguments here".to_owned(), told())
            }
        }
    }
}

fn has_old(line: &str, changes: &[WordChange]) -> bool {
    changes.iter().filter_map(|change| change.old.as_deref()).any(|old| words::has(line, old))
}

fn told(change: &WordChange) -> String {
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => format!("{old} to {new}"),
        (Some(old), None) => format!("without {old}"),
        (None, new) => format!("with {}", new.as_deref().unwrap_or_default()),
    }
}

fn file((path, text): (String, String)) -> Change {
    Change::File { path, content: Content(text.into_bytes()) }
}

/// Runs the program after the files are changed, and again after they are restored.
fn refreshed(files: Vec<(String, String)>, refresh: &[String]) -> Vec<Change> {
    let before = Change::Command { run: None, undo: Some(refresh.to_vec()) };
    let after = Change::Command { run: Some(refresh.to_vec()), undo: None };
    [before].into_iter().chain(files.into_iter().map(file)).chain([after]).collect()
}

/// Changes arguments by a program that adds and removes words. It gets only the words that really change, so that its
/// inverse restores the same state. If the options are not known, it gets all words: the changes are then derived from the
/// running kernel's command line.
fn by_program(
    options: &[String],
    changes: &[WordChange],
    command: impl Fn(&[String], &[String]) -> Vec<String>,
) -> Taken {
    let any = |word: &String| options.is_empty() || options.iter().any(|line| words::has(line, word));
    let all = |word: &String| !options.is_empty() && options.iter().all(|line| words::has(line, word));
    let removed: Vec<String> = changes.iter().filter_map(|change| change.old.clone()).filter(any).collect();
    let added: Vec<String> =
        changes.iter().filter_map(|change| change.new.clone()).filter(|word| !all(word)).collect();
    if removed.is_empty() && added.is_empty() {
        return Taken::Nothing;
    }
    Taken::Changes(vec![Change::Command {
        run: Some(command(&removed, &added)),
        undo: Some(command(&added, &removed)),
    }])
}

fn kernelstub_words(configuration: &str) -> Vec<String> {
    serde_json::from_str::<serde_json::Value>(configuration)
        .ok()
        .and_then(|all| all["user"]["kernel_options"].as_array().cloned())
        .into_iter()
        .flatten()
        .filter_map(|word| word.as_str().map(str::to_owned))
        .collect()
}

fn kernelstub(configuration: &str, changes: &[WordChange]) -> Taken {
    let words = kernelstub_words(configuration);
    let command =
        |option: &str, word: &str| vec!["kernelstub".to_owned(), option.to_owned(), word.to_owned()];
    let (add, delete) = ("--add-options", "--delete-options");
    let mut found = Vec::new();
    for change in changes {
        if let Some(old) = change.old.as_ref().filter(|old| words.contains(old)) {
            found.push(Change::Command { run: Some(command(delete, old)), undo: Some(command(add, old)) });
        }
        if let Some(new) = change.new.as_ref().filter(|new| !words.contains(new)) {
            found.push(Change::Command { run: Some(command(add, new)), undo: Some(command(delete, new)) });
        }
    }
    if found.is_empty() { Taken::Nothing } else { Taken::Changes(found) }
}

/// The arguments that grub-mkconfig writes. `None` if a part of them depends on the shell.
fn grub_line(files: &[(String, String)], whose: Whose) -> Option<String> {
    let mut line = Vec::new();
    // Both variables, the one for normal boots last (util/grub.d/10_linux.in, 20_linux_xen.in).
    for variable in whose.variables().iter().rev() {
        for (file, one) in grub::in_force(files, variable).ok()? {
            let words = files[file].1[one.value].replace(&format!("${{{variable}}}"), "");
            let words = words.replace(&format!("${variable}"), "");
            line.push(Some(words).filter(|words| !words.contains('$'))?);
        }
    }
    Some(line.join(" "))
}

/// Tests whether an effective assignment contains the word that a change removes. If the change only gives a
/// module's parameter another value, that does not matter: the new value comes last and wins.
fn is_named(files: &[(String, String)], whose: Whose, change: &WordChange) -> bool {
    let Some(old) = &change.old else { return true };
    if change.new.is_some() && old.split('=').next().is_some_and(|name| name.contains('.')) {
        return true;
    }
    let in_force = |variable| grub::in_force(files, variable).unwrap_or_default();
    let mut assignments = whose.variables().into_iter().flat_map(in_force);
    assignments.any(|(file, assignment)| words::has(&files[file].1[assignment.value], old))
}

/// The files that change, with their new text; `Err` has the assignment that cannot be changed safely.
fn grub_files(
    files: &[(String, String)],
    whose: Whose,
    changes: &[WordChange],
) -> Result<Vec<(String, String)>, String> {
    let variables = whose.variables();
    let mut new: Vec<(String, String)> = files.to_vec();
    for change in changes {
        let mut placed = change.new.is_none();
        for variable in variables {
            for at in 0..grub::in_force(&new, variable)?.len() {
                // Look it up again: each change moves the assignments after it.
                let (file, assignment) = grub::in_force(&new, variable)?.remove(at);
                let text = &mut new[file].1;
                let words = &text[assignment.value.clone()];
                placed |= change.new.as_deref().is_some_and(|word| words::has(words, word));
                if change.old.as_deref().is_some_and(|old| words::has(words, old)) {
                    let here =
                        WordChange { old: change.old.clone(), new: change.new.clone().filter(|_| !placed) };
                    *text = grub::changed(text, &assignment, &[here])?;
                    placed = true;
                }
            }
        }
        if let (Some(word), false) = (&change.new, placed) {
            add(&mut new, variables, word)?;
        }
    }
    new.retain(|(path, text)| !files.iter().any(|(old, was)| old == path && was == text));
    Ok(new)
}

/// Adds a word to the last effective assignment, or a new assignment.
fn add(files: &mut [(String, String)], variables: [&str; 2], word: &str) -> Result<(), String> {
    let change = [WordChange::add(word)];
    for variable in variables {
        if let Some((file, assignment)) = grub::in_force(files, variable)?.last() {
            let text = &mut files[*file].1;
            *text = grub::changed(text, assignment, &change)?;
            return Ok(());
        }
    }
    if let Some((_, text)) = files.first_mut() {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("{}=\"{word}\"\n", variables[0]));
    }
    Ok(())
}

#[cfg(test)]
#[path = "boot_tests.rs"]
mod tests;
