//! Results on standard output.

use std::io::{BufWriter, ErrorKind, Result, StdoutLock, Write as _};

use serde::Serialize;

use crate::console;

/// Prints a result as JSON or as text, of which only one is made.
pub(crate) fn print<D: Serialize>(
    json: bool,
    document: impl FnOnce() -> D,
    text: impl FnOnce() -> String,
) -> Result<()> {
    write(|out| match json {
        true => crate::json::write_pretty(out, &document()),
        false => out.write_all(text().as_bytes()),
    })
}

/// As [`print`], if the text is a table: in a locale that is not UTF-8, its symbols are in ASCII.
pub(crate) fn print_table<D: Serialize>(
    json: bool,
    document: impl FnOnce() -> D,
    table: impl FnOnce() -> String,
) -> Result<()> {
    print(json, document, || console::shown(table()))
}

/// Writes a result. If the reader has gone, that is no error: the work is done, and its exit status counts.
pub(crate) fn write(result: impl FnOnce(&mut BufWriter<StdoutLock<'static>>) -> Result<()>) -> Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    match result(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
