//! The result of `exitless doctor`, for programs.

use doctor::{Conclusion, Examination, Section, Tally};
use serde::Serialize;

use crate::json::FORMAT;

/// An examination.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExaminationDocument<'a> {
    format: u32,
    version: &'static str,
    /// The subject: `/`, a directory or an archive.
    subject: &'a str,
    /// Faults of the archive, with byte offsets.
    warnings: &'a [String],
    conclusion: &'a Conclusion,
    summary: Tally,
    sections: &'a [Section],
}

/// The output of `doctor --json`.
#[must_use]
pub fn json<'a>(
    subject: &'a str,
    examination: &'a Examination,
    warnings: &'a [String],
) -> ExaminationDocument<'a> {
    ExaminationDocument {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION"),
        subject,
        warnings,
        conclusion: &examination.conclusion,
        summary: examination.summary,
        sections: &examination.sections,
    }
}
