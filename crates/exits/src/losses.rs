//! Losses and inconsistencies of a source.

use serde::{Deserialize, Serialize};

/// Counts of all missing or doubtful data of a profile; all zero if it is complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Losses {
    /// Events of any kind that the recorder reported as dropped.
    pub lost_events: u64,
    /// Exits among them, if the recorder identifies each lost event (perf since Linux 6.1).
    pub lost_exits: u64,
    /// Exits without an entry after them: the next event of the vCPU is another exit.
    pub exits_without_entry: u64,
    /// Exits at the end of the recording, or of their vCPU's thread: at most one for each.
    pub exits_at_the_end: u64,
    /// Entries without an exit before them; a vCPU that was running at the start of the recording has one.
    pub entries_without_exit: u64,
    /// Exits without a handling time because events were lost: the next entry that was seen may belong to another
    /// exit.
    pub pairs_across_loss: u64,
    /// Exits whose next entry has an earlier time, because the clocks of processors differ.
    pub pairs_back_in_time: u64,
    /// Events that arrived too late to be sorted.
    pub out_of_order: u64,
    /// Relevant events whose fields could not be decoded.
    pub undecoded: u64,
    /// Exits that are counted without their VM and vCPU, because the kernel's maps were full.
    pub exits_without_vcpu: u64,
}

impl Losses {
    /// Adds the losses of another source. Commutative and associative.
    pub fn merge(&mut self, other: &Self) {
        for (ours, theirs) in self.all_mut().into_iter().zip(other.all()) {
            *ours = ours.saturating_add(theirs);
        }
    }

    /// Tests whether the recorder lost nothing and everything could be decoded. Exits and entries at the ends
    /// of a recording do not count as losses.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.lost_events == 0
            && self.exits_without_entry == 0
            && self.pairs_across_loss == 0
            && self.pairs_back_in_time == 0
            && self.out_of_order == 0
            && self.undecoded == 0
            && self.exits_without_vcpu == 0
    }

    const fn all(&self) -> [u64; 10] {
        [
            self.lost_events,
            self.lost_exits,
            self.exits_without_entry,
            self.exits_at_the_end,
            self.entries_without_exit,
            self.pairs_across_loss,
            self.pairs_back_in_time,
            self.out_of_order,
            self.undecoded,
            self.exits_without_vcpu,
        ]
    }

    const fn all_mut(&mut self) -> [&mut u64; 10] {
        [
            &mut self.lost_events,
            &mut self.lost_exits,
            &mut self.exits_without_entry,
            &mut self.exits_at_the_end,
            &mut self.entries_without_exit,
            &mut self.pairs_across_loss,
            &mut self.pairs_back_in_time,
            &mut self.out_of_order,
            &mut self.undecoded,
            &mut self.exits_without_vcpu,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_merged() {
        let json = r#"{"lost_events":1,"exits_without_entry":2,"exits_at_the_end":3,"entries_without_exit":4,
            "pairs_across_loss":5,"pairs_back_in_time":6,"out_of_order":7,"undecoded":8,"lost_exits":9,
            "exits_without_vcpu":10}"#;
        let one: Losses = serde_json::from_str(json).unwrap();
        let mut two = one;
        two.merge(&one);
        assert_eq!(two.all(), [2, 18, 4, 6, 8, 10, 12, 14, 16, 20]);
        assert!(!two.is_whole());
    }

    #[test]
    fn ends_of_a_recording_are_no_loss() {
        let ends = Losses { exits_at_the_end: 2, entries_without_exit: 2, ..Losses::default() };
        assert!(ends.is_whole());
    }

    #[test]
    fn each_loss_alone_is_one() {
        let none = Losses::default();
        for one in [
            Losses { lost_events: 1, ..none },
            Losses { exits_without_entry: 1, ..none },
            Losses { pairs_across_loss: 1, ..none },
            Losses { pairs_back_in_time: 1, ..none },
            Losses { out_of_order: 1, ..none },
            Losses { undecoded: 1, ..none },
            // They make figures of VMs too low.
            Losses { exits_without_vcpu: 1, ..none },
        ] {
            assert!(!one.is_whole(), "{one:?}");
        }
    }
}
