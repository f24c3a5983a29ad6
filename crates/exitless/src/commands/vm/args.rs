//! `exitless vm args`: converts libvirt's XML to QEMU's arguments.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use domain::Form;

use super::converted;
use super::subject::Subject;
use crate::status::Usage;

/// Arguments of `vm args`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A file with libvirt's XML, - for standard input, or a domain by its name: libvirt:NAME.
    #[arg(value_name = "FILE|libvirt:NAME")]
    subject: String,
    /// The directory to use as /, with libvirt's files.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Print JSON: the arguments one by one, and the losses.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let subject = Subject::find(Path::new(&arguments.root), &arguments.subject)?;
    if subject.form != Form::Libvirt {
        let name = &subject.text.name;
        return Err(Usage(format!(
            "{name} already has QEMU's arguments. `exitless vm xml` converts them to XML."
        ))
        .into());
    }
    converted::print(&domain::convert::to_arguments(&subject.text)?, arguments.json)
}
