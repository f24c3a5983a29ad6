//! The exits of an interval as a document.

use exits::Table;
use live::Cost;
use serde::Serialize;
use traces::Recordings;

use crate::profile;

/// The output of `exitless stat --json`, one line for each interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fields<T> {
    #[serde(flatten)]
    profile: T,
    /// The cost of the counting programs; `None` unless requested.
    cost: Option<CountingCost>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct CountingCost {
    ns_per_exit: Option<f64>,
    #[serde(flatten)]
    programs: Cost,
}

/// The exits of one interval, with the rows of `table`, which was made from them.
#[must_use]
pub fn json(recordings: &Recordings, table: &Table, cost: Option<&Cost>) -> impl Serialize {
    let cost = cost.map(|cost| CountingCost { ns_per_exit: cost.ns_per_exit(), programs: cost.clone() });
    Fields { profile: profile::json(recordings, table), cost }
}
