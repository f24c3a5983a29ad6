//! `exitless experiment diff`: two results of one plan.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use study::analysis::{Collected, StudyDifference, difference};

use super::report::read;
use crate::status::Usage;
use crate::{console, status};

/// Arguments of `experiment diff`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The result before.
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The result after.
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// Print everything as JSON.
    #[arg(long)]
    json: bool,
    /// Also compare results in which runs of one arm are from different hosts or guests; the comparison says so.
    #[arg(long)]
    allow_unlike: bool,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let (before, after) = (read(&arguments.before)?, read(&arguments.after)?);
    let difference =
        difference(&before, &after, arguments.allow_unlike).map_err(|error| Usage(error.to_string()))?;
    for side in [&before, &after] {
        warn_of(side);
    }
    print(&difference, arguments)?;
    let is_damaged = !before.damage.is_empty() || !after.damage.is_empty();
    Ok(ExitCode::from(if is_damaged { status::DAMAGED } else { 0 }))
}

fn warn_of(side: &Collected) {
    side.damage.iter().for_each(|damage| tracing::warn!("{damage}"));
    let missing = side.planned.saturating_sub(side.runs.len());
    if missing > 0 {
        tracing::warn!(
            "{} on {}: {missing} of {} {} missing",
            side.facts.name,
            side.facts.target,
            exits::counted(side.planned as u64, "planned run"),
            exits::agree(missing as u64, "is", "are")
        );
    }
}

fn print(difference: &StudyDifference, arguments: &Arguments) -> anyhow::Result<()> {
    let text = || report::study::difference::terminal(difference, console::width());
    Ok(crate::output::print(arguments.json, || difference, text)?)
}
