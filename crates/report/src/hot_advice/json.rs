//! Advice with hot spots as a document.

use std::collections::BTreeMap;

use advice::{Advice, hot};
use exits::ExitReason;
use hotspots::{Part, Recording, SymbolRow};
use serde::Serialize;
use stats::Estimate;

use crate::advice::words::name;

/// The output of `exitless advise --profile --json`: the advice, and the functions in which each device's exits spend their
/// time.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fields<T> {
    #[serde(flatten)]
    advice: T,
    hot_spots: Vec<DeviceDocument>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct DeviceDocument {
    vm: Option<u32>,
    name: String,
    reasons: Vec<ExitReason>,
    samples: u64,
    parts: BTreeMap<Part, Estimate>,
    functions: Vec<SymbolRow>,
}

/// Advice with the hot spots of its devices.
#[must_use]
pub fn json(document: impl Serialize, advice: &Advice<'_>, recording: &Recording) -> impl Serialize {
    let rows = advice.vms.iter().flat_map(|vm| vm.rows.iter().map(move |row| (vm, row)));
    let devices = rows.filter(|(_, row)| !row.sleeps()).filter_map(|(vm, row)| {
        let hot = hot(vm, row, recording)?;
        Some(DeviceDocument {
            vm: vm.vm,
            name: name(row.of),
            reasons: hot.reasons.into_iter().collect(),
            samples: hot.samples,
            parts: hot.parts.into_iter().collect(),
            functions: hot.functions,
        })
    });
    Fields { advice: document, hot_spots: devices.collect() }
}
