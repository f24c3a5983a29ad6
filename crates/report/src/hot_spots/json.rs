//! Hot spots as a document.

use std::collections::BTreeMap;

use exits::ExitReason;
use hotspots::{Head, Losses, Moment, Part, ReasonRow, Recording, Selection, Summary, SymbolRow};
use serde::Serialize;
use stats::Estimate;

use crate::json::Document;

/// The output of `exitless profile --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fields<'a> {
    recording: &'a str,
    selection: &'a Selection,
    #[serde(flatten)]
    head: &'a Head,
    losses: Losses,
    vms: &'a BTreeMap<u32, String>,
    samples: Samples,
    reasons: Vec<ReasonDocument<'a>>,
    kernel: &'a [SymbolRow],
    device_models: &'a [SymbolRow],
    guests: &'a [SymbolRow],
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Samples {
    in_exits: u64,
    in_guests: u64,
    in_device_models: u64,
    all: u64,
    cut: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct ReasonDocument<'a> {
    reason: ExitReason,
    exits: u64,
    handling_ns: u64,
    on_cpu_ns: u64,
    asleep_ns: u64,
    waited_ns: u64,
    samples: u64,
    sampled_ns: Estimate,
    parts: Vec<PartDocument>,
    functions: &'a [SymbolRow],
    without_cpu: &'a [Moment],
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct PartDocument {
    part: Part,
    samples: u64,
    share: Option<Estimate>,
}

/// The hot spots of `recording`; `summary` was made from it.
#[must_use]
pub fn json<'a>(name: &'a str, recording: &'a Recording, summary: &'a Summary) -> impl Serialize {
    Document::new(Fields {
        recording: name,
        selection: &summary.selection,
        head: &recording.head,
        losses: recording.losses,
        vms: &recording.names,
        samples: Samples {
            in_exits: summary.in_exits,
            in_guests: summary.in_guests,
            in_device_models: summary.in_monitors,
            all: recording.losses.ticks,
            cut: summary.cut,
        },
        reasons: summary.reasons.iter().map(reason).collect(),
        kernel: &summary.kernel,
        device_models: &summary.monitors,
        guests: &summary.guests,
    })
}

fn reason(row: &ReasonRow) -> ReasonDocument<'_> {
    let part = |(&part, &samples)| PartDocument { part, samples, share: row.share_of(part) };
    ReasonDocument {
        reason: row.reason,
        exits: row.exits,
        handling_ns: row.handling_ns,
        on_cpu_ns: row.on_cpu_ns,
        asleep_ns: row.away.asleep_ns(),
        waited_ns: row.away.waited_ns,
        samples: row.samples,
        sampled_ns: row.sampled_ns,
        parts: row.parts.iter().map(part).collect(),
        functions: &row.by_own,
        without_cpu: &row.moments,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hot_spots::sample::recording;

    #[test]
    fn the_document_has_every_figure_of_the_page() {
        let recording = recording();
        let summary = Summary::of(&recording, &hotspots::Selection::default());
        let text = serde_json::to_string_pretty(&json("this host", &recording, &summary)).unwrap();
        insta::assert_snapshot!(text);
    }
}
