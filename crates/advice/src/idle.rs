//! The audit of a VM that should be idle: the rate and the sources of its wake-ups.

use std::cmp::Reverse;

use host::vms::Spent;

use crate::{Of, VmAdvice};

/// One cause of wake-ups.
#[derive(Debug, Clone, PartialEq)]
pub struct Source<'a> {
    /// The cause of the exits.
    pub of: Of<'a>,
    /// The source of wake-ups: a timer of the guest, a device, the host.
    pub wakes: Option<&'a str>,
    /// Exits per second.
    pub exits_per_second: f64,
}

/// The audit of an idle VM.
#[derive(Debug, Clone, PartialEq)]
pub struct Audit<'a> {
    /// Its process ID or domain ID.
    pub vm: Option<u32>,
    /// The allowed exits per second.
    pub budget: f64,
    /// The exits per second.
    pub exits_per_second: f64,
    /// The times per second that a vCPU slept and was woken.
    pub sleeps_per_second: f64,
    /// The causes of the exits, those with the most exits first.
    pub sources: Vec<Source<'a>>,
    /// The CPU time of its process's threads during the audit, the longest first; empty if it was not measured.
    pub threads: Vec<Spent>,
}

impl Audit<'_> {
    /// The CPU time of all threads of its process, without time in the guest, in nanoseconds.
    #[must_use]
    pub fn host_ns(&self) -> u64 {
        self.threads.iter().fold(0, |sum, one| sum.saturating_add(one.host_ns))
    }

    /// The number of times that any of its threads was woken.
    #[must_use]
    pub fn wake_ups(&self) -> u64 {
        self.threads.iter().fold(0, |sum, one| sum.saturating_add(one.wake_ups))
    }

    /// Tests whether the VM stays within its budget.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.exits_per_second <= self.budget
    }
}

/// Audits a VM that should be idle by its exits per second.
#[must_use]
pub fn audit<'a>(advice: &VmAdvice<'a>, observed_ns: u64, budget: f64) -> Audit<'a> {
    let rate = |exits: u64| if observed_ns == 0 { 0.0 } else { exits as f64 / observed_ns as f64 * 1e9 };
    let mut rows: Vec<_> = advice.rows.iter().collect();
    rows.sort_by_key(|row| Reverse(row.exits));
    let source = |row: &&crate::DeviceExits<'a>| Source {
        of: row.of,
        wakes: match row.of {
            Of::Device(device) => device.wakes.as_deref(),
            Of::UnknownAccess(_) | Of::UnknownReason(_) => None,
        },
        exits_per_second: rate(row.exits),
    };
    let slept = rows.iter().filter(|row| row.sleeps()).fold(0, |sum: u64, row| sum.saturating_add(row.exits));
    Audit {
        vm: advice.vm,
        budget,
        exits_per_second: rate(advice.exits),
        sleeps_per_second: rate(slept),
        sources: rows.iter().map(source).collect(),
        threads: Vec::new(),
    }
}
