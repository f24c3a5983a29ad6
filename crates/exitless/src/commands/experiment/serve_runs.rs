//! The hidden subcommand that `experiment run` starts on another machine: receives a request, makes runs, and
//! sends them.

use std::fs::File;
use std::io::{BufWriter, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use clap::Args;
use study::engine::Here;
use study::target::serve;

use super::runs::{files, place};
use crate::interrupt;

/// Arguments of `experiment serve-runs`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The request, if it does not come on standard input.
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let stop = interrupt::flag()?;
    let folder = tempfile::Builder::new().prefix("exitless-study-").tempdir_in(place());
    let folder = folder.context("Could not create a folder for the guests")?;
    let mut rig = Here::new(&folder.path().join("guests"), Box::new(|folder| files(folder, &stop)));
    let runs = folder.path().join("runs");
    let output = BufWriter::new(std::io::stdout());
    match &arguments.request {
        Some(path) => {
            let request = File::open(path).with_context(|| format!("Could not open {}", path.display()))?;
            serve(request, output, &runs, &mut rig, &stop, || ())?;
        }
        None => {
            let when_read = || stop_at_end_of_input(&stop);
            serve(std::io::stdin(), output, &runs, &mut rig, &stop, when_read)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Sets `stop` when standard input ends: the requester keeps it open while it wants runs.
fn stop_at_end_of_input(stop: &Arc<AtomicBool>) {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut byte = [0];
        while let Ok(1..) = std::io::stdin().read(&mut byte) {}
        stop.store(true, Ordering::Relaxed);
    });
}
