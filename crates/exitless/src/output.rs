//! Results on standard output.

use std::io::{BufWriter, Result, Write as _};

use serde::Serialize;

/// Prints a result as JSON or as text, of which only one is made.
pub(crate) fn print<D: Serialize>(
    json: bool,
    document: impl FnOnce() -> D,
    text: impl FnOnce() -> String,
) -> Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    if json {
        crate::json::write_pretty(&mut out, &document())?;
    } else {
        out.write_all(text().as_bytes())?;
    }
    out.flush()
}
