//! `exitless restore`: undoing what exitless changed of this host.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use knobs::{Journal, Restore, RunningHost};

use crate::{console, status};

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only show what would be undone.
    #[arg(long)]
    dry_run: bool,
    /// Show all changes that the journal keeps, those that were undone too.
    #[arg(long, conflicts_with_all = ["dry_run", "force", "run_scripts"])]
    list: bool,
    /// Undo also what others have changed since.
    #[arg(long)]
    force: bool,
    /// Run the scripts of plans that take changes back, for which their process found no time. They may do anything: look
    /// at them by --dry-run first.
    #[arg(long)]
    run_scripts: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let root = Path::new("/");
    let mut out = std::io::stdout().lock();
    let width = console::width();
    if arguments.list {
        let recorded = Journal::read(root)?;
        if arguments.json {
            serde_json::to_writer_pretty(&mut out, &report::json::kept(&recorded))?;
            writeln!(out)?;
        } else {
            out.write_all(report::terminal::kept(&recorded, width).as_bytes())?;
        }
        let is_damaged = recorded.damage.iter().any(|damage| !damage.cut);
        return Ok(ExitCode::from(if is_damaged { status::SOME_FAILED } else { 0 }));
    }
    // A change is undone whole or not at all; a second signal ends it all the same, and what is left stays recorded.
    let _signals = crate::interrupt::flag()?;
    let how =
        Restore { force: arguments.force, dry_run: arguments.dry_run, run_scripts: arguments.run_scripts };
    let restored = knobs::restore(root, &mut RunningHost, how)?;
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &report::json::restored(&restored))?;
        writeln!(out)?;
    } else {
        out.write_all(report::terminal::restored(&restored, width).as_bytes())?;
    }
    Ok(ExitCode::from(if restored.incomplete() { status::SOME_FAILED } else { 0 }))
}
