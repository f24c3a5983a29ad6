//! `exitless vm lint`: settings of a definition that inhibit interrupt virtualization or cost exits.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use doctor::Tally;
use doctor::lint::{HostSide, lint_by_group};
use exits::Isa;
use host::Root;
use report::findings::FindingsView;

use super::subject::{Subject, Which};
use crate::{console, status};

/// The host where a VM is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum For {
    /// On this host, with its CPU, kernel and parameters.
    ThisHost,
    /// On any host with an Intel CPU.
    Intel,
    /// On any host with an AMD CPU.
    Amd,
}

impl For {
    /// The facts about the host that rules use. [`Self::ThisHost`] is the host below `root`.
    pub(super) fn host_side(self, root: &Path) -> anyhow::Result<HostSide> {
        Ok(match self {
            Self::ThisHost => HostSide::below(&Root::below(root)?)?,
            Self::Intel => HostSide::of_vendor(Isa::Vmx),
            Self::Amd => HostSide::of_vendor(Isa::Svm),
        })
    }
}

/// Arguments of `vm lint`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A file with libvirt's XML, a QEMU command line or Xen's xl.cfg, - for standard input, a process, a
    /// running VM by its name, UUID, number or NAMESPACE/NAME, or a domain of libvirt.
    #[arg(value_name = "FILE|PID|NAME|libvirt:NAME")]
    subject: String,
    /// The host where the VM is to run. `--root` selects another host than this one.
    #[arg(long = "for", value_name = "HOST", value_enum, default_value = "this-host")]
    host: For,
    /// The host whose files are below this directory, instead of this one: a copy of its / or an unpacked
    /// archive of `exitless snapshot`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand. `verbose` is the program's global option: all checks are shown then, including those
/// that passed, with their rules' names and sources.
pub(crate) fn run(arguments: &Arguments, verbose: bool) -> anyhow::Result<ExitCode> {
    let subject = Subject::find(&arguments.root, &arguments.subject, Which::Next)?;
    let definition = subject.definition()?;
    let host = arguments.host.host_side(&arguments.root)?;
    let mut sections = lint_by_group(&definition, &host);
    subject.translate(&mut sections, &definition);
    let tally = Tally::of(sections.iter().flat_map(|section| &section.findings));
    let document = || report::findings::json(&subject.text.name, &sections, &definition.doubts);
    let text = || {
        let view =
            FindingsView { width: console::width(), colour: console::colour(), passes: verbose, verbose };
        let text = report::findings::terminal(&sections, &definition.doubts, tally, view);
        match subject.in_libvirt().filter(|_| tally.to_fix()) {
            Some(next) => format!("{text}{next}\n"),
            None => text,
        }
    };
    crate::output::print(arguments.json, document, text)?;
    Ok(if tally.to_fix() { ExitCode::from(status::TO_FIX) } else { ExitCode::SUCCESS })
}
