//! `exitless collect-script`: a shell script that collects what `doctor` reads, for hosts where nothing may be installed.

use std::io::Write as _;
use std::process::ExitCode;

const SCRIPT: &str = include_str!("collect.sh");

/// Prints the script.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let script = SCRIPT.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    std::io::stdout().lock().write_all(script.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
