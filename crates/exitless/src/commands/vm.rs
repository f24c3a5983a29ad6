//! `exitless vm`: definitions of VMs.

mod args;
mod converted;
mod fix;
mod lint;
pub(super) mod subject;
mod write;
mod xml;

use std::process::ExitCode;

use clap::Subcommand;

/// What is done with a definition.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Find what in a definition inhibits interrupt virtualization, or costs exits.
    ///
    /// Exit status: 0 when there is nothing to mend; 1 when there is; 2 for a wrong command line or a VM or file that is
    /// not there; 125 when the definition cannot be read.
    Lint(lint::Arguments),
    /// Show the changes that mend a definition as a diff, or make them.
    ///
    /// Exit status: 0 when there is nothing to change, or all was written; 1 when there are changes and nothing was
    /// written, or a change cannot be made; 2 for a wrong command line or a VM or file that is not there; 125 when the
    /// definition cannot be read or written.
    Fix(fix::Arguments),
    /// Print QEMU's arguments for libvirt's XML.
    ///
    /// Exit status: 0 when all of it has an equal; 1 when something has none, which is told on standard error; 2 for a
    /// wrong command line or a VM or file that is not there; 125 when the definition cannot be read.
    Args(args::Arguments),
    /// Print libvirt's XML for QEMU's arguments.
    ///
    /// Exit status: as of `vm args`. What libvirt has no element for, and QEMU takes as it is, stands in
    /// <qemu:commandline>, and is no loss.
    Xml(xml::Arguments),
}

/// Runs the subcommand; `verbose` is the program's own option.
pub(crate) fn run(command: &Command, verbose: bool) -> anyhow::Result<ExitCode> {
    match command {
        Command::Lint(arguments) => lint::run(arguments, verbose),
        Command::Fix(arguments) => fix::run(arguments),
        Command::Args(arguments) => args::run(arguments),
        Command::Xml(arguments) => xml::run(arguments),
    }
}
