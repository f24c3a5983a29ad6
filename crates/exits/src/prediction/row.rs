//! Rows of a prediction.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::evidence::{is_idle, recorded};
use super::{Range, Rule};
use crate::{Access, ExitReason, Isa};

/// Which part of a reason's exits a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// All of them.
    Whole,
    /// Those for this register.
    Access(Access),
    /// Those that are in no other row of the reason.
    Rest,
}

/// What becomes of the exits of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// All go.
    Goes,
    /// None goes.
    Stays,
    /// Some go, or some may.
    Partly,
}

/// Exits of one reason, or for one register, and how many of them would go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PredictedRow {
    /// Their reason today, without flags.
    pub reason: ExitReason,
    /// Which of them.
    pub part: Part,
    /// What decides.
    pub rule: Rule,
    /// How many there are.
    pub exits: u64,
    /// How long they took, nanoseconds. Of a part of a reason it is estimated, see `docs/predict.md`.
    pub time_ns: u64,
    /// How many would go.
    pub gone_exits: Range,
    /// How much time would go, nanoseconds.
    pub gone_time_ns: Range,
    /// The reason that those which stay have then, where it is another one.
    pub becomes: Option<ExitReason>,
}

impl PredictedRow {
    /// What becomes of them, in a word.
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

    /// Whether the vCPU sleeps in them, so that their time is no cost.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        is_idle(self.reason)
    }

    /// Events that would make the row's range narrower and are not among `events`.
    pub(super) fn wanting(&self, events: &BTreeMap<String, u64>) -> Vec<&'static str> {
        let wanted: &[&'static str] = match (self.rule, self.reason.isa, self.reason.code) {
            _ if self.gone_exits.is_exact() => &[],
            (Rule::NotSplit, Isa::Vmx, 44 | 48 | 49) | (Rule::NotSplit, Isa::Svm, 0x400) => &["kvm:kvm_mmio"],
            (Rule::NotSplit, ..) => &["kvm:kvm_msr"],
            (Rule::Kick, ..) => &["kvm:kvm_apic_accept_irq"],
            (Rule::Eoi, ..) => &["kvm:kvm_ack_irq"],
            _ => &[],
        };
        wanted.iter().copied().filter(|event| recorded(events, event).is_none()).collect()
    }
}

/// Rows while they are made: those of several VMs are one.
#[derive(Debug, Default)]
pub(super) struct Rows(BTreeMap<(ExitReason, Part, Rule), PredictedRow>);

impl Rows {
    /// Adds to the row that is like it.
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

    /// Those of which most go first, then those of which there are most.
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
