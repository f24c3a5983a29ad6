//! `exitless snapshot`: all facts by which a host is judged, in one archive.

use exits::counted;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use host::snapshot::{self, Manifest, Snapshot};
use host::vms::AS_ROOT;

use super::paths;
use super::recordings::check_outputs;
use crate::{console, status};

const TOOL: &str = concat!("exitless ", env!("CARGO_PKG_VERSION"));

/// Arguments of `snapshot`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The archive to write (tar, compressed with zstd), readable only by its owner; `-` for standard output.
    #[arg(value_name = "OUT.tar.zst")]
    output: PathBuf,
    /// Another host instead of this one: a directory with its proc and sys, or an archive.
    #[arg(long, value_name = "DIR|ARCHIVE", value_parser = paths::input(), default_value = "/")]
    root: PathBuf,
    /// Print the archive's manifest as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let to_standard_output = paths::is_dash(&arguments.output);
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
    if !to_standard_output {
        check_outputs([&arguments.root], [&Some(arguments.output.clone())])?;
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
        crate::output::write(|out| crate::json::write_pretty(out, snapshot.manifest()))?;
    } else {
        tell(&arguments.output, snapshot.manifest());
    }
    let denied = snapshot.manifest().denied().count();
    if let Some(first) = snapshot.manifest().denied().next() {
        tracing::warn!("{}", not_read(first, denied));
    }
    Ok(ExitCode::from(match (damaged, denied) {
        (true, _) => status::DAMAGED,
        (false, 0) => 0,
        (false, _) => status::SOME_FAILED,
    }))
}

/// The warning about files that this user may not read; it names the first.
fn not_read(first: &str, number: usize) -> String {
    let which = match number {
        1 => format!("{first} could not be read and is"),
        _ => format!("{first} and {} more could not be read and are", number - 1),
    };
    format!("{which} not in the archive; {AS_ROOT}")
}

fn tell(output: &Path, manifest: &Manifest) {
    let bytes: u64 = manifest.files.values().sum();
    let place = if paths::is_dash(output) { "standard output".into() } else { output.to_string_lossy() };
    let files = counted(manifest.files.len() as u64, "file");
    console::say(format_args!("{place}: {files}, {} KiB unpacked", bytes.div_ceil(1024)));
    for one in &manifest.removed {
        console::say(format_args!("  removed from {}: {} ({})", one.path, one.what, one.count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_were_not_read_are_counted_in_a_sentence() {
        let many = not_read("/proc/1/fd/0", 263);
        let right = "/proc/1/fd/0 and 262 more could not be read and are not in the archive; run as root, with CAP_SYS";
        assert!(many.starts_with(right), "{many}");
        assert!(
            not_read("/proc/1/fd/0", 1)
                .starts_with("/proc/1/fd/0 could not be read and is not in the archive;")
        );
    }
}
