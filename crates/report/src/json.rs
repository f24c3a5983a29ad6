//! Documents for programs: JSON with a format number. Within one format fields are added, never changed. `docs/report.md`
//! describes them.

use serde::Serialize;

/// The format number of all documents.
const FORMAT: u32 = 1;

/// A result with the fields that all documents begin with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Document<T> {
    format: u32,
    version: &'static str,
    #[serde(flatten)]
    result: T,
}

impl<T> Document<T> {
    /// Makes the document of a result, which is an object.
    #[must_use]
    pub const fn new(result: T) -> Self {
        Self { format: FORMAT, version: env!("CARGO_PKG_VERSION"), result }
    }
}
