//! A converted definition on standard output, and its losses on standard error.

use std::io::Write;
use std::process::ExitCode;

use domain::convert::Converted;

use crate::{console, status};

/// Prints it.
pub(super) fn print(converted: &Converted, json: bool) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, converted)?;
        writeln!(out)?;
    } else {
        out.write_all(converted.text.as_bytes())?;
        out.flush()?;
        let told = report::converted::terminal(converted, console::width());
        std::io::stderr().lock().write_all(told.as_bytes())?;
    }
    Ok(if converted.losses.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(status::SOME_FAILED) })
}
