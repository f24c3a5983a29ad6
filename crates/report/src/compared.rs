//! Two sides of recordings, and the text about them for every medium.

mod doubts;
mod verdict;

use std::collections::BTreeSet;

use exits::profile_comparison::{Basis, ComparedVm, Estimate, Per, ProfileComparison, Subject};
use exits::{Access, Dimension, Grouping};
use traces::{Recordings, Unlike};

pub(crate) use doubts::doubts;
pub(crate) use verdict::{extremes, headline, verdict};

use crate::format::{self, NONE, count, per_second};
use crate::text::printable;

/// Two sides of recordings with their comparison.
#[derive(Debug, Clone, Copy)]
pub struct Compared<'a> {
    /// The comparison.
    pub comparison: &'a ProfileComparison,
    /// The grouping of its rows.
    pub grouping: &'a Grouping,
    /// The recordings before, each separately.
    pub before: &'a [Recordings],
    /// The recordings after.
    pub after: &'a [Recordings],
    /// Differences between the sides other than their exits.
    pub unlike: &'a [Unlike],
}

impl Compared<'_> {
    /// Doubts about the comparison, a sentence or two each.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        doubts(self)
    }

    /// Both sides with their names.
    pub(crate) fn sides(&self) -> [(&'static str, &[Recordings]); 2] {
        [("before", self.before), ("after", self.after)]
    }

    /// The titles of the columns that identify a row.
    pub(crate) fn titles(&self) -> Vec<&'static str> {
        let mut titles = Vec::new();
        if self.grouping.tells_vms_apart() {
            titles.push("VM");
        }
        if self.grouping.has(Dimension::Vcpu) {
            titles.push("vCPU");
        }
        let accesses: Vec<_> =
            self.grouping.dimensions().filter(|by| !matches!(by, Dimension::Vm | Dimension::Vcpu)).collect();
        match accesses[..] {
            [] => {}
            [Dimension::Reason] => titles.push("exit reason"),
            [Dimension::Port] => titles.push("port"),
            [Dimension::Mmio] => titles.push("address"),
            [Dimension::Msr] => titles.push("MSR"),
            [Dimension::Apic] => titles.push("APIC register"),
            [Dimension::Ipi] => titles.push("IPI that failed"),
            _ => titles.push("access"),
        }
        titles
    }

    /// The values of a row for each of [`Self::titles`].
    pub(crate) fn names(&self, subject: &Subject) -> Vec<String> {
        let mut names = Vec::new();
        if self.grouping.tells_vms_apart() {
            names.push(vm(subject, &self.comparison.vms));
        }
        if self.grouping.has(Dimension::Vcpu) {
            names.push(match (subject.vcpu, subject.thread) {
                (Some(number), _) => number.to_string(),
                (None, Some(thread)) => format!("thread {thread}"),
                (None, None) => NONE.to_owned(),
            });
        }
        if let Some(what) = what(subject) {
            names.push(what);
        } else if names.len() < self.titles().len() {
            names.push(NONE.to_owned());
        }
        names
    }

    /// The name of a row in one string.
    pub(crate) fn name(&self, subject: &Subject) -> String {
        let named = self.titles().into_iter().zip(self.names(subject));
        let named =
            named.map(
                |(title, name)| {
                    if title == "VM" || title == "vCPU" { format!("{title} {name}") } else { name }
                },
            );
        named.collect::<Vec<_>>().join(", ")
    }
}

fn what(subject: &Subject) -> Option<String> {
    let reason = subject.reason.map(|reason| reason.to_string());
    reason.or_else(|| subject.access.map(|access: Access| access.to_string())).map(|name| printable(&name))
}

/// The VM of a row: "web", "366", or "366 → 402" if its number changed.
pub(crate) fn vm(subject: &Subject, vms: &[ComparedVm]) -> String {
    let Some(vm) = subject.vm.and_then(|place| vms.get(place)) else { return NONE.to_owned() };
    let listed = |numbers: &BTreeSet<u32>| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    if let Some(name) = &vm.name {
        return printable(name);
    }
    match (listed(&vm.before), listed(&vm.after)) {
        (before, after) if before == after => {
            if before.is_empty() {
                NONE.to_owned()
            } else {
                before
            }
        }
        (before, after) if before.is_empty() => after,
        (before, after) if after.is_empty() => before,
        (before, after) => format!("{before} → {after}"),
    }
}

