//! The grouping of a table's rows.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::{Access, AccessKind, ExitReason, Vcpu};

/// A dimension of exits by which rows can be grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Dimension {
    /// The VM.
    Vm,
    /// The vCPU, which implies its VM.
    Vcpu,
    /// The exit reason.
    Reason,
    /// I/O ports.
    Port,
    /// Guest physical addresses without memory.
    Mmio,
    /// Model-specific registers.
    Msr,
    /// Registers of the local APIC that KVM emulates, and those that AVIC does not accelerate.
    Apic,
    /// Causes of IPIs that AVIC could not deliver.
    Ipi,
    /// Exits of nested guests, by the hypervisor that handles them.
    Nested,
}

impl Dimension {
    /// All dimensions, in the order of the manual.
    pub const ALL: [Self; 9] = [
        Self::Reason,
        Self::Vm,
        Self::Vcpu,
        Self::Port,
        Self::Mmio,
        Self::Msr,
        Self::Apic,
        Self::Ipi,
        Self::Nested,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::Vcpu => "vcpu",
            Self::Reason => "reason",
            Self::Port => "port",
            Self::Mmio => "mmio",
            Self::Msr => "msr",
            Self::Apic => "apic",
            Self::Ipi => "ipi",
            Self::Nested => "nested",
        }
    }

    /// Tests whether the dimension is a kind of access, which a recording of exits alone does not contain.
    #[must_use]
    pub const fn is_access(self) -> bool {
        !self.access_kinds().is_empty()
    }

    const fn access_kinds(self) -> &'static [AccessKind] {
        match self {
            Self::Vm | Self::Vcpu | Self::Reason => &[],
            Self::Port => &[AccessKind::Port],
            Self::Mmio => &[AccessKind::Mmio],
            Self::Msr => &[AccessKind::Msr],
            Self::Apic => &[AccessKind::Apic, AccessKind::Unaccelerated],
            Self::Ipi => &[AccessKind::IncompleteIpi],
            Self::Nested => &[AccessKind::Nested],
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error of a word that is not a [`Dimension`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is nothing to group by; write reason, vm, vcpu, port, mmio, msr, apic, ipi or nested")]
pub struct UnknownDimension(pub String);

impl FromStr for Dimension {
    type Err = UnknownDimension;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|dimension| dimension.name() == text);
        found.ok_or_else(|| UnknownDimension(text.to_owned()))
    }
}

/// The vCPUs whose exits a row counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Whose {
    /// All VMs.
    Everyone,
    /// One VM; `None` if the source does not name it.
    Vm(Option<u32>),
    /// One vCPU.
    Vcpu(Vcpu),
}

impl Whose {
    /// The VM, if there is one and the source names it.
    #[must_use]
    pub const fn vm(self) -> Option<u32> {
        match self {
            Self::Everyone => None,
            Self::Vm(vm) => vm,
            Self::Vcpu(vcpu) => vcpu.vm,
        }
    }

    /// The vCPU, if rows are grouped by vCPU.
    #[must_use]
    pub const fn vcpu(self) -> Option<Vcpu> {
        match self {
            Self::Everyone | Self::Vm(_) => None,
            Self::Vcpu(vcpu) => Some(vcpu),
        }
    }
}

/// The exits that a row counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// All exits.
    Everything,
    /// Exits of one reason.
    Reason(ExitReason),
    /// Exits for one port, address or register.
    Access(Access),
}

impl What {
    /// The reason, if rows are grouped by reason.
    #[must_use]
    pub const fn reason(self) -> Option<ExitReason> {
        match self {
            Self::Reason(reason) => Some(reason),
            Self::Everything | Self::Access(_) => None,
        }
    }

    /// The port, address or register, if rows are grouped by access.
    #[must_use]
    pub const fn access(self) -> Option<Access> {
        match self {
            Self::Access(access) => Some(access),
            Self::Everything | Self::Reason(_) => None,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.pad("all"),
            Self::Reason(reason) => reason.fmt(f),
            Self::Access(access) => access.fmt(f),
        }
    }
}

/// The key of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The vCPUs whose exits it counts.
    pub whose: Whose,
    /// The exits that it counts.
    pub what: What,
}

