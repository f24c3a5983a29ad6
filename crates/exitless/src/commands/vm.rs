//! `exitless vm`: definitions of VMs.

mod fix;
mod lint;
pub(super) mod subject;
mod write;

use std::process::ExitCode;

use clap::Subcommand;

/// Operations on a definition.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Find settings of a definition that inhibit interrupt virtualization, or cost exits.
    ///
    /// Exit status: 0 when there is nothing to fix; 1 when there is; 2 for a wrong command line or a VM or
    /// file that does not exist; 125 when the definition cannot be read.
    Lint(lint::Arguments),
    /// Show the changes that fix a definition as a diff, or make them.
    ///
    /// Exit status: 0 when there is nothing to change, or everything was written; 1 when there are changes
    /// and nothing was written, or a change cannot be made; 2 for a wrong command line or a VM or file that
    /// does not exist; 125 when the definition cannot be read or written.
    Fix(fix::Arguments),
}

/// Runs the subcommand; `verbose` is the program's global option.
pub(crate) fn run(command: &Command, verbose: bool) -> anyhow::Result<ExitCode> {
    match command {
        Command::Lint(arguments) => lint::run(arguments, verbose),
        Command::Fix(arguments) => fix::run(arguments),
    }
}
