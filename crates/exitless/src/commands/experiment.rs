//! `exitless experiment`: studies of factors, guests and workloads.

mod check;
mod diff;
pub(super) mod given;
mod lab_target;
pub(super) mod report;
pub(super) mod run;
mod serve_runs;
mod words;

use std::process::ExitCode;

use clap::Subcommand;

/// How this program is started on the machine that makes the runs.
const SERVE: [&str; 2] = ["experiment", "serve-runs"];

/// Subcommands of `experiment`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check a plan without running it: unknown names, impossible values, what the host lacks, how much it is.
    ///
    /// Exit status: 0; 1 when the plan is right and this host lacks a program or a right; 2 for a wrong command line or a
    /// wrong plan.
    Check(check::Arguments),
    /// List the plans that come with exitless.
    ///
    /// Exit status: 0.
    List(check::ListArguments),
    /// Run a study, or go on with one: on this host, on another by ssh, or in a laboratory.
    ///
    /// Every run is kept as soon as it is whole. After an interruption, a kill or a lost link the same command goes on.
    ///
    /// Exit status: 0 when all runs were made; 1 when some failed for good, or a change of the host could not be undone; 2
    /// for a wrong command line or plan, or a folder that holds something else; 125 when the study could not go on; 130
    /// when interrupted.
    Run(run::Arguments),
    #[command(hide = true)]
    ServeRuns(serve_runs::Arguments),
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
        Command::Check(arguments) => check::run(arguments),
        Command::List(arguments) => check::list(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::ServeRuns(arguments) => serve_runs::run(arguments),
        Command::Report(arguments) => report::run(arguments),
        Command::Diff(arguments) => diff::run(arguments),
    }
}
