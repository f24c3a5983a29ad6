//! Findings under a heading, and the number of findings in each state.

use crate::{Finding, State};
use domain::Form;
use serde::{Deserialize, Serialize};

/// Findings of one category of the host, or of one VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Its stable name in lower case with dashes: `cpu`, `iommu`, `timers`, or the VM's name.
    pub name: String,
    /// Its heading, in a few words.
    pub title: String,
    /// The form of the VM's definition, in which its changes are shown. `None` for findings about a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<Form>,
    /// The findings, in the order of the rules.
    pub findings: Vec<Finding>,
}

/// The reason why a definition was not judged at all, if all findings have the same one.
#[must_use]
pub fn not_judged(sections: &[Section]) -> Option<&str> {
    let mut findings = sections.iter().flat_map(|section| &section.findings);
    let State::Skip(first) = &findings.next()?.state else { return None };
    findings.all(|finding| matches!(&finding.state, State::Skip(why) if why == first)).then_some(first)
}

/// The number of findings in each state, children included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Failed checks.
    pub fail: usize,
    /// Checks with a warning.
    pub warn: usize,
    /// Checks that passed.
    pub pass: usize,
    /// Skipped checks.
    pub skip: usize,
}

impl Tally {
    /// Counts findings and all their children.
    #[must_use]
    pub fn of<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Self {
        let mut tally = Self::default();
        let mut left: Vec<&Finding> = findings.into_iter().collect();
        while let Some(finding) = left.pop() {
            match finding.state {
                State::Pass => tally.pass += 1,
                State::Warn => tally.warn += 1,
                State::Fail => tally.fail += 1,
                State::Skip(_) => tally.skip += 1,
            }
            left.extend(&finding.children);
        }
        tally
    }

    /// Tests whether there is something to fix.
    #[must_use]
    pub const fn to_fix(&self) -> bool {
        self.fail > 0 || self.warn > 0
    }
}
