//! The tables of `exitless probe`: the distribution of cycles, and the exits of an operation.

use std::fmt::Write;

use probe::run::Arm;
use prove::{CountedRun, Proof, Recording};

use crate::format;
use crate::prove::evidence::evidence;
use crate::prove::tables::{Line, drawn};
use crate::prove::words;
use crate::terminal::{NARROWEST, wrapped};
use crate::text;

/// The minimum exits per operation of a listed reason: rarer ones are the host's own interrupts.
const RAREST: f64 = 0.005;

/// The costs of the micro VM's measures, in each available arm.
///
/// No line is wider than `width` columns if `width` is at least 80.
pub fn terminal(outcome: &Proof, recording: &Recording, width: usize) -> String {
    let width = width.max(NARROWEST);
    let mut text = wrapped("Cost of one operation in TSC cycles", width, "", "");
    text.push('\n');
    // Eight columns leave no room for long titles.
    let header = ["operation", "arm", "min", "p50", "p90", "p99", "p99.9", "max"];
    text.push_str(&drawn(&header, &costs(outcome), width, false));
    text.push_str("\nVM exits an operation, by reason\n\n");
    for row in &outcome.measures {
        for run in [Arm::Off, Arm::On].into_iter().filter_map(|arm| recording.counted_run(row.measure, arm)) {
            let line = format!("{}, {}: {}", row.measure.title(), words::arm(run.run.arm), exits(run));
            text.push_str(&wrapped(&line, width, "", "    "));
        }
    }
    for failure in &recording.failures {
        let line = format!("{}, {}: {}", failure.measure, words::arm(failure.arm), failure.why);
        let indent = if failure.counted { "Exits not counted: " } else { "Not measured: " };
        text.push_str(&wrapped(&line, width, indent, "    "));
    }
    text.push('\n');
    text.push_str(&wrapped(&evidence(outcome), width, "", ""));
    text
}

fn costs(outcome: &Proof) -> Vec<Line> {
    let rows = outcome.measures.iter().flat_map(|row| {
        [Arm::Off, Arm::On]
            .into_iter()
            .filter_map(move |arm| row.cost.of(arm).map(|cost| (row.measure, arm, cost)))
    });
    rows.map(|(measure, arm, cost)| {
        let spread = cost.pooled;
        let mut cells =
            vec![measure.name().to_owned(), words::arm(arm).to_owned(), compact(spread.minimum as f64)];
        cells.extend([spread.median, spread.p90, spread.p99, spread.p999].map(compact));
        cells.push(compact(spread.maximum as f64));
        Line::plain(cells)
    })
    .collect()
}

/// Cycles in at most seven characters, so that six of them fit beside the names.
fn compact(value: f64) -> String {
    const MILLION: f64 = 1e6;
    match value {
        value if value < MILLION => format::cycles(value),
        value if value < 100.0 * MILLION => format!("{:.2} M", value / MILLION),
        value => format!("{:.0} M", value / MILLION),
    }
}

/// The exits per operation: by reason if tracepoints counted them, else by KVM's statistics.
fn exits(run: &CountedRun) -> String {
    let operations = run.operations() as f64;
    let counted: Vec<(String, u64)> = match &run.exits {
        Some(exits) => exits.iter().map(|(reason, count)| (reason.to_string(), count)).collect(),
        None => {
            let kinds = run.run.statistics.iter().filter(|(name, _)| name.ends_with("exits"));
            kinds.map(|(name, &count)| (name.clone(), count)).collect()
        }
    };
    let mut text = String::new();
    for (name, count) in counted {
        let rate = count as f64 / operations;
        if rate >= RAREST {
            let separator = if text.is_empty() { "" } else { ", " };
            // Writing to a String cannot fail.
            let _ = write!(text, "{separator}{} {}", text::printable(&name), format::per_operation(rate));
        }
    }
    if text.is_empty() { "none".to_owned() } else { text }
}
