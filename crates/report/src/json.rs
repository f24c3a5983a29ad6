//! Documents for programs: JSON with a format number. Within one number fields are added, never changed.
//! `docs/report.md` describes them.

/// The format number of all documents.
pub(crate) const FORMAT: u32 = 1;
