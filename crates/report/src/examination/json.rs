//! The result of `exitless doctor`, for programs.

use doctor::Examination;
use serde::Serialize;

use crate::json::Document;

#[derive(Serialize)]
struct Fields<'a> {
    /// The subject: `/`, a directory or an archive.
    subject: &'a str,
    /// Faults of the archive, with byte offsets.
    warnings: &'a [String],
    #[serde(flatten)]
    examination: &'a Examination,
}

/// The output of `doctor --json`.
#[must_use]
pub fn json<'a>(
    subject: &'a str,
    examination: &'a Examination,
    warnings: &'a [String],
) -> impl Serialize + 'a {
    Document::new(Fields { subject, warnings, examination })
}
