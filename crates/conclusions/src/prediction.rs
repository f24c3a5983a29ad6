//! Prediction of the current exits that interrupt virtualization would avoid.
//!
//! A recording without APICv or AVIC contains the exits that these would avoid, but does not always show the purpose of an
//! exit. So a prediction is a range: `low` and `high` are the bounds that the counts allow, `expected` is the estimate of
//! the row's rule. `docs/predict.md` has the reasoning and the formula of each row.

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

use serde::Serialize;
use std::collections::BTreeMap;

pub use already::Already;
pub use assumption::{Apicv, Assumption, Avic};
use exits::{Isa, Nested, Profile, VcpuExits};
pub use range::Range;
pub use row::{Fate, Part, PredictedRow};
pub use rule::Rule;
pub use split::{Piece, split};

use evidence::Evidence;
use row::Rows;

/// The prediction for the exits of a profile.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// The assumptions about the host.
    pub assumption: Assumption,
    /// The time of observation, in nanoseconds.
    pub observed_ns: u64,
    /// The instruction sets of the exits, in order.
    pub isas: Vec<Isa>,
    /// The exits by reason, and by register if the rule depends on it; ordered by the number that would be
    /// avoided.
    pub rows: Vec<PredictedRow>,
    /// Sums of the rows.
    pub totals: Totals,
    /// VMs with signs that interrupt virtualization is already active.
    pub already: Vec<Already>,
    /// Exits of nested guests, which are included in the rows. None of them would be avoided: AVIC is inhibited for a vCPU
    /// while it runs a nested guest, and only L1 can use APICv for L2.
    pub nested: Nested,
    /// Tracepoints that would have made the ranges narrower, to record next time.
    pub record: Vec<String>,
}

/// Sums over all rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Current exits.
    pub exits: u64,
    /// The number of exits that would be avoided.
    pub gone_exits: Range,
    /// Current handling time in nanoseconds, without [`Self::idle_ns`].
    pub time_ns: u64,
    /// The handling time that would be avoided, in nanoseconds.
    pub gone_time_ns: Range,
    /// Handling time of exits in which the vCPU sleeps, in nanoseconds: not a cost, so not included in other
    /// sums.
    pub idle_ns: u64,
}

/// Predicts for `profile`, which was observed for `observed_ns` nanoseconds.
///
/// VMs are predicted separately and summed up. Counts of events are of the whole source, of which `profile` may be a part,
/// so they are only used as upper bounds.
#[must_use]
pub fn predict(profile: &Profile, observed_ns: u64, assumption: &Assumption) -> Prediction {
    let mut vms: BTreeMap<Option<u32>, Vec<&VcpuExits>> = BTreeMap::new();
    for vcpu in profile.vcpus() {
        vms.entry(vcpu.vcpu.vm).or_default().push(vcpu);
    }
    let mut rows = Rows::default();
    let mut already = Vec::new();
    for (vm, vcpus) in vms {
        let evidence = Evidence::new(&vcpus, profile);
        let isa = vcpus.iter().flat_map(|vcpu| vcpu.reasons.keys()).next().map(|reason| reason.isa);
        if !evidence.has_sev && !isa.is_some_and(|isa| assumption.lacks_avic(isa)) {
            already.extend(Already::of(vm, &evidence));
        }
        rules::predict_vm(&vcpus, &evidence, observed_ns, assumption, &mut rows);
    }
    let mut isas: Vec<Isa> = profile.reasons().into_keys().map(|reason| reason.isa).collect();
    isas.dedup();
    let rows = rows.sorted();
    let mut record: Vec<String> = rows
        .iter()
        .flat_map(|row| row.wanting(&profile.events, assumption.hypervisor))
        .map(str::to_owned)
        .collect();
    record.sort_unstable();
    record.dedup();
    Prediction {
        assumption: *assumption,
        observed_ns,
        isas,
        totals: Totals::of(&rows),
        rows,
        already,
        nested: Nested::of(profile),
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
