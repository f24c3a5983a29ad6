//! Kicks among the interrupts of the host.
//!
//! When an interrupt arrives for a vCPU in guest mode, KVM interrupts its CPU so that the vCPU exits and takes it
//! (`kvm_vcpu_kick`). The exit looks the same as that for the host's timer or a device: only counts can distinguish them.

use super::Range;
use super::already::is_active_throughout;
use super::evidence::{Evidence, accesses, is_msr};
use super::register::{Register, arms_timer};
use exits::{ExitReason, VcpuExits};

/// The VMX preemption timer: a guest timer that uses it does not interrupt the host.
pub(super) const PREEMPTION_TIMER: ExitReason = ExitReason::vmx(52);

/// The number of kicks among the `interrupts` that caused exits of one vCPU.
///
/// It is at most all of them, and at most the number of interrupts accepted in the whole source, if known. The expected
/// number is what remains without the host's own interrupts, which have a rate of `tick_hz` in guest time, and without the
/// guest's timers that expire on the host, as far as these did not interrupt nested guests.
pub(super) fn kicks(
    vcpu: &VcpuExits,
    interrupts: u64,
    evidence: &Evidence,
    observed_ns: u64,
    tick_hz: f64,
) -> Range {
    if is_active_throughout(evidence) {
        return Range::NONE;
    }
    let whole = interrupts as f64;
    let high = evidence.accepted.map_or(whole, |accepted| whole.min(accepted as f64));
    let ticks = guest_seconds(vcpu, observed_ns) * tick_hz;
    // Guest time is also that of nested guests, so their interrupts count here.
    let all = all_interrupts(vcpu) as f64;
    let expected = (all - ticks - own_timers(vcpu) as f64).min(delivered(vcpu, evidence));
    Range::within(0.0, expected, high, whole)
}

/// The host's own interrupts per second of guest time: the rate of its timer tick, but at most the rate of the vCPU that is
/// interrupted least. vCPUs with too little certain guest time are ignored.
pub(super) fn host_rate(vcpus: &[&VcpuExits], observed_ns: u64, tick_hz: u32) -> f64 {
    let ticks = f64::from(tick_hz);
    let rates = vcpus.iter().filter_map(|vcpu| {
        let seconds = sure_guest_seconds(vcpu, observed_ns)?;
        (seconds * ticks >= ENOUGH_TICKS).then(|| all_interrupts(vcpu) as f64 / seconds)
    });
    rates.fold(ticks, f64::min)
}

/// The minimum number of expected ticks for their absence to be significant.
const ENOUGH_TICKS: f64 = 8.0;

/// EXTERNAL_INTERRUPT and `interrupt`.
pub(super) fn is_interrupt(reason: ExitReason) -> bool {
    reason == ExitReason::vmx(1) || reason == ExitReason::svm(0x60)
}

/// The exits for interrupts of the host, also those from nested guests.
fn all_interrupts(vcpu: &VcpuExits) -> u64 {
    let of_host = vcpu.reasons.iter().filter(|(reason, _)| is_interrupt(reason.basic()));
    of_host.fold(0u64, |sum, (_, exits)| sum.saturating_add(exits.count))
}

/// The time of the vCPU in guest mode: the time without the handling of its exits.
fn guest_seconds(vcpu: &VcpuExits, observed_ns: u64) -> f64 {
    let handling =
        vcpu.reasons.values().fold(0u64, |sum, exits| sum.saturating_add(exits.handling.total_ns()));
    observed_ns.saturating_sub(handling) as f64 / 1e9
}

/// The certain time in guest mode: without a sleep during which the observation may have begun, whose exit is not in it.
/// `None` if that is less than a tenth of the time, or if the vCPU slept at the end, because that sleep has no handling
/// time.
fn sure_guest_seconds(vcpu: &VcpuExits, observed_ns: u64) -> Option<f64> {
    let own = vcpu.levels().l1;
    let sleeps = || own.iter().filter(|(reason, _)| reason.is_sleep()).map(|(_, exits)| exits);
    if sleeps().any(|exits| exits.count > exits.handling.count()) {
        return None;
    }
    let longest = sleeps().filter_map(|exits| exits.handling.max_ns()).max().unwrap_or(0);
    let seconds = guest_seconds(vcpu, observed_ns) - 2.0 * longest as f64 / 1e9;
    (seconds >= observed_ns as f64 / 1e10).then_some(seconds)
}

/// The number of guest timers that interrupted the host: armed ones, without those that ended a sleep or used the
/// preemption timer.
fn own_timers(vcpu: &VcpuExits) -> u64 {
    let arms = accesses(vcpu).into_iter().filter(|&(access, _)| arms_timer(access));
    let armed = arms.fold(0u64, |sum, (_, exits)| sum.saturating_add(exits.count));
    let slept = vcpu.own_counts().into_iter().filter(|(reason, _)| reason.is_sleep());
    let slept = slept.fold(0u64, |sum, (_, count)| sum.saturating_add(count));
    // This timer of L1 may also expire while a nested guest runs.
    let expired = vcpu.reasons.iter().filter(|(reason, _)| reason.basic() == PREEMPTION_TIMER);
    let expired = expired.fold(0u64, |sum, (_, exits)| sum.saturating_add(exits.count));
    armed.saturating_sub(slept.max(expired))
}

/// The number of interrupts that the vCPU took, from its EOIs; infinite if these are unknown, because there are no events
/// for registers or the guest uses paravirtual EOIs.
fn delivered(vcpu: &VcpuExits, evidence: &Evidence) -> f64 {
    let split = vcpu.own_counts().keys().any(|&reason| is_msr(reason, None)) && evidence.x2apic > 0;
    let tells = split && evidence.eois >= evidence.ipis && evidence.paravirtual_eois == 0;
    if !tells {
        return f64::INFINITY;
    }
    let rows = accesses(vcpu).into_iter();
    let eois = rows.filter(|&(access, _)| Register::of(access).is_some_and(Register::is_eoi));
    eois.fold(0u64, |sum, (_, exits)| sum.saturating_add(exits.count)) as f64
}
