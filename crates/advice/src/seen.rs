//! The exits of a VM: the evidence for and against cures.

use std::collections::BTreeSet;

use exits::{Access, ExitReason, VcpuExits};

use crate::Match;

/// Reasons and accesses of all vCPUs of a VM, each once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    reasons: BTreeSet<ExitReason>,
    accesses: BTreeSet<Access>,
}

impl Seen {
    pub(crate) fn of(vcpus: &[&VcpuExits]) -> Self {
        let reasons = vcpus.iter().flat_map(|vcpu| &vcpu.reasons).filter(|(_, exits)| exits.count > 0);
        let accesses = vcpus.iter().flat_map(|vcpu| &vcpu.accesses).filter(|(_, exits)| exits.count > 0);
        Self {
            reasons: reasons.map(|(reason, _)| reason.basic()).collect(),
            accesses: accesses.map(|(&access, _)| access).collect(),
        }
    }

    pub(crate) fn has_any(&self, wanted: &[Match]) -> bool {
        wanted.iter().any(|one| {
            self.accesses.iter().any(|&access| one.has_access(access))
                || self.reasons.iter().any(|reason| reason.name().is_some_and(|name| one.has_reason(name)))
        })
    }
}
