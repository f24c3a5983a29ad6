//! A profile as a document.

use std::collections::{BTreeMap, BTreeSet};

use exits::{Dimension, Grouping, Losses, Table};
use serde::Serialize;
use traces::Recordings;

use crate::json::Document;
use crate::recordings::json::Head;
use crate::recordings::rows::{RestRow, TableRow, rest_row, table_rows};
use crate::recordings::words::lost_percent;

/// The output of `exitless report --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fields {
    #[serde(flatten)]
    head: Head,
    totals: Totals,
    losses: Losses,
    by: Vec<Dimension>,
    /// The bound of `over_threshold` in rows, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    threshold_ns: Option<u64>,
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
            lost_percent: lost_percent([&recordings.profile]),
        }
    }
}

/// The profile of `recordings` with the rows of `table`, which was made from it.
#[must_use]
pub fn json(recordings: &Recordings, table: &Table) -> impl Serialize {
    let profile = &recordings.profile;
    let accesses = [
        Dimension::Port,
        Dimension::Mmio,
        Dimension::Msr,
        Dimension::Apic,
        Dimension::Ipi,
        Dimension::Nested,
    ];
    // A table for each kind of access, so that shares are of the kind's total.
    let accesses = accesses.into_iter().filter_map(|kind| Grouping::new([kind]).ok()).flat_map(|grouping| {
        let table = Table::new(profile, grouping);
        table_rows(&table, profile)
    });
    Document::new(Fields {
        head: Head::new(recordings),
        totals: Totals::new(recordings),
        losses: profile.losses,
        by: table.grouping().dimensions().collect(),
        threshold_ns: table.threshold_ns(),
        rows: table_rows(table, profile),
        other: rest_row(table),
        accesses: accesses.collect(),
        events: profile.events.clone(),
    })
}
