//! KVM's own counters of running VMs, for hosts where eBPF cannot be used.
//!
//! They have the number of exits and those of some kinds, but no other reasons and no handling times. For each VM the
//! first of these sources that works is used: QEMU's monitor ([`Origin::Qmp`]), statistics descriptors that the VMM
//! has open ([`Origin::Descriptors`]), and debugfs ([`Origin::Debugfs`]).
//!
//! ```no_run
//! use host::vms::Vms;
//! use live::statistics::StatisticsSource;
//! use std::path::Path;
//!
//! let vms = Vms::discover(Path::new("/"))?;
//! let mut source = StatisticsSource::new(Path::new("/"), &vms.vms);
//! let before = source.read();
//! std::thread::sleep(std::time::Duration::from_secs(1));
//! for (before, after) in before.iter().zip(source.read()) {
//!     let rate = after.since(before).and_then(|change| change.per_second("exits"));
//!     println!("{}: {rate:?} exits a second by {:?}", after.name, after.origin);
//! }
//! # Ok::<(), host::Error>(())
//! ```

mod change;
mod debugfs;
mod descriptors;
mod query;
mod source;
mod taking;

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

pub use change::StatisticsChange;
pub use source::StatisticsSource;

/// Cumulative counters by the kernel's names (`exits`, `io_exits`, `halt_exits`, ...; arch/x86/kvm/x86.c,
/// `kvm_vcpu_stats_desc` and `kvm_vm_stats_desc`).
pub type Counters = BTreeMap<String, u64>;

/// The source of counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Origin {
    /// `query-stats` on a monitor of QEMU 7.1 or later. Has counters of each vCPU.
    Qmp,
    /// KVM's binary statistics, through the VMM's own descriptors: QEMU 8.1 and later keeps one open per vCPU. Does
    /// not need the monitor, which another client may have, and works under lockdown. Needs Linux 5.14 and root.
    Descriptors,
    /// `/sys/kernel/debug/kvm`. Has only sums over the vCPUs; needs root and no lockdown.
    Debugfs,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Qmp => "QMP",
            Self::Descriptors => "descriptors",
            Self::Debugfs => "debugfs",
        })
    }
}

/// Data that eBPF would provide and this source does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Missing {
    /// Exit reasons for which KVM has no counter.
    Reasons,
    /// The handling times of exits.
    HandlingTimes,
    /// The vCPUs of the exits.
    Vcpus,
}

/// A source that did not work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The source.
    pub origin: Origin,
    /// The error with the next step and its causes.
    pub cause: String,
}

/// One reading of a VM's counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VmStatistics {
    /// The VM's process.
    pub pid: i32,
    /// The start time of the process in ticks since boot, as in [`host::vms::Vm`].
    pub start_ticks: u64,
    /// The VM's name.
    pub name: String,
    /// The source of the counters; `None` if none worked.
    pub origin: Option<Origin>,
    /// The sources that were tried before and failed.
    pub failures: Vec<Failure>,
    /// The counters of the VM plus the sums over its vCPUs. If a process has several VMs, the sums over them.
    pub total: Counters,
    /// Counters by KVM's vCPU number; empty if the source does not have them.
    pub vcpus: BTreeMap<u32, Counters>,
    /// The units of counters that do not count occurrences, such as `ns`.
    pub units: BTreeMap<String, String>,
    /// Data that this source does not have.
    pub missing: Vec<Missing>,
    /// The time of the reading.
    #[serde(skip)]
    pub read_at: Instant,
}

/// The counters from a source.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    total: Counters,
    vcpus: BTreeMap<u32, Counters>,
    units: BTreeMap<String, String>,
}

impl Found {
    fn add(&mut self, counters: &Counters) {
        for (name, value) in counters {
            let sum = self.total.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*value);
        }
    }

    /// Sets units by name if there is no schema: the names of KVM's times end with the unit.
    fn name_units(&mut self) {
        let times = self.total.keys().filter(|name| name.ends_with("_ns"));
        self.units = times.map(|name| (name.clone(), "ns".to_owned())).collect();
    }
}

#[cfg(test)]
#[path = "statistics_tests.rs"]
mod tests;
