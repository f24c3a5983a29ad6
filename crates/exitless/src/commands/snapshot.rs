//! `exitless snapshot`: all facts by which a host is judged, in one archive.

use exits::counted;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use host::snapshot::{self, Manifest, Snapshot};

use crate::status;

const TOOL: &str = concat!("exitless ", env!("CARGO_PKG_VERSION"));

/// Arguments of `snapshot`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The archive to write (tar, compressed with zstd), readable only by its owner; `-` for standard output.
    #[arg(value_name = "OUT.tar.zst")]
    output: PathBuf,
    /// Another host instead of this one: a directory with its proc and sys, or an archive.
    #[arg(long, value_name = "DIR|ARCHIVE", default_value = "/")]
    root: PathBuf,
    /// Print the archive's manifest as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let to_standard_output = arguments.output == Path::new("-");
    if to_standard_output && arguments.json {
        return Err(status::Usage(
            "The archive and its description cannot both go to standard output; give a file".to_owned(),
        )
        .into());
    }
    if to_standard_output && std::io::stdout().is_terminal() {
        return Err(status::Usage(
            "An archive cannot go to a terminal; give a file, or redirect standard output".to_owned(),
        )
        .into());
    }
    let opened = snapshot::open(&arguments.root)?;
    let damaged = !opened.warnings.is_empty();
    for warning in &opened.warnings {
        tracing::warn!("{}: {warning}", arguments.root.display());
    }
    let snapshot = Snapshot::take(opened.root, TOOL)?;
    if to_standard_output {
        snapshot.write(std::io::stdout().lock()).context("Could not write the archive to standard output")?;
    } else {
        let name = arguments.output.display();
        snapshot
            .save(&arguments.output)
            .with_context(|| format!("Could not write {name}; choose another place"))?;
    }
    if arguments.json {
        let mut out = std::io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, snapshot.manifest())?;
        writeln!(out)?;
    } else {
        tell(&arguments.output, snapshot.manifest());
    }
    let denied = snapshot.manifest().denied().count();
    if let Some(first) = snapshot.manifest().denied().next() {
        let more = if denied > 1 { format!(" and {} more", denied - 1) } else { String::new() };
        tracing::warn!(
            "{first}{more} may not be read by this user and is not in it; root can read everything"
        );
    }
    Ok(ExitCode::from(match (damaged, denied) {
        (true, _) => status::DAMAGED,
        (false, 0) => 0,
        (false, _) => status::SOME_FAILED,
    }))
}

fn tell(output: &Path, manifest: &Manifest) {
    let bytes: u64 = manifest.files.values().sum();
    let place = if output == Path::new("-") { "standard output".into() } else { output.to_string_lossy() };
    let files = counted(manifest.files.len() as u64, "file");
    eprintln!("{place}: {files}, {} KiB unpacked", bytes.div_ceil(1024));
    for one in &manifest.removed {
        eprintln!("  removed from {}: {} ({})", one.path, one.what, one.count);
    }
}
