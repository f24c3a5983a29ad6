//! What the rows of a table are told apart by.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::{Access, AccessKind, ExitReason, Vcpu};

/// One property of exits that rows can be told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Dimension {
    /// The VM.
    Vm,
    /// The vCPU, and so its VM too.
    Vcpu,
    /// Why the guest was left.
    Reason,
    /// I/O ports.
    Port,
    /// Addresses without memory behind them.
    Mmio,
    /// Model-specific registers.
    Msr,
    /// Registers of the local APIC, as KVM emulated them or as AVIC left them to it.
    Apic,
    /// Causes of IPIs that AVIC could not deliver.
    Ipi,
}

impl Dimension {
    /// All of them, in the order in which a manual lists them.
    pub const ALL: [Self; 8] =
        [Self::Reason, Self::Vm, Self::Vcpu, Self::Port, Self::Mmio, Self::Msr, Self::Apic, Self::Ipi];

    /// The word for it.
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
        }
    }

    /// Whether it is about what the guest tried to reach, which exits alone do not say.
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
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that is no [`Dimension`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is nothing to group by; write reason, vm, vcpu, port, mmio, msr, apic or ipi")]
pub struct UnknownDimension(pub String);

impl FromStr for Dimension {
    type Err = UnknownDimension;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|dimension| dimension.name() == text);
        found.ok_or_else(|| UnknownDimension(text.to_owned()))
    }
}

/// Whose exits a row counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Whose {
    /// Those of all VMs together.
    Everyone,
    /// Those of one VM; `None` where the source does not say which.
    Vm(Option<u32>),
    /// Those of one vCPU.
    Vcpu(Vcpu),
}

impl Whose {
    /// The VM, where there is one and the source says which.
    #[must_use]
    pub const fn vm(self) -> Option<u32> {
        match self {
            Self::Everyone => None,
            Self::Vm(vm) => vm,
            Self::Vcpu(vcpu) => vcpu.vm,
        }
    }

    /// The vCPU, where rows are told apart by it.
    #[must_use]
    pub const fn vcpu(self) -> Option<Vcpu> {
        match self {
            Self::Everyone | Self::Vm(_) => None,
            Self::Vcpu(vcpu) => Some(vcpu),
        }
    }
}

/// What kind of exits a row counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// All of them.
    Everything,
    /// Those of one reason.
    Reason(ExitReason),
    /// Those about one port, address or register.
    Access(Access),
}

impl What {
    /// The reason, where rows are told apart by it.
    #[must_use]
    pub const fn reason(self) -> Option<ExitReason> {
        match self {
            Self::Reason(reason) => Some(reason),
            Self::Everything | Self::Access(_) => None,
        }
    }

    /// The port, address or register, where rows are told apart by it.
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

/// What tells a row from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Whose exits it counts.
    pub whose: Whose,
    /// Of which kind.
    pub what: What,
}

/// A choice of dimensions that gives a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grouping(BTreeSet<Dimension>);

/// Dimensions that give no table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadGrouping {
    /// There are none.
    #[error("There is nothing to group by; write reason, vm, vcpu, port, mmio, msr, apic or ipi")]
    Nothing,
    /// Reasons and accesses are counted side by side, not one within the other.
    #[error(
        "Exits cannot be grouped by reason and by {0} at once: ports, addresses and registers are counted for \
         all reasons together; leave one of the two out"
    )]
    ReasonAndAccess(Dimension),
}

impl Grouping {
    /// A grouping by all of `dimensions`, in whatever order.
    ///
    /// # Errors
    /// When there are none, or such as cannot be combined.
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

    /// By reason alone.
    #[must_use]
    pub fn by_reason() -> Self {
        Self(BTreeSet::from([Dimension::Reason]))
    }

    /// The dimensions, ordered.
    pub fn dimensions(&self) -> impl Iterator<Item = Dimension> {
        self.0.iter().copied()
    }

    /// Whether rows are told apart by it.
    #[must_use]
    pub fn has(&self, dimension: Dimension) -> bool {
        self.0.contains(&dimension)
    }

    /// Whether rows are told apart by VM, be it that they are by vCPU.
    #[must_use]
    pub fn tells_vms_apart(&self) -> bool {
        self.has(Dimension::Vm) || self.has(Dimension::Vcpu)
    }

    /// The kinds of accesses that rows are made of; none where they are made of exits.
    #[must_use]
    pub fn access_kinds(&self) -> BTreeSet<AccessKind> {
        self.0.iter().flat_map(|dimension| dimension.access_kinds()).copied().collect()
    }

    /// Whose exits a row of this vCPU counts.
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

    /// What a row of exits of this reason counts.
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
        assert_eq!(different.len(), 6);
    }
}
