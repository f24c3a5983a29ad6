//! `exitless experiment`: studies of factors, guests and workloads.

mod diff;
mod report;

use std::process::ExitCode;

use clap::Subcommand;

/// Subcommands of `experiment`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Tell what a study found: tables here, and a page with charts that opens offline.
    ///
    /// Exit status: 0; 2 for a wrong command line, a folder that is no result, one without runs, or one whose runs are of
    /// unlike hosts; 4 when something in the folder is damaged and what is whole of it was used; 125 when nothing could be
    /// read or written.
    Report(report::Arguments),
    /// Compare two results of the same plan, of two kernels or two hosts.
    ///
    /// Exit status: as of `experiment report`; 2 also when the results are of different plans.
    Diff(diff::Arguments),
}

/// Runs the subcommand.
pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Report(arguments) => report::run(arguments),
        Command::Diff(arguments) => diff::run(arguments),
    }
}
