//! `exitless self-test`: what works for this user on this host.

use std::process::ExitCode;

use clap::Args;
use readiness::{COMMANDS, Needs, Readiness, State};

use crate::console::{self, Waiting};
use crate::status;

/// Arguments of `self-test`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only these commands, such as stat or iocm; all by default.
    #[arg(value_name = "COMMAND")]
    commands: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand. `verbose` is the program's global option.
pub(crate) fn run(arguments: &Arguments, verbose: bool) -> anyhow::Result<ExitCode> {
    let chosen = chosen(&arguments.commands)?;
    let waiting = Waiting::new("Trying what commands need");
    let readiness = Readiness::check(&chosen);
    drop(waiting);
    let program = std::env::current_exe().unwrap_or_else(|_| "/usr/bin/exitless".into());
    let program = program.to_string_lossy();
    let document = || report::readiness::json(&readiness, &program);
    let text = || {
        let (width, colour) = (console::width(), console::colour());
        report::readiness::terminal(&readiness, &program, width, colour, verbose)
    };
    crate::output::print_table(arguments.json, document, text)?;
    let works = readiness.commands.iter().all(|one| one.state == State::Works);
    Ok(ExitCode::from(if works { 0 } else { status::SOME_FAILED }))
}

fn chosen(names: &[String]) -> Result<Vec<&'static Needs>, status::Usage> {
    for name in names {
        if !COMMANDS.iter().any(|one| one.is_named(name)) {
            let known: Vec<_> = COMMANDS.iter().map(|one| one.command).collect();
            return Err(status::Usage(format!("there is no command {name}; known: {}", known.join(", "))));
        }
    }
    let is_chosen = |one: &&Needs| names.is_empty() || names.iter().any(|name| one.is_named(name));
    Ok(COMMANDS.iter().filter(is_chosen).collect())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_command_is_judged_and_every_judged_command_is_one() {
        let command = crate::Arguments::command();
        for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            let name = one.get_name();
            assert!(name == "self-test" || COMMANDS.iter().any(|own| own.is_named(name)), "{name}");
        }
        for one in COMMANDS {
            let mut at = &command;
            for word in one.command.split(' ').take_while(|word| !word.starts_with('-')) {
                at = at.find_subcommand(word).unwrap_or_else(|| panic!("{} is no command", one.command));
            }
            let options = one.command.split(' ').filter_map(|word| word.strip_prefix("--"));
            for option in options {
                assert!(at.get_arguments().any(|own| own.get_long() == Some(option)), "{}", one.command);
            }
        }
    }

    #[test]
    fn a_name_selects_a_command_and_those_below_it() {
        let names = |name: &str| chosen(&[name.to_owned()]).unwrap().len();
        assert_eq!((names("stat"), names("iocm")), (1, 4));
        assert!(chosen(&["sta".to_owned()]).unwrap_err().to_string().contains("no command sta"));
    }
}
