//! `exitless vm`: definitions of VMs.

mod args;
mod converted;
mod subject;
mod xml;

use std::process::ExitCode;

use clap::Subcommand;

/// What is done with a definition.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
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

/// Runs the subcommand.
pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Args(arguments) => args::run(arguments),
        Command::Xml(arguments) => xml::run(arguments),
    }
}
