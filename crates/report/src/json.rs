//! Recordings for programs: JSON documents with a format number. Within one number fields are added, never
//! changed. `docs/report.md` describes them.

mod advice;
mod comparison;
mod enable;
mod examination;
mod findings;
mod fixed;
mod hot_spots;
mod prediction;
mod trace;
mod vms;

use std::collections::{BTreeMap, BTreeSet};

use exits::{Dimension, Grouping, Losses, Selection, Slice, Span, Table, TimelineRow, TimelineRows};
use live::Cost;
use serde::Serialize;
use traces::{Recording, Recordings};

use crate::rows::{Names, RestRow, TableRow, rest_row, table_rows};

pub use advice::{AdviceDocument, advice};
pub(crate) use advice::{name as advice_name, percent as advice_percent};
pub use comparison::{ComparisonDocument, comparison};
pub use enable::{JournalDocument, PlanDocument, kept, plan, restored};
pub use examination::{ExaminationDocument, examination};
pub use findings::{FindingsDocument, findings};
pub use fixed::{FixedDocument, fixed};
pub use hot_spots::{HotAdviceDocument, HotSpotsDocument, hot_advice, hot_spots};
pub use prediction::{PredictionDocument, prediction};
pub use trace::{TraceLine, trace_event, trace_loss};
pub use vms::{VmsDocument, vms};

/// The format number of both documents.
const FORMAT: u32 = 1;

/// The first fields of both documents.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Head {
    format: u32,
    version: &'static str,
    files: Vec<Recording>,
    selection: Selected,
    span: Option<Span>,
}

/// The selected part of the recordings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Selected {
    vms: Vec<String>,
    vcpus: Vec<u32>,
    from_ns: Option<u64>,
    to_ns: Option<u64>,
}

impl Head {
    fn new(recordings: &Recordings) -> Self {
        let Selection { vms, vcpus } = recordings.selection.clone();
        let options = recordings.options;
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            files: recordings.files.clone(),
            selection: Selected { vms, vcpus, from_ns: options.from_ns, to_ns: options.to_ns },
            span: recordings.observed(),
        }
    }
}

/// The output of `exitless report --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProfileDocument {
    #[serde(flatten)]
    head: Head,
    totals: Totals,
    losses: Losses,
    by: Vec<Dimension>,
    rows: Vec<TableRow>,
    other: Option<RestRow>,
    accesses: Vec<TableRow>,
    events: BTreeMap<String, u64>,
}

/// Sums over all selected exits.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Totals {
    observed_ns: u64,
    exits: u64,
    exits_per_second: Option<f64>,
    samples: u64,
    time_ns: u64,
    vms: usize,
    vcpus: usize,
    lost_events: u64,
    lost_percent: Option<f64>,
}

impl Totals {
    fn new(recordings: &Recordings) -> Self {
        let profile = &recordings.profile;
        let all = Table::new(profile, Grouping::by_reason());
        let (exits, observed_ns) = (all.total().count, recordings.observed_ns());
        let vms: BTreeSet<_> = profile.vcpus().iter().map(|exits| exits.vcpu.vm).collect();
        Self {
            observed_ns,
            exits,
            exits_per_second: (observed_ns > 0).then(|| exits as f64 / observed_ns as f64 * 1e9),
            samples: all.total().handling.count(),
            time_ns: all.total().handling.total_ns(),
            vms: vms.len(),
            vcpus: profile.vcpus().len(),
            lost_events: profile.losses.lost_events,
            lost_percent: lost_percent(recordings),
        }
    }
}

/// The share of all events that the recorders lost, in percent; `None` without events.
pub(crate) fn lost_percent(recordings: &Recordings) -> Option<f64> {
    let lost = recordings.profile.losses.lost_events as f64;
    let seen =
        recordings.profile.events.values().fold(0, |sum: u64, &count| sum.saturating_add(count)) as f64;
    (lost + seen > 0.0).then(|| lost / (lost + seen) * 100.0)
}

/// The profile of `recordings` with the rows of `table`, which was made of it.
#[must_use]
pub fn profile(recordings: &Recordings, table: &Table) -> ProfileDocument {
    let profile = &recordings.profile;
    let accesses = [Dimension::Port, Dimension::Mmio, Dimension::Msr, Dimension::Apic, Dimension::Ipi];
    // Accesses of each kind have their own table, so that shares are of that kind.
    let accesses = accesses.into_iter().filter_map(|kind| Grouping::new([kind]).ok()).flat_map(|grouping| {
        let table = Table::new(profile, grouping);
        table_rows(&table, profile)
    });
    ProfileDocument {
        head: Head::new(recordings),
        totals: Totals::new(recordings),
        losses: profile.losses,
        by: table.grouping().dimensions().collect(),
        rows: table_rows(table, profile),
        other: rest_row(table),
        accesses: accesses.collect(),
        events: profile.events.clone(),
    }
}

/// The output of `exitless stat --json`, one line for each interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CountedDocument {
    #[serde(flatten)]
    profile: ProfileDocument,
    /// The cost of the counting programs; `None` unless requested.
    cost: Option<CountingCost>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct CountingCost {
    ns_per_exit: Option<f64>,
    #[serde(flatten)]
    programs: Cost,
}

/// The exits of one interval, with the rows of `table`, which was made of them.
#[must_use]
pub fn counted(recordings: &Recordings, table: &Table, cost: Option<&Cost>) -> CountedDocument {
    let cost = cost.map(|cost| CountingCost { ns_per_exit: cost.ns_per_exit(), programs: cost.clone() });
    CountedDocument { profile: profile(recordings, table), cost }
}

/// The output of `exitless timeline --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimelineDocument {
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

/// The timeline of `recordings` in the rows that were made of it by `grouping`.
#[must_use]
pub fn timeline(recordings: &Recordings, rows: &TimelineRows, grouping: &Grouping) -> TimelineDocument {
    let row = |row: &TimelineRow| SlicesRow {
        names: Names::new(row.key, &recordings.profile),
        slices: Slices::new(row.total, &row.slices),
    };
    TimelineDocument {
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
    }
}
