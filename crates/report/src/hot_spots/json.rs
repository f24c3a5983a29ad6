//! Hot spots as a document.

use std::collections::BTreeMap;

use exits::ExitReason;
use hotspots::{Event, Head, Losses, Moment, Part, ReasonRow, Recording, Selection, Summary, SymbolRow};
use serde::Serialize;
use stats::Estimate;

use crate::json::Document;

/// The output of `exitless profile --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fields<'a> {
    recording: &'a str,
    selection: &'a Selection,
    /// The kernel of [`Head`]; `kernel` is its functions.
    kernel_release: Option<&'a str>,
    event: Event,
    frequency_hz: Option<u64>,
    cpus: Option<u32>,
    duration_ns: u64,
    away: bool,
    notes: &'a [String],
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
    all: Option<u64>,
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
    sampled_ns: Option<Estimate>,
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

/// The hot spots of `recording`; `summary` was made from it. Figures of sampling are null if the host was not sampled.
#[must_use]
pub fn json<'a>(name: &'a str, recording: &'a Recording, summary: &'a Summary) -> impl Serialize {
    let Head { kernel, event, frequency_hz, cpus, duration_ns, away, notes } = &recording.head;
    let was_sampled = *event != Event::Exits;
    Document::new(Fields {
        recording: name,
        selection: &summary.selection,
        kernel_release: kernel.as_deref(),
        event: *event,
        frequency_hz: was_sampled.then_some(*frequency_hz),
        cpus: was_sampled.then_some(*cpus),
        duration_ns: *duration_ns,
        away: *away,
        notes,
        losses: recording.losses,
        vms: &recording.names,
        samples: Samples {
            in_exits: summary.in_exits,
            in_guests: summary.in_guests,
            in_device_models: summary.in_monitors,
            all: was_sampled.then_some(recording.losses.ticks),
            cut: summary.cut,
        },
        reasons: summary.reasons.iter().map(|row| reason(row, was_sampled)).collect(),
        kernel: &summary.kernel,
        device_models: &summary.monitors,
        guests: &summary.guests,
    })
}

fn reason(row: &ReasonRow, was_sampled: bool) -> ReasonDocument<'_> {
    let part = |(&part, &samples)| PartDocument { part, samples, share: row.share_of(part) };
    ReasonDocument {
        reason: row.reason,
        exits: row.exits,
        handling_ns: row.handling_ns,
        on_cpu_ns: row.on_cpu_ns,
        asleep_ns: row.away.asleep_ns(),
        waited_ns: row.away.waited_ns,
        samples: row.samples,
        sampled_ns: was_sampled.then_some(row.sampled_ns),
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

    #[test]
    fn what_was_not_sampled_has_no_figures_of_samples() {
        let mut recording = recording();
        recording.head.event = Event::Exits;
        let summary = Summary::of(&recording, &hotspots::Selection::default());
        let value = serde_json::to_value(json("a.exits", &recording, &summary)).unwrap();
        for path in ["/frequency_hz", "/cpus", "/samples/all", "/reasons/0/sampled_ns"] {
            assert!(value.pointer(path).is_some_and(serde_json::Value::is_null), "{path}: {value}");
        }
        assert!(value["reasons"][0]["handling_ns"].as_u64() > Some(0), "{value}");
    }
}
