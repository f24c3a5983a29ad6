//! Messages about failures: each reason once, with the runs that it affected.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::record::{Cell, Run};

/// A run that has used all its attempts, or failed in a way that another attempt cannot change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailedForGood {
    /// Its position in the order.
    pub position: u32,
    /// Its cell.
    pub cell: Cell,
    /// The reason of the last failure.
    pub why: String,
}

/// The prefix of the reason if a run was not tried.
const NOT_TRIED: &str = "not tried, because guests did not start before: ";
/// The prefix of the reason if a run was not tried again in a further block.
const NOT_TRIED_AGAIN: &str = "not tried again, because it failed in an earlier block: ";

/// The reason of a run that was not tried because its guests did not start for an earlier run.
pub(super) fn not_tried(why: &str) -> String {
    format!("{NOT_TRIED}{why}")
}

/// The reason of a run that was not tried because the same run had failed for good in an earlier block.
pub(super) fn not_tried_again(why: &str) -> String {
    format!("{NOT_TRIED_AGAIN}{}", cause(why).unwrap_or(why))
}

/// The reason of the run that failed before, if this one was not tried.
fn cause(why: &str) -> Option<&str> {
    [NOT_TRIED, NOT_TRIED_AGAIN].into_iter().find_map(|prefix| why.strip_prefix(prefix))
}

/// The reasons that were already reported.
#[derive(Debug, Default)]
pub struct ToldReasons(BTreeSet<String>);

impl ToldReasons {
    /// The line for a failed attempt at a run, with the reason if it is new. `None` for a run that was not tried: its
    /// reason was already reported with an earlier run.
    pub fn of(&mut self, run: &Run) -> Option<String> {
        self.line(&run.cell.folder_name(run.position), run.failure.as_ref()?)
    }

    fn line(&mut self, name: &str, why: &str) -> Option<String> {
        if why.starts_with(NOT_TRIED) {
            return None;
        }
        let is_new = self.0.insert(why.to_owned());
        Some(if is_new { format!("{name}: {why}") } else { format!("{name}: failed for the same reason") })
    }
}

/// Runs that failed for one reason.
#[derive(Debug, PartialEq)]
pub struct SharedReason<'a> {
    /// The reason.
    pub why: &'a str,
    /// The runs, in order.
    pub runs: Vec<&'a FailedForGood>,
    /// The number of them that were not tried, because others had failed before.
    pub not_tried: usize,
}

/// Failed runs grouped by reason, in the order of their first run.
pub fn by_reason(failed: &[FailedForGood]) -> Vec<SharedReason<'_>> {
    let mut reasons: Vec<SharedReason<'_>> = Vec::new();
    for run in failed {
        let (why, not_tried) = match cause(&run.why) {
            Some(why) => (why, 1),
            None => (run.why.as_str(), 0),
        };
        match reasons.iter_mut().find(|reason| reason.why == why) {
            Some(reason) => {
                reason.runs.push(run);
                reason.not_tried += not_tried;
            }
            None => reasons.push(SharedReason { why, runs: vec![run], not_tried }),
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn failed(position: u32, why: &str) -> FailedForGood {
        let cell = Cell { arm: BTreeMap::new(), guests: 1, workload: "fio".to_owned(), block: 0 };
        FailedForGood { position, cell, why: why.to_owned() }
    }

    #[test]
    fn a_reason_is_told_once_and_runs_that_were_not_tried_are_silent() {
        let mut told = ToldReasons::default();
        assert_eq!(told.line("a", "no tap").as_deref(), Some("a: no tap"));
        assert_eq!(told.line("b", "no tap").as_deref(), Some("b: failed for the same reason"));
        assert_eq!(told.line("c", &not_tried("no tap")), None);
        assert_eq!(told.line("d", "no disk").as_deref(), Some("d: no disk"));
    }

    #[test]
    fn runs_are_counted_by_their_reason_whether_or_not_they_were_tried() {
        let not_tried = not_tried("no tap");
        let again = ["no tap", &not_tried, "no disk"].map(not_tried_again);
        let all = ["no tap", "no disk", &not_tried].into_iter().chain(again.iter().map(String::as_str));
        let all: Vec<_> = (0..).zip(all).map(|(position, why)| failed(position, why)).collect();
        let reasons = by_reason(&all);
        let counts: Vec<_> = reasons.iter().map(|one| (one.why, one.runs.len(), one.not_tried)).collect();
        assert_eq!(counts, [("no tap", 4, 3), ("no disk", 2, 1)]);
    }
}
