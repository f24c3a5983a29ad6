//! `exitless vm xml`: converts QEMU's arguments to libvirt's XML.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use domain::Form;

use super::converted;
use super::subject::Subject;
use crate::status::Usage;

/// Arguments of `vm xml`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A file with a QEMU command line, - for standard input, a process, or a running VM by its name.
    #[arg(value_name = "FILE|PID|NAME")]
    subject: String,
    /// The directory to use as /, with its processes.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Print JSON: the XML, and the losses.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let subject = Subject::find(Path::new(&arguments.root), &arguments.subject)?;
    if subject.form != Form::Qemu {
        let name = &subject.text.name;
        return Err(Usage(format!(
            "{name} is already XML. `exitless vm args` converts it to QEMU's arguments."
        ))
        .into());
    }
    converted::print(&domain::convert::to_xml(&subject.text, subject.files())?, arguments.json)
}
