//! KVM's own counters of running VMs, for hosts where eBPF cannot be used.
//!
//! They tell how many exits there were and how many of some kinds; no other reasons and no handling times.
//! For each VM the first of these that works is used: QEMU's monitor ([`Origin::Qmp`]), the descriptors of
//! statistics that the VMM keeps open ([`Origin::Descriptors`]), and debugfs ([`Origin::Debugfs`]).
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

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

pub use change::StatisticsChange;
pub use source::StatisticsSource;

/// Counters that only grow, by the kernel's names (`exits`, `io_exits`, `halt_exits`, ...;
/// arch/x86/kvm/x86.c, `kvm_vcpu_stats_desc` and `kvm_vm_stats_desc`).
pub type Counters = BTreeMap<String, u64>;

/// The source of counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Origin {
    /// QEMU 7.1 or later, asked through its monitor with `query-stats`. Counters of each vCPU.
    Qmp,
    /// KVM's binary statistics, through the VMM's own descriptors of them: QEMU 8.1 and later keeps one for each
    /// vCPU. Nothing is asked of the VMM, whoever has its monitor, and lockdown does not matter; Linux 5.14,
    /// and root.
    Descriptors,
    /// `/sys/kernel/debug/kvm`. Sums over the vCPUs only; root, and no lockdown.
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

/// The figures that eBPF would tell and this source does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Missing {
    /// Exit reasons beyond those that KVM has a counter for.
    Reasons,
    /// The handling times of exits.
    HandlingTimes,
    /// The vCPU that they were of.
    Vcpus,
}

/// A source that gave nothing, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The source.
    pub origin: Origin,
    /// The cause with what to do, and the causes of the cause.
    pub cause: String,
}

/// One reading of a VM's counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VmStatistics {
    /// The VM's process.
    pub pid: i32,
    /// When that started, in ticks since boot; as in [`host::vms::Vm`].
    pub start_ticks: u64,
    /// The VM's name.
    pub name: String,
    /// The source of the counters; `None` when there was none.
    pub origin: Option<Origin>,
    /// Sources that were tried before it in vain.
    pub failures: Vec<Failure>,
    /// Counters of the VM and, summed, of its vCPUs. Of a process with several VMs the sum over them.
    pub total: Counters,
    /// Counters by vCPU, with KVM's numbers; empty where the source has none.
    pub vcpus: BTreeMap<u32, Counters>,
    /// Units of those that count something else than occurrences, such as `ns`.
    pub units: BTreeMap<String, String>,
    /// The figures that this source lacks.
    pub missing: Vec<Missing>,
    /// When it was read.
    #[serde(skip)]
    pub read_at: Instant,
}

/// The findings of a source.
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

    /// Units where no schema says them: KVM ends names of times with it.
    fn name_units(&mut self) {
        let times = self.total.keys().filter(|name| name.ends_with("_ns"));
        self.units = times.map(|name| (name.clone(), "ns".to_owned())).collect();
    }
}

/// An error with its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text += &format!(" ({next})");
        cause = next.source();
    }
    text
}

#[cfg(test)]
#[path = "statistics_tests.rs"]
mod tests;