/// A valid combination of dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grouping(BTreeSet<Dimension>);

/// The reason why dimensions cannot be combined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadGrouping {
    /// There are no dimensions.
    #[error("There is nothing to group by; write reason, vm, vcpu, port, mmio, msr, apic, ipi or nested")]
    Nothing,
    /// Reasons and accesses are counted separately, not one within the other.
    #[error(
        "Exits cannot be grouped by reason and by {0} at once: ports, addresses and registers are counted for \
         all reasons together; leave one of the two out"
    )]
    ReasonAndAccess(Dimension),
}

impl Grouping {
    /// A grouping by all of `dimensions`, in any order.
    ///
    /// # Errors
    /// If there are none, or if they cannot be combined.
    pub fn new(dimensions: impl IntoIterator<Item = Dimension>) -> Result<Self, BadGrouping> {
        let chosen: BTreeSet<_> = dimensions.into_iter().collect();
        if chosen.is_empty() {
            return Err(BadGrouping::Nothing);
        }
        let access = chosen.iter().find(|dimension| !dimension.access_kinds().is_empty());
        match access {
            Some(&access) if chosen.contains(&Dimension::Reason) => Err(BadGrouping::ReasonAndAccess(access)),
            _ => Ok(Self(chosen)),
        }
    }

    /// By reason only.
    #[must_use]
    pub fn by_reason() -> Self {
        Self(BTreeSet::from([Dimension::Reason]))
    }

    /// The dimensions, ordered.
    pub fn dimensions(&self) -> impl Iterator<Item = Dimension> {
        self.0.iter().copied()
    }

    /// Tests whether rows are grouped by this dimension.
    #[must_use]
    pub fn has(&self, dimension: Dimension) -> bool {
        self.0.contains(&dimension)
    }

    /// Tests whether rows are grouped by VM, either directly or by vCPU.
    #[must_use]
    pub fn tells_vms_apart(&self) -> bool {
        self.has(Dimension::Vm) || self.has(Dimension::Vcpu)
    }

    /// The kinds of accesses that rows count; empty if rows count exits.
    #[must_use]
    pub fn access_kinds(&self) -> BTreeSet<AccessKind> {
        self.0.iter().flat_map(|dimension| dimension.access_kinds()).copied().collect()
    }

    /// The part of a row's key for this vCPU.
    #[must_use]
    pub fn whose(&self, vcpu: Vcpu) -> Whose {
        if self.has(Dimension::Vcpu) {
            Whose::Vcpu(vcpu)
        } else if self.has(Dimension::Vm) {
            Whose::Vm(vcpu.vm)
        } else {
            Whose::Everyone
        }
    }

    /// The part of a row's key for this reason.
    #[must_use]
    pub fn what(&self, reason: ExitReason) -> What {
        if self.has(Dimension::Reason) { What::Reason(reason) } else { What::Everything }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_both_ways() {
        for dimension in Dimension::ALL {
            assert_eq!(dimension.to_string().parse(), Ok(dimension));
            assert_eq!(serde_json::to_string(&dimension).unwrap(), format!("\"{dimension}\""));
        }
        let error = "cpu".parse::<Dimension>().unwrap_err().to_string();
        for dimension in Dimension::ALL {
            assert!(error.contains(dimension.name()), "{error}");
        }
    }

    #[test]
    fn reasons_and_accesses_are_not_combined() {
        let error = Grouping::new([Dimension::Reason, Dimension::Vm, Dimension::Msr]).unwrap_err();
        assert_eq!(error, BadGrouping::ReasonAndAccess(Dimension::Msr));
        assert_eq!(Grouping::new([]), Err(BadGrouping::Nothing));
        assert!(Grouping::new([Dimension::Vm, Dimension::Msr, Dimension::Port]).is_ok());
    }

    #[test]
    fn every_kind_of_access_belongs_to_one_dimension() {
        let kinds: Vec<_> =
            Dimension::ALL.iter().flat_map(|dimension| dimension.access_kinds()).copied().collect();
        let different: BTreeSet<_> = kinds.iter().copied().collect();
        assert_eq!(kinds.len(), different.len());
        assert!(!different.contains(&AccessKind::Other));
        assert_eq!(different.len(), 7);
    }
}
