//! Doubts about the figures of a comparison.

use serde::{Deserialize, Serialize};

use super::side::Side;
use super::{ComparedVm, Per, ProfileComparison, SideSummary};

/// One of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Which {
    /// The side that changes refer to.
    Before,
    /// The other side.
    After,
}

/// A reason to doubt a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "doubt", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Doubt {
    /// Events were lost, or could not be decoded or put in order: counts of this side are lower bounds.
    Lost {
        /// The side.
        side: Which,
        /// Events that the recorder dropped.
        lost: u64,
        /// Events that could not be decoded or sorted.
        unread: u64,
    },
    /// Exits that could not be attributed to a VM because the kernel's maps were full: figures of single VMs of this side
    /// are too low.
    WithoutVcpu {
        /// The side.
        side: Which,
        /// The number of exits.
        exits: u64,
    },
    /// The sides have different numbers of VMs or vCPUs with exits.
    Vcpus {
        /// VMs before and after.
        vms: (usize, usize),
        /// vCPUs before and after.
        vcpus: (usize, usize),
    },
    /// Rows are by VM, and no VM was found on both sides.
    NoCommonVm,
    /// The duration of a recording is unknown, or it has no selected time, so the unit is a recording.
    NoTime {
        /// The side.
        side: Which,
    },
    /// The recordings of one side last more than twice as long as those of the other: a recorder may have stopped early.
    Durations,
    /// A recording is too short, or has too few slices, to determine the clustering of exits.
    Short {
        /// The side.
        side: Which,
    },
    /// Accesses are in no row because a recording has more distinct ones than the limit.
    Unsorted {
        /// The side.
        side: Which,
        /// The number of accesses.
        accesses: u64,
    },
    /// A side has no exits.
    Empty {
        /// The side.
        side: Which,
    },
}

/// The maximum ratio of the durations of both sides' recordings.
const MOST_UNEQUAL: f64 = 2.0;

pub(super) fn all(comparison: &ProfileComparison, sides: [&Side; 2]) -> Vec<Doubt> {
    let (before, after) = (&comparison.before, &comparison.after);
    let mut doubts = Vec::new();
    for (side, summary, sums) in [(Which::Before, before, sides[0]), (Which::After, after, sides[1])] {
        if sums.total.count == 0 {
            doubts.push(Doubt::Empty { side });
        }
        let lost = summary.losses.lost_events;
        let unread = summary.losses.undecoded.saturating_add(summary.losses.out_of_order);
        if lost > 0 || unread > 0 {
            doubts.push(Doubt::Lost { side, lost, unread });
        }
        if sums.without_vcpu > 0 {
            doubts.push(Doubt::WithoutVcpu { side, exits: sums.without_vcpu });
        }
        if sums.unsorted > 0 {
            doubts.push(Doubt::Unsorted { side, accesses: sums.unsorted });
        }
        if comparison.per == Per::Recording && sums.observed_ns.contains(&0.0) {
            doubts.push(Doubt::NoTime { side });
        } else if sums.total.count > 0 && sums.time.as_ref().is_some_and(|time| time.draws.is_none()) {
            doubts.push(Doubt::Short { side });
        }
    }
    let lengths = [before, after].map(SideSummary::mean_seconds);
    if comparison.per == Per::Second && lengths[0].max(lengths[1]) > MOST_UNEQUAL * lengths[0].min(lengths[1])
    {
        doubts.push(Doubt::Durations);
    }
    let by_vm = comparison.rows.iter().any(|row| row.subject.vm.is_some());
    let is_common = |vm: &ComparedVm| !vm.before.is_empty() && !vm.after.is_empty();
    if by_vm && !comparison.vms.iter().any(is_common) {
        doubts.push(Doubt::NoCommonVm);
    }
    let counted = |summary: &SideSummary| (summary.vms, summary.vcpus);
    // The numbers of a side without exits are unknown.
    if counted(before) != counted(after) && sides.iter().all(|side| side.total.count > 0) {
        let (vms, vcpus) = ((before.vms, after.vms), (before.vcpus, after.vcpus));
        doubts.push(Doubt::Vcpus { vms, vcpus });
    }
    doubts
}
