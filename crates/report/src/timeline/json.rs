//! A timeline as a document.

use exits::{Dimension, Grouping, Losses, Slice, TimelineRow, TimelineRows};
use serde::Serialize;
use traces::Recordings;

use crate::json::Document;
use crate::recordings::json::Head;
use crate::recordings::rows::Names;

/// The output of `exitless timeline --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fields {
    #[serde(flatten)]
    head: Head,
    losses: Losses,
    by: Vec<Dimension>,
    start_ns: u64,
    width_ns: u64,
    slices: usize,
    rows: Vec<SlicesRow>,
    other: Option<RestSlices>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct SlicesRow {
    #[serde(flatten)]
    names: Names,
    #[serde(flatten)]
    slices: Slices,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct RestSlices {
    rows: usize,
    #[serde(flatten)]
    slices: Slices,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Slices {
    exits: u64,
    time_ns: u64,
    exits_by_slice: Vec<u64>,
    time_ns_by_slice: Vec<u64>,
}

impl Slices {
    fn new(total: Slice, slices: &[Slice]) -> Self {
        Self {
            exits: total.count,
            time_ns: total.handling_ns,
            exits_by_slice: slices.iter().map(|slice| slice.count).collect(),
            time_ns_by_slice: slices.iter().map(|slice| slice.handling_ns).collect(),
        }
    }
}

/// The timeline of `recordings` in `rows`, which were made from it by `grouping`.
#[must_use]
pub fn json(recordings: &Recordings, rows: &TimelineRows, grouping: &Grouping) -> impl Serialize {
    let row = |row: &TimelineRow| SlicesRow {
        names: Names::new(row.key, &recordings.profile),
        slices: Slices::new(row.total, &row.slices),
    };
    Document::new(Fields {
        head: Head::new(recordings),
        losses: recordings.profile.losses,
        by: grouping.dimensions().collect(),
        start_ns: rows.start_ns(),
        width_ns: rows.width_ns(),
        slices: rows.len(),
        rows: rows.rows().iter().map(row).collect(),
        other: rows
            .rest()
            .map(|rest| RestSlices { rows: rest.rows, slices: Slices::new(rest.total, &rest.slices) }),
    })
}
