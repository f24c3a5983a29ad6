//! `exitless experiment`: studies of factors, guests and workloads.

mod check;
mod diff;
pub(super) mod given;
mod lab_target;
pub(super) mod report;
pub(super) mod run;
pub(super) mod runs;
mod serve_runs;
mod suite;
mod words;

use std::process::ExitCode;

use clap::Subcommand;

/// The help of --target.
pub(super) const TARGET: &str = "The target: local, `ssh://[user@]host[:port]`, or lab:NAME. After lab:NAME, +cpus=N, \
    +memory=MIB, +speed=MIPS, +switch-cycles=N, +device=DEVICE and +kernel=VERSION set its machine as `lab run` does; \
    any other +ARGUMENT goes to its Xen or, without Xen, to its kernel [default: local]";
/// The name of a result's page in its folder.
pub(super) const PAGE: &str = "report.html";
/// The arguments with which this program is started on the machine that makes a study's runs.
const SERVE: [&str; 2] = ["experiment", "serve-runs"];

/// Subcommands of `experiment`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check a plan without running it: unknown names, invalid values, missing requirements of the host, its
    /// size.
    ///
    /// Exit status: 0; 1 when the plan is valid and this host lacks a program or a permission, or something else
    /// stands in the way; 2 for a wrong command line or an invalid plan.
    Check(check::Arguments),
    /// List the plans that come with exitless.
    ///
    /// Exit status: 0.
    List(check::ListArguments),
    /// Run a study, or continue one: on this host, on another by ssh, or in a lab.
    ///
    /// Every run is stored when it is complete. After an interruption, a kill or a lost connection the same
    /// command continues.
    ///
    /// Exit status: 0 when all runs were made; 1 when some failed for good, or a change of the host could not
    /// be undone; 2 for a wrong command line or plan, or a folder that holds something else; 125 when the
    /// study could not continue; 130 when interrupted.
    Run(run::Arguments),
    #[command(hide = true)]
    ServeRuns(serve_runs::Arguments),
    /// Show what a study found: tables here, and a page with charts that opens offline.
    ///
    /// Exit status: 0; 2 for a wrong command line, a folder that is not a result, one without runs, or one
    /// whose runs are of different hosts; 4 when something in the folder is damaged and its undamaged part
    /// was used; 125 when nothing could be read or written.
    Report(report::Arguments),
    /// Compare results of the same plan, of two kernels or two hosts.
    ///
    /// Exit status: as for `experiment report`; 2 also when the results are of different plans, or one is
    /// given twice on the same side.
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
