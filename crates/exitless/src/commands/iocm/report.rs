//! `exitless iocm report`: a page of the bench `dynamic_load`, which compares arrangements of I/O workers.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use iocm_monitor::evaluation::Evaluation;

use crate::commands::paths;
use crate::commands::recordings::write_page;
use crate::status::{self, Usage};

/// Arguments of `iocm report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// The file that `DYNAMIC_LOAD_JSON=FILE cargo bench -p iocm-monitor --bench dynamic_load` wrote.
    #[arg(value_name = "FILE", value_parser = paths::input())]
    file: PathBuf,
    /// The page.
    #[arg(long, short, value_name = "FILE", value_parser = paths::output(), default_value = "dynamic-load.html")]
    output: PathBuf,
}

/// Writes the page.
pub(super) fn run(arguments: &ReportArguments) -> anyhow::Result<ExitCode> {
    let path = arguments.file.display();
    let bytes = std::fs::read(&arguments.file)
        .map_err(|error| paths::unread(&format!("Cannot read the evaluation {path}"), error))?;
    let evaluation =
        Evaluation::parse(&bytes).map_err(|error| Usage(format!("{path} is not an evaluation. {error}")))?;
    write_page(&arguments.output, &::report::iocm::evaluation::page(&evaluation))?;
    let judged = evaluation.judged();
    let met = judged.iter().filter(|one| one.is_met()).count();
    let phases = exits::counted(judged.len() as u64, "phase");
    crate::output::write(|out| {
        writeln!(out, "The monitor met its targets in {met} of {phases}")?;
        writeln!(out, "The page: {}", arguments.output.display())
    })?;
    Ok(ExitCode::from(if met == judged.len() { 0 } else { status::AIM_MISSED }))
}
