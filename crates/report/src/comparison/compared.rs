//! Two sides of recordings, and the names of their rows.

use std::collections::BTreeSet;

use conclusions::profile_comparison::{ComparedVm, ProfileComparison, Subject};
use exits::{Access, Dimension, Grouping};
use traces::{Recordings, Unlike};

use crate::format::NONE;
use crate::recordings::words::vcpu;
use crate::text::printable;

/// Two sides of recordings with their comparison.
#[derive(Debug, Clone, Copy)]
pub struct Compared<'a> {
    /// The comparison of their exits.
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
    /// Both sides with their names.
    pub(crate) fn sides(&self) -> [(&'static str, &[Recordings]); 2] {
        [("before", self.before), ("after", self.after)]
    }

    /// One of the recordings, all of which were read and selected with the same options.
    pub(crate) fn any(&self) -> Option<&Recordings> {
        self.before.iter().chain(self.after).next()
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
            [Dimension::Nested] => titles.push("nested exit"),
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
            names.push(vcpu(subject.vcpu, subject.thread));
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

/// The VM of a row: "web", "366", or "366 → 402" if its process or domain ID changed.
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
