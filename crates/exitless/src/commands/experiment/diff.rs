//! `exitless experiment diff`: results of one plan on two sides.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use study::analysis::{Collected, StudyDifference, difference};

use super::super::diff::files;
use super::report::read;
use crate::status::Usage;
use crate::{console, status};

/// Arguments of `experiment diff`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The result before; several are separated by commas.
    #[arg(value_name = "BEFORE")]
    before: OsString,
    /// The result after; several are separated by commas. With three or more on each side, intervals include the
    /// differences between the results of a side.
    #[arg(value_name = "AFTER")]
    after: OsString,
    /// Print everything as JSON.
    #[arg(long)]
    json: bool,
    /// Also compare results in which runs of one arm are from different hosts or guests; the comparison says so.
    #[arg(long)]
    allow_unlike: bool,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let (before, after) = (read_all(&arguments.before)?, read_all(&arguments.after)?);
    let difference =
        difference(&before, &after, arguments.allow_unlike).map_err(|error| Usage(error.to_string()))?;
    let results = || before.iter().chain(&after);
    results().for_each(warn_of);
    print(&difference, arguments)?;
    let is_damaged = results().any(|result| !result.damage.is_empty());
    Ok(ExitCode::from(if is_damaged { status::DAMAGED } else { 0 }))
}

/// Reads the results of one side. They are repeats of each other, so none may be there twice.
fn read_all(joined: &OsStr) -> anyhow::Result<Vec<Collected>> {
    let folders = files(joined);
    let mut known = BTreeSet::new();
    for folder in &folders {
        if folder.canonicalize().is_ok_and(|path| !known.insert(path)) {
            let what = format!("{} is given twice on one side; each result is one repeat", folder.display());
            return Err(Usage(what).into());
        }
    }
    folders.iter().map(|folder| read(folder)).collect()
}

fn warn_of(result: &Collected) {
    result.damage.iter().for_each(|damage| tracing::warn!("{damage}"));
    let missing = result.planned.saturating_sub(result.runs.len());
    if missing > 0 {
        tracing::warn!(
            "{} on {}: {missing} of {} {} missing",
            result.facts.name,
            result.facts.target,
            exits::counted(result.planned as u64, "planned run"),
            exits::agree(missing as u64, "is", "are")
        );
    }
}

fn print(difference: &StudyDifference, arguments: &Arguments) -> anyhow::Result<()> {
    let text = || report::study::difference::terminal(difference, console::width());
    Ok(crate::output::print_table(arguments.json, || difference, text)?)
}
