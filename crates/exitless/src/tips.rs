//! Tips for words that a command does not take: the option for a name or a file, the commands that read another host,
//! and the subcommands for the name of a lab.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use lab::LABS;

/// The options that take what users often write as a plain word.
const OPTIONS: [&str; 3] = ["vm", "lab", "output"];

/// Adds a tip to the error of a command line.
pub(crate) fn add(error: &mut clap::Error, command: &Command, line: &[OsString]) {
    if let Some(tip) = tip(error, command, line) {
        // The parser suggests any option with similar letters, or an argument of the command to run.
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    } else if error.kind() == ErrorKind::UnknownArgument {
        without_dashes(error);
    } else if error.kind() == ErrorKind::MissingSubcommand {
        // The parser lists the hidden ones, too.
        let shown = chosen(command, line).get_subcommands().filter(|one| !one.is_hide_set());
        let names = shown.map(|one| one.get_name().to_owned()).collect();
        error.insert(ContextKind::ValidSubcommand, ContextValue::Strings(names));
    }
}

/// Removes the parser's tip to write `--` before an unknown option, which would make it a file's name or a program.
fn without_dashes(error: &mut clap::Error) {
    if !text(error, ContextKind::InvalidArg).is_some_and(|word| word.starts_with('-')) {
        return;
    }
    let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested) else { return };
    let other = tips.iter().filter(|tip| !tip.to_string().contains("as a value"));
    let other: Vec<_> = other.cloned().collect();
    if other.is_empty() {
        error.remove(ContextKind::Suggested);
    } else {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(other));
    }
}

fn tip(error: &clap::Error, command: &Command, line: &[OsString]) -> Option<String> {
    let chosen = chosen(command, line);
    match error.kind() {
        ErrorKind::UnknownArgument if !chosen.has_subcommands() => {
            let word = text(error, ContextKind::InvalidArg)?;
            let takes_words = chosen.get_positionals().any(|one| !one.is_last_set());
            if word == "--root" {
                let mut readers = Vec::new();
                readers_of_hosts(command, "", &mut readers);
                Some(format!("only these commands read another host: {}", readers.join(", ")))
            } else if word.starts_with('-') || takes_words {
                None
            } else {
                let options: Vec<String> = chosen.get_arguments().filter_map(with_value).collect();
                (!options.is_empty()).then(|| format!("use the option {}", options.join(" or ")))
            }
        }
        ErrorKind::InvalidSubcommand if chosen.get_name() == "lab" => {
            let name = text(error, ContextKind::InvalidSubcommand)?;
            LABS.iter().any(|lab| lab.name == name).then(|| {
                format!(
                    "`exitless lab shell {name}` opens a shell in this lab, and `exitless lab run {name} -- COMMAND` \
                     runs a command"
                )
            })
        }
        _ => None,
    }
}

/// The command that a line names.
fn chosen<'c>(command: &'c Command, line: &[OsString]) -> &'c Command {
    let mut found = command;
    for word in line.iter().skip(1) {
        match found.find_subcommand(word) {
            Some(below) => found = below,
            None if word.as_encoded_bytes().starts_with(b"-") => {}
            None => break,
        }
    }
    found
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.as_str()),
        _ => None,
    }
}

/// One of [`OPTIONS`] with the name of its value.
fn with_value(option: &Arg) -> Option<String> {
    let name = option.get_long().filter(|name| OPTIONS.contains(name))?;
    let values: Vec<&str> = option.get_value_names()?.iter().map(|value| value.as_str()).collect();
    Some(format!("--{name} {}", values.join(" ")))
}

fn readers_of_hosts(command: &Command, before: &str, found: &mut Vec<String>) {
    for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        let name = format!("{before}{}", one.get_name());
        if one.get_arguments().any(|own| own.get_long() == Some("root")) {
            found.push(name.clone());
        }
        readers_of_hosts(one, &format!("{name} "), found);
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn told(line: &str) -> String {
        let line: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let mut error = crate::Arguments::command().try_get_matches_from(&line).unwrap_err();
        add(&mut error, &crate::Arguments::command(), &line);
        error.to_string()
    }

    #[test]
    fn a_word_in_the_wrong_place_is_told_its_place() {
        for (line, tip) in [
            ("exitless stat web", "use the option --vm NUMBER|NAME\n"),
            ("exitless -v doctor web", "use the option --vm NAME|PID\n"),
            ("exitless record out.exits", "--output FILE"),
            ("exitless prove intel-apicv", "--lab NAME"),
            ("exitless lab intel-apicv", "`exitless lab run intel-apicv -- COMMAND`"),
            ("exitless stat --root /mnt", "read another host: doctor, vm lint, vm fix, enable, disable"),
            ("exitless verify --root=/mnt", "read another host: doctor"),
        ] {
            let told = told(line);
            assert!(told.contains("tip: ") && told.contains(tip), "{line}: {told}");
            assert_eq!(told.matches("tip: ").count(), 1, "{line}: {told}");
        }
        let told_without = told("exitless -v");
        assert!(told_without.contains("doctor") && !told_without.contains("pages"), "{told_without}");
        for line in ["exitless timeline x -o y", "exitless stat -o y"] {
            assert!(!told(line).contains("as a value"), "{}", told(line));
        }
        // Errors that the parser explains well enough, and lines with too many words.
        for line in [
            "exitless vm --root / lint x",
            "exitless diff a b c",
            "exitless lab nothing",
            "exitless stat --fast",
        ] {
            let told = told(line);
            assert!(
                !told.contains("use the option") && !told.contains("read another host"),
                "{line}: {told}"
            );
        }
    }
}
