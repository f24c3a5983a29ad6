//! A comparison as a document.

use std::collections::BTreeMap;

use conclusions::profile_comparison::ProfileComparison;
use exits::Dimension;
use serde::Serialize;
use traces::{Recording, Recordings, Unlike};

use super::compared::Compared;
use super::{doubts, verdict};
use crate::json::Document;
use crate::recordings::json::Selected;

/// The output of `exitless diff --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fields {
    files: BTreeMap<&'static str, Vec<Recording>>,
    /// The selected part of every recording; `None` without recordings.
    selection: Option<Selected>,
    unlike: Vec<Unlike>,
    by: Vec<Dimension>,
    confidence: f64,
    verdict_text: String,
    doubt_texts: Vec<String>,
    #[serde(flatten)]
    comparison: ProfileComparison,
}

/// The comparison with its recordings.
#[must_use]
pub fn json(compared: &Compared<'_>) -> impl Serialize {
    let files = |recordings: &[Recordings]| recordings.iter().flat_map(|one| one.files.clone()).collect();
    Document::new(Fields {
        files: compared.sides().map(|(name, recordings)| (name, files(recordings))).into(),
        selection: compared.any().map(Selected::new),
        unlike: compared.unlike.to_vec(),
        by: compared.grouping.dimensions().collect(),
        confidence: stats::CONFIDENCE,
        verdict_text: verdict::verdict(compared),
        doubt_texts: doubts::doubts(compared),
        comparison: compared.comparison.clone(),
    })
}
