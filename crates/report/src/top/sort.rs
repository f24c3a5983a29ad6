//! The orders of lines.

/// A figure or the name. Figures are ordered from the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// Exits a second.
    Exits,
    /// Time in the host, without sleep where that has its own column.
    Time,
    /// Sleep.
    Halted,
    /// The mean handling time.
    Mean,
    /// The 99th percentile of handling times.
    P99,
    /// The longest handling time.
    Max,
    /// The name.
    Name,
}

impl Sort {
    /// The orders of VMs, the default first.
    pub(super) const OF_VMS: &[Self] = &[Self::Exits, Self::Time, Self::Halted, Self::Name];
    /// The orders of vCPUs.
    pub(super) const OF_VCPUS: &[Self] = &[Self::Name, Self::Exits, Self::Time, Self::Halted];
    /// The orders of reasons and accesses.
    pub(super) const OF_KINDS: &[Self] =
        &[Self::Exits, Self::Time, Self::Mean, Self::P99, Self::Max, Self::Name];

    /// The name on the page.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Exits => "exits/s",
            Self::Time => "time",
            Self::Halted => "halted",
            Self::Mean => "mean",
            Self::P99 => "p99",
            Self::Max => "max",
            Self::Name => "name",
        }
    }
}
