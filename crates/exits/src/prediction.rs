//! Which of today's exits would go with interrupt virtualization, and which would stay.
//!
//! A recording without APICv or AVIC holds the exits that these would take away, but not always what each
//! was for. So a prediction is a range: `low` and `high` are what the counts allow, `expected` is what the
//! rule of the row makes of them. `docs/predict.md` has the reasoning and the formula of each row.

mod already;
mod assumption;
mod evidence;
mod kicks;
mod range;
mod register;
mod row;
mod rule;
mod rules;
mod share;
mod split;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::{Isa, Profile, VcpuExits};
pub use already::Already;
pub use assumption::{Apicv, Assumption, Avic};
pub use range::Range;
pub use row::{Fate, Part, PredictedRow};
pub use rule::Rule;
pub use split::{Piece, split};

use evidence::Evidence;
use row::Rows;

/// What would become of the exits of a profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// What was assumed of the host.
    pub assumption: Assumption,
    /// For how long the exits were observed, nanoseconds.
    pub observed_ns: u64,
    /// The instruction sets of the exits, in order.
    pub isas: Vec<Isa>,
    /// The exits by reason, and by register where that decides; those of which most go first.
    pub rows: Vec<PredictedRow>,
    /// Sums of the rows.
    pub totals: Totals,
    /// VMs that show signs of interrupt virtualization being active already.
    pub already: Vec<Already>,
    /// Events of the kernel that would have made the ranges narrower.
    pub record: Vec<String>,
}

/// Sums over all rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Exits of today.
    pub exits: u64,
    /// How many of them would go.
    pub gone_exits: Range,
    /// Handling times of today, nanoseconds, without those of [`Self::idle_ns`].
    pub time_ns: u64,
    /// How much of that would go, nanoseconds.
    pub gone_time_ns: Range,
    /// Handling times of exits in which the vCPU sleeps, nanoseconds: no cost, so in no other sum.
    pub idle_ns: u64,
}

/// Predicts for `profile`, which was observed for `observed_ns` nanoseconds.
///
/// VMs are predicted one by one and summed up. Counts of events are of a whole source, so they serve as
/// upper bounds only: a part of a profile may be given.
#[must_use]
pub fn predict(profile: &Profile, observed_ns: u64, assumption: &Assumption) -> Prediction {
    let mut vms: BTreeMap<Option<u32>, Vec<&VcpuExits>> = BTreeMap::new();
    for vcpu in profile.vcpus() {
        vms.entry(vcpu.vcpu.vm).or_default().push(vcpu);
    }
    let mut rows = Rows::default();
    let mut already = Vec::new();
    for (vm, vcpus) in vms {
        let evidence = Evidence::new(&vcpus, &profile.events);
        already.extend(Already::of(vm, &evidence));
        rules::predict_vm(&vcpus, &evidence, observed_ns, assumption, &mut rows);
    }
    let mut isas: Vec<Isa> = profile.reasons().into_keys().map(|reason| reason.isa).collect();
    isas.dedup();
    let rows = rows.sorted();
    let mut record: Vec<String> =
        rows.iter().flat_map(|row| row.wanting(&profile.events)).map(str::to_owned).collect();
    record.sort_unstable();
    record.dedup();
    Prediction {
        assumption: *assumption,
        observed_ns,
        isas,
        totals: Totals::of(&rows),
        rows,
        already,
        record,
    }
}

impl Totals {
    fn of(rows: &[PredictedRow]) -> Self {
        let mut totals = Self::default();
        for row in rows {
            totals.exits = totals.exits.saturating_add(row.exits);
            totals.gone_exits += row.gone_exits;
            if row.is_idle() {
                totals.idle_ns = totals.idle_ns.saturating_add(row.time_ns);
            } else {
                totals.time_ns = totals.time_ns.saturating_add(row.time_ns);
                totals.gone_time_ns += row.gone_time_ns;
            }
        }
        totals
    }
}

#[cfg(test)]
#[path = "prediction/prediction_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "prediction/properties.rs"]
mod properties;
