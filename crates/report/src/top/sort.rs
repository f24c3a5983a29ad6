//! The orders of lines.

/// The figure by which lines are ordered, the largest first; or the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// Exits per second.
    Exits,
    /// Host time, without sleep on pages with a column for sleep.
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
