//! Reads single facts under a root, and records those that are missing.

use crate::{Error, Root};

/// The longest part of a file's content in an error, in characters.
const QUOTE: usize = 80;

/// A root directory and the facts that could not be read under it.
pub(crate) struct Facts<'a> {
    root: &'a Root,
    missing: Vec<String>,
}

impl<'a> Facts<'a> {
    pub(crate) fn new(root: &'a Root) -> Self {
        Self { root, missing: Vec::new() }
    }

    /// The trimmed content of a file, by its path on a running host (`/proc/cmdline`).
    pub(crate) fn text(&self, path: &str, expected: &'static str) -> Result<String, Error> {
        self.root.text(path, expected)
    }

    pub(crate) fn parsed<T>(
        &self,
        path: &str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Error> {
        let text = self.text(path, expected)?;
        parse(&text).ok_or_else(|| Error::Content {
            path: self.root.place(path),
            found: text.chars().take(QUOTE).collect(),
            expected,
            next: "report the file's content",
        })
    }

    /// The value, or `None` with a note under the field's name.
    pub(crate) fn keep<T>(&mut self, field: &str, fact: Result<T, Error>) -> Option<T> {
        match fact {
            Ok(value) => Some(value),
            Err(error) => {
                self.note(field, &with_source(&error));
                None
            }
        }
    }

    pub(crate) fn note(&mut self, field: &str, cause: &str) {
        self.missing.push(format!("{field}: {cause}"));
    }

    pub(crate) fn into_missing(self) -> Vec<String> {
        self.missing
    }
}

fn with_source(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error} ({source})"),
        None => error.to_string(),
    }
}
