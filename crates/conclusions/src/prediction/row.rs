//! Rows of a prediction.

use serde::Serialize;
use std::collections::BTreeMap;

use super::evidence::recorded;
use super::{Range, Rule};
use exits::{Access, ExitReason, Hypervisor, Isa};

/// The part of a reason's exits in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// All exits of the reason.
    Whole,
    /// The exits of nested guests.
    Nested,
    /// The exits by accesses to this register.
    Access(Access),
    /// The exits that are not in another row of the reason.
    Rest,
}

/// The effect of interrupt virtualization on the exits of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// All are avoided.
    Goes,
    /// None is avoided.
    Stays,
    /// Some are or may be avoided.
    Partly,
}

/// Exits of one reason, or by accesses to one register, and the number that would be avoided.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PredictedRow {
    /// Their current reason, without flags.
    pub reason: ExitReason,
    /// The part of the reason's exits.
    pub part: Part,
    /// The rule.
    pub rule: Rule,
    /// The number of exits.
    pub exits: u64,
    /// Their handling time in nanoseconds. That of a part of a reason is an estimate, see `docs/predict.md`.
    pub time_ns: u64,
    /// The number of exits that would be avoided.
    pub gone_exits: Range,
    /// The handling time that would be avoided, in nanoseconds.
    pub gone_time_ns: Range,
    /// The reason that the remaining exits will have, if it differs.
    pub becomes: Option<ExitReason>,
}

impl PredictedRow {
    /// The effect on the exits.
    #[must_use]
    pub fn fate(&self) -> Fate {
        if self.gone_exits.high <= 0.0 {
            Fate::Stays
        } else if self.gone_exits.low >= self.exits as f64 {
            Fate::Goes
        } else {
            Fate::Partly
        }
    }

    /// Tests whether the vCPU sleeps in these exits, so that their time is not a cost.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.part != Part::Nested && self.reason.is_sleep()
    }

    /// The tracepoints of KVM that would narrow the row's range and are not in `events`. Xen has no equivalents.
    pub(super) fn wanting(
        &self,
        events: &BTreeMap<String, u64>,
        hypervisor: Hypervisor,
    ) -> Vec<&'static str> {
        let wanted: &[&'static str] = match (self.rule, self.reason.isa, self.reason.code) {
            _ if self.gone_exits.is_exact() || hypervisor == Hypervisor::Xen => &[],
            (Rule::NotSplit, Isa::Vmx, 44 | 48 | 49) | (Rule::NotSplit, Isa::Svm, 0x400) => &["kvm:kvm_mmio"],
            (Rule::NotSplit, ..) => &["kvm:kvm_msr"],
            (Rule::Kick, ..) => &["kvm:kvm_apic_accept_irq"],
            (Rule::Eoi, ..) => &["kvm:kvm_ack_irq"],
            _ => &[],
        };
        wanted.iter().copied().filter(|event| recorded(events, event).is_none()).collect()
    }
}

/// Rows under construction. Rows of several VMs with the same key are merged.
#[derive(Debug, Default)]
pub(super) struct Rows(BTreeMap<(ExitReason, Part, Rule), PredictedRow>);

impl Rows {
    /// Adds `row` to the row with the same key.
    pub(super) fn add(&mut self, row: PredictedRow) {
        if row.exits == 0 {
            return;
        }
        match self.0.entry((row.reason, row.part, row.rule)) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(row);
            }
            std::collections::btree_map::Entry::Occupied(mut ours) => {
                let ours = ours.get_mut();
                ours.exits = ours.exits.saturating_add(row.exits);
                ours.time_ns = ours.time_ns.saturating_add(row.time_ns);
                ours.gone_exits += row.gone_exits;
                ours.gone_time_ns += row.gone_time_ns;
            }
        }
    }

    /// The rows, ordered by the number of avoided exits, then by the number of exits.
    pub(super) fn sorted(self) -> Vec<PredictedRow> {
        let mut rows: Vec<_> = self.0.into_values().collect();
        rows.sort_by(|one, other| {
            let expected = other.gone_exits.expected.total_cmp(&one.gone_exits.expected);
            let high = other.gone_exits.high.total_cmp(&one.gone_exits.high);
            expected.then(high).then(other.exits.cmp(&one.exits)).then(one.reason.cmp(&other.reason))
        });
        rows
    }
}