/// The unit by which exits are divided: "a second".
pub(crate) fn unit(per: Per) -> &'static str {
    match per {
        Per::Second => "a second",
        Per::Operation => "an operation",
        Per::Recording => "a recording",
    }
}

/// Exits for each unit: "6,670/s", "2.002", "34,592".
pub(crate) fn rate(value: f64, per: Per) -> String {
    match per {
        Per::Second => per_second(value),
        Per::Operation if value < 0.1 && value > 0.0 => {
            // Two significant digits: a rare exit has a small rate for each operation.
            let places = (1.0 - value.log10().floor()).clamp(2.0, 12.0) as usize;
            format!("{value:.places$}")
        }
        Per::Operation if value < 10.0 => format::per_operation(value),
        Per::Operation if value < 100.0 => format!("{value:.1}"),
        Per::Operation | Per::Recording => count(value.round() as u64),
    }
}

/// The change in percent, or a word if it cannot be given in percent.
pub(crate) fn change(estimate: Option<Estimate>) -> String {
    format::change(estimate.map(|estimate| estimate.change))
}

/// The interval of an estimate: "-71.6 to -71.0 %", "+200 % or more", or a dash.
pub(crate) fn interval(estimate: Option<Estimate>) -> String {
    format::interval_of(estimate.and_then(|estimate| estimate.interval))
}

/// The method of an interval, in a word.
pub(crate) fn basis(estimate: Option<Estimate>) -> &'static str {
    match estimate.and_then(|estimate| estimate.basis) {
        Some(Basis::Recordings { .. }) => "runs",
        Some(Basis::Blocks { .. }) => "blocks",
        Some(Basis::Poisson { measured: true, .. }) => "counts",
        Some(Basis::Poisson { measured: false, .. }) => "counts*",
        Some(Basis::Times) => "times",
        None => NONE,
    }
}

/// Explanations of the words of [`basis`] that occur.
pub(crate) fn methods(comparison: &ProfileComparison) -> Vec<String> {
    let rows = comparison.rows.iter().chain([&comparison.total]);
    let words: BTreeSet<&str> = rows
        .flat_map(|row| [Some(row.rate), row.time, row.mean])
        .map(basis)
        .filter(|&word| word != NONE)
        .collect();
    let meant = |word: &str| match word {
        "runs" => "runs: Student's t over the recordings, each of which is one figure".to_owned(),
        "blocks" => format!(
            "blocks: {} draws of blocks of time slices, each a tenth of a recording (seed {})",
            count(comparison.resamples as u64),
            comparison.seed
        ),
        "counts" => "counts: exact for Poisson counts, widened by how clumped the exits are".to_owned(),
        "counts*" => "counts*: the same, supposing that exits are not clumped, as nothing is known of that: \
             likely too narrow"
            .to_owned(),
        _ => "times: Welch's, supposing that handling times are independent of each other".to_owned(),
    };
    words.into_iter().map(meant).collect()
}

/// A note if intervals cover only these recordings.
pub(crate) fn scope(comparison: &ProfileComparison) -> Option<&'static str> {
    let alone = !matches!(comparison.total.rate.basis, Some(Basis::Recordings { .. }));
    alone.then_some(
        "Intervals speak of these recordings alone. What differs from run to run is not in them; for that give three \
         recordings or more a side.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_exits_of_an_operation_keep_two_digits() {
        let shown =
            [2.8214, 0.126, 0.0421, 0.000_234, 0.0, 53.0, 1234.4].map(|value| rate(value, Per::Operation));
        assert_eq!(shown, ["2.821", "0.126", "0.042", "0.00023", "0.000", "53.0", "1,234"]);
    }
}
