//! A prediction as a document.

use conclusions::prediction::{
    Already, Assumption, Fate, Part, PredictedRow, Prediction, Range, Rule, Totals,
};
use exits::{ExitReason, Isa, Nested};
use serde::Serialize;
use traces::Recordings;

use crate::json::Document;
use crate::recordings::json::Head;

/// The output of `exitless predict --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fields {
    #[serde(flatten)]
    head: Head,
    observed_ns: u64,
    isas: Vec<Isa>,
    assumption: Assumption,
    totals: TotalsDocument,
    rows: Vec<RowDocument>,
    already: Vec<Already>,
    nested: Nested,
    record: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct TotalsDocument {
    #[serde(flatten)]
    totals: Totals,
    #[serde(flatten)]
    derived: Derived,
    exits_per_second: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct RowDocument {
    reason: ExitReason,
    /// The part of the reason: `whole`, `rest`, `nested`, or the register.
    part: String,
    fate: Fate,
    rule: Rule,
    why: &'static str,
    source: &'static str,
    becomes: Option<ExitReason>,
    idle: bool,
    exits: u64,
    exits_per_second: Option<f64>,
    gone_exits: Range,
    time_ns: u64,
    gone_time_ns: Range,
    #[serde(flatten)]
    derived: Derived,
}

/// Values derived from counts and the observed time.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Derived {
    gone_exits_per_second: Option<Range>,
    gone_exits_percent: Option<Range>,
    gone_time_percent: Option<Range>,
    stay_exits: Range,
    stay_time_ns: Range,
}

impl Derived {
    fn new(exits: u64, gone_exits: Range, time_ns: u64, gone_time_ns: Range, observed_ns: u64) -> Self {
        let (exits, time_ns) = (exits as f64, time_ns as f64);
        Self {
            gone_exits_per_second: (observed_ns > 0).then(|| gone_exits.times(1e9 / observed_ns as f64)),
            gone_exits_percent: gone_exits.percent_of(exits),
            gone_time_percent: gone_time_ns.percent_of(time_ns),
            stay_exits: gone_exits.rest_of(exits),
            stay_time_ns: gone_time_ns.rest_of(time_ns),
        }
    }
}

/// The prediction with its recordings.
#[must_use]
pub fn json(recordings: &Recordings, prediction: &Prediction) -> impl Serialize {
    let observed_ns = prediction.observed_ns;
    let per_second = |exits: u64| (observed_ns > 0).then(|| exits as f64 / observed_ns as f64 * 1e9);
    let row = |row: &PredictedRow| RowDocument {
        reason: row.reason,
        part: match row.part {
            Part::Whole => "whole".to_owned(),
            Part::Nested => "nested".to_owned(),
            Part::Rest => "rest".to_owned(),
            Part::Access(access) => access.to_string(),
        },
        fate: row.fate(),
        rule: row.rule,
        why: row.rule.why(prediction.assumption.hypervisor),
        source: row.rule.source(prediction.assumption.hypervisor),
        becomes: row.becomes,
        idle: row.is_idle(),
        exits: row.exits,
        exits_per_second: per_second(row.exits),
        gone_exits: row.gone_exits,
        time_ns: row.time_ns,
        gone_time_ns: row.gone_time_ns,
        derived: Derived::new(row.exits, row.gone_exits, row.time_ns, row.gone_time_ns, observed_ns),
    };
    let totals = prediction.totals;
    let derived =
        Derived::new(totals.exits, totals.gone_exits, totals.time_ns, totals.gone_time_ns, observed_ns);
    Document::new(Fields {
        head: Head::new(recordings),
        observed_ns,
        isas: prediction.isas.clone(),
        assumption: prediction.assumption,
        totals: TotalsDocument { totals, derived, exits_per_second: per_second(totals.exits) },
        rows: prediction.rows.iter().map(row).collect(),
        already: prediction.already.clone(),
        nested: prediction.nested,
        record: prediction.record.clone(),
    })
}
