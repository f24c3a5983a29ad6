//! Figures of the VM exits of a run.

use exits::{ExitReason, Profile};

use crate::{Better, Combine, Metric, Unit};

/// The exits of a run.
#[derive(Debug, Default)]
pub(super) struct ExitsSeen {
    pub(super) metrics: Vec<Metric>,
    pub(super) warnings: Vec<String>,
    /// The profile and its instruction set; `None` if only KVM's statistics were available.
    pub(super) profile: Option<(exits::Isa, Profile)>,
    /// The seconds of the rates; `None` if they are those of the readings.
    pub(super) seconds: Option<f64>,
    /// Run time of the programs in the kernel, in nanoseconds.
    pub(super) cost_ns: Option<u64>,
}

/// A reason as part of a metric's name; flags of VMX follow after a dash.
pub(super) fn word(reason: ExitReason) -> String {
    reason.to_string().replace(' ', "-")
}

/// Exits a second, and handling time in percent of the vCPUs' time. The exit of a halted vCPU lasts as long
/// as it sleeps, so `handling.total` excludes halts.
pub(super) fn metrics(profile: &Profile, elapsed_ns: u64) -> Vec<Metric> {
    if elapsed_ns == 0 {
        return Vec::new();
    }
    let seconds = elapsed_ns as f64 / 1e9;
    // A vCPU of KVM is identified by its thread; those of Xen have no threads here.
    let known = |vcpu: &exits::Vcpu| vcpu.thread.is_some() || vcpu.number.is_some();
    let vcpus = profile.vcpus().iter().filter(|vcpu| known(&vcpu.vcpu)).count();
    let rate = |name: &str, count: u64| Metric {
        name: format!("exits.{name}"),
        unit: Unit::PerSecond,
        better: Better::Lower,
        combine: Combine::Single,
        value: count as f64 / seconds,
    };
    let share = |name: &str, ns: u64| Metric {
        name: format!("handling.{name}"),
        unit: Unit::Percent,
        better: Better::Lower,
        combine: Combine::Single,
        value: ns as f64 * 100.0 / (elapsed_ns as f64 * vcpus as f64),
    };
    let reasons = profile.reasons();
    let mut metrics = vec![rate("total", profile.total())];
    metrics.extend(reasons.iter().map(|(&reason, exits)| rate(&word(reason), exits.count)));
    if vcpus > 0 {
        let busy = reasons.iter().filter(|(reason, _)| !reason.is_sleep());
        metrics.push(share("total", busy.map(|(_, exits)| exits.handling.total_ns()).sum()));
        metrics
            .extend(reasons.iter().map(|(&reason, exits)| share(&word(reason), exits.handling.total_ns())));
    }
    metrics
}
