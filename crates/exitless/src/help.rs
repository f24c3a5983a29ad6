//! The examples in the long help of each command.

use std::fmt::Write as _;

use clap::Command;

use crate::examples::{EXAMPLES, Example};

/// The examples of a command, by its words after `exitless`.
pub(crate) fn examples_of(command: &str) -> &'static [Example] {
    EXAMPLES.iter().find(|(name, _)| *name == command).map_or(&[], |(_, examples)| examples)
}

/// Adds its examples to the long help of each command.
pub(crate) fn with_examples(command: Command) -> Command {
    add(command, "")
}

fn add(mut command: Command, words: &str) -> Command {
    let names: Vec<_> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    for name in names {
        let below = format!("{words} {name}");
        command = command.mut_subcommand(&name, |one| add(one, below.trim_start()));
    }
    // Let each option report a negative number itself: the parser would suggest `-- -3`, which makes it a
    // file name.
    command = command.mut_args(|one| {
        let negative = !one.is_positional() && one.get_action().takes_values();
        let signed = negative && one.get_value_names().is_some_and(|names| names == ["TIME"]);
        if negative { one.allow_negative_numbers(true).allow_hyphen_values(signed) } else { one }
    });
    match examples_of(words) {
        [] => command,
        examples => command.after_long_help(text(examples)),
    }
}

fn text(examples: &[Example]) -> String {
    let mut text = "Examples:".to_owned();
    for Example { line, says, .. } in examples {
        // Writing into a string cannot fail.
        let _ = write!(text, "\n  {line}\n      {says}");
    }
    text
}
