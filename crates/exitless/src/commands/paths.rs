//! Files that a command line names, among them `-`, and the errors of those that cannot be read.

use std::io;
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::status::{Usage, is_unsuitable};

/// What opens standard input.
const STANDARD_INPUT: &str = "/dev/stdin";

/// Parses a file that is read once: `-` is standard input.
pub(super) fn input() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|path| or_standard_input(&path))
}

/// The path, or that of standard input for `-`.
pub(super) fn or_standard_input(path: &Path) -> PathBuf {
    if is_dash(path) { PathBuf::from(STANDARD_INPUT) } else { path.to_owned() }
}

/// Parses a file that is written besides the result on standard output. `-` would be a file of that name, where everybody
/// expects standard output.
pub(super) fn output() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match is_dash(&path) {
        true => Err("name a file: it cannot be written to standard output; ./- is a file of this name"),
        false => Ok(path),
    })
}

/// Tests whether this stands for standard input or standard output.
pub(super) fn is_dash(path: &Path) -> bool {
    path == Path::new("-")
}

/// The error of a file that cannot be read, which may be the command line's fault.
pub(super) fn unread(what: &str, error: io::Error) -> anyhow::Error {
    match is_unsuitable(&error) {
        true => Usage(format!("{what}: {error}")).into(),
        false => anyhow::Error::new(error).context(what.to_owned()),
    }
}
