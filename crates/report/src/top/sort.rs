//! What lines are ordered by.

/// A figure, or the name. Of figures the largest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// Exits a second.
    Exits,
    /// Time in the host, sleep apart where it is shown apart.
    Time,
    /// Time asleep.
    Halted,
    /// The mean handling time.
    Mean,
    /// Its 99th percentile.
    P99,
    /// The longest.
    Max,
    /// The name.
    Name,
}

impl Sort {
    /// What the lines of VMs can be ordered by, the usual one first.
    pub(super) const OF_VMS: &[Self] = &[Self::Exits, Self::Time, Self::Halted, Self::Name];
    /// Of vCPUs.
    pub(super) const OF_VCPUS: &[Self] = &[Self::Name, Self::Exits, Self::Time, Self::Halted];
    /// Of reasons and accesses.
    pub(super) const OF_KINDS: &[Self] =
        &[Self::Exits, Self::Time, Self::Mean, Self::P99, Self::Max, Self::Name];

    /// As the page says it.
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
