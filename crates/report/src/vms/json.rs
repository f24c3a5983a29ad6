//! Running VMs for programs.

use host::vms::{HeldProcess, LikelyVm, Vm};
use live::statistics::{StatisticsChange, VmStatistics};
use serde::Serialize;

use super::running::Running;
use crate::json::Document;

/// The document of `exitless vms`; `docs/vms.md` describes its fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Fields<'a> {
    vms: Vec<Row<'a>>,
    unreadable: u32,
    likely: &'a [LikelyVm],
    held: &'a [HeldProcess],
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    vm: &'a Vm,
    statistics: Option<&'a VmStatistics>,
    change: Option<&'a StatisticsChange>,
}

/// The document.
#[must_use]
pub fn json<'a>(running: &Running<'a>) -> impl Serialize {
    let row = |(at, &vm): (usize, &&'a Vm)| {
        let counted = running.counted.and_then(|counted| counted.get(at));
        Row {
            vm,
            statistics: counted.map(|one| &one.statistics),
            change: counted.and_then(|one| one.change.as_ref()),
        }
    };
    Document::new(Fields {
        vms: running.vms.iter().enumerate().map(row).collect(),
        unreadable: running.found.unreadable,
        likely: &running.found.likely,
        held: &running.found.held,
    })
}
