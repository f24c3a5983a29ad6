//! Evidence on a VM's interrupts, from its counts.

use std::collections::BTreeMap;

use super::kicks::{PREEMPTION_TIMER, is_interrupt};
use super::register::{Mode, Register, arms_timer};
use exits::{Access, Direction, ExitReason, Exits, Isa, Profile, VcpuExits};

/// The counts of one VM that the rules use. Exits of nested guests are not counted where they would be taken for the VM's.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// Writes to the ICR.
    pub(super) ipis: u64,
    /// Writes to the x2APIC's SELF IPI register.
    pub(super) self_ipis: u64,
    /// EOIs that caused exits.
    pub(super) eois: u64,
    /// EOIs by Hyper-V's register, which cause exits with and without interrupt virtualization.
    pub(super) hyper_v_eois: u64,
    /// The number of times that the guest armed its timer.
    pub(super) timer_arms: u64,
    /// Exits in which a vCPU goes to sleep.
    pub(super) halts: u64,
    /// Exits in which a timer of the guest may have expired: sleeps, interrupts of the host, and its preemption timer.
    pub(super) may_be_timers: u64,
    /// Exits for an interrupt window.
    pub(super) windows: u64,
    /// Exits that only occur with interrupt virtualization.
    pub(super) by_hardware: u64,
    /// True if the VM has SEV-ES or SEV-SNP, for which KVM inhibits AVIC. No exit shows SEV alone.
    pub(super) has_sev: bool,
    /// Exits by accesses to the APIC page. KVM may handle an EOI in one of them without an event.
    pub(super) page_exits: u64,
    /// MSR accesses to the x2APIC, in either direction.
    pub(super) x2apic: u64,
    /// Accesses to the xAPIC's page.
    pub(super) xapic: u64,
    /// True if the source has events that identify accesses to the APIC page.
    pub(super) page_recorded: bool,
    /// Interrupts that APICs accepted, in the whole source.
    pub(super) accepted: Option<u64>,
    /// EOIs of this VM that the host must handle; `None` if no count shows them all.
    pub(super) acknowledged: Option<u64>,
    /// All EOIs in the whole source.
    pub(super) all_eois: Option<u64>,
    /// The estimated number of EOIs of this VM in the selected part of the source.
    pub(super) likely_eois: Option<f64>,
    /// Paravirtual EOIs, which cause no exit, in the whole source.
    pub(super) paravirtual_eois: u64,
}

/// Events of KVM and of Xen that have the address of an access to the APIC page.
const PAGE_EVENTS: [&str; 3] = ["kvm:kvm_mmio", "hvm_iomem_read", "hvm_iomem_write"];

/// Reasons that only occur with interrupt virtualization: EOI_INDUCED, APIC_WRITE and AVIC's two.
const BY_HARDWARE: [ExitReason; 4] =
    [ExitReason::vmx(45), ExitReason::vmx(56), ExitReason::svm(0x401), ExitReason::svm(0x402)];
/// A call of a guest with SEV-ES or SEV-SNP.
pub(super) const VMGEXIT: ExitReason = ExitReason::svm(0x403);
const APIC_ACCESS: ExitReason = ExitReason::vmx(44);
/// INTERRUPT_WINDOW and `vintr`.
const WINDOWS: [ExitReason; 2] = [ExitReason::vmx(7), ExitReason::svm(0x64)];

impl Evidence {
    /// Evidence on the VM with these vCPUs of `profile`.
    pub(super) fn new(vcpus: &[&VcpuExits], profile: &Profile) -> Self {
        let events = &profile.events;
        let mut evidence = Self {
            accepted: recorded(events, "kvm:kvm_apic_accept_irq"),
            acknowledged: acknowledged(vcpus, events),
            all_eois: recorded(events, "kvm:kvm_eoi"),
            paravirtual_eois: recorded(events, "kvm:kvm_pv_eoi").unwrap_or(0),
            page_recorded: PAGE_EVENTS.iter().any(|event| recorded(events, event).is_some()),
            ..Self::default()
        };
        for vcpu in vcpus {
            for (reason, count) in vcpu.own_counts() {
                let add = |sum: &mut u64, counts: bool| {
                    *sum = sum.saturating_add(if counts { count } else { 0 });
                };
                add(&mut evidence.halts, reason.is_sleep());
                add(&mut evidence.may_be_timers, reason.is_sleep());
                add(&mut evidence.windows, WINDOWS.contains(&reason));
                add(&mut evidence.page_exits, reason == APIC_ACCESS);
                add(&mut evidence.by_hardware, BY_HARDWARE.contains(&reason));
                evidence.has_sev |= reason == VMGEXIT;
            }
            // A timer of L1 may expire while L2 runs. A halt of L2 is no sleep: its hypervisor, L1, is entered instead.
            for (reason, exits) in &vcpu.reasons {
                if is_interrupt(reason.basic()) || reason.basic() == PREEMPTION_TIMER {
                    evidence.may_be_timers = evidence.may_be_timers.saturating_add(exits.count);
                }
            }
            for (access, exits) in accesses(vcpu) {
                evidence.access(access, exits.count);
            }
        }
        evidence.likely_eois =
            evidence.all_eois.zip(share(vcpus, profile)).map(|(all, share)| all as f64 * share);
        evidence
    }

    fn access(&mut self, access: Access, count: u64) {
        let add = |sum: &mut u64, counts: bool| *sum = sum.saturating_add(if counts { count } else { 0 });
        add(&mut self.timer_arms, arms_timer(access));
        add(&mut self.hyper_v_eois, Register::of_hyper_v(access).is_some_and(Register::is_eoi));
        let Some(register) = Register::of(access) else { return };
        add(&mut self.ipis, register.is_icr());
        add(&mut self.self_ipis, register.is_self_ipi());
        add(&mut self.eois, register.is_eoi());
        add(&mut self.x2apic, register.mode == Mode::X2apic);
        add(&mut self.xapic, register.mode == Mode::Xapic);
    }
}

/// The EOIs that KVM passed on to its I/O APIC or PIC. With a split irqchip it passes them to the VMM, without this event
/// (`kvm_ioapic_send_eoi` in `arch/x86/kvm/lapic.c`). So the count shows all EOIs of a VM only if the source has no other
/// VM's exits, and it is not 0, which a split irqchip's always is.
fn acknowledged(vcpus: &[&VcpuExits], events: &BTreeMap<String, u64>) -> Option<u64> {
    let exits = vcpus.iter().flat_map(|vcpu| vcpu.reasons.values());
    let ours = exits.fold(0u64, |sum, exits| sum.saturating_add(exits.count));
    let of_this_vm = recorded(events, "kvm:kvm_exit") == Some(ours);
    recorded(events, "kvm:kvm_ack_irq").filter(|&count| of_this_vm && count > 0)
}

/// The estimated share of these vCPUs in the source's MSR writes: the profile's share in the source's exits, times the
/// vCPUs' share in the profile's MSR writes. `None` if the source does not count its exits.
fn share(vcpus: &[&VcpuExits], profile: &Profile) -> Option<f64> {
    let writes = |vcpus: &mut dyn Iterator<Item = &VcpuExits>| {
        let rows = vcpus.flat_map(VcpuExits::own_counts);
        let writes = rows.filter(|(reason, _)| is_msr(*reason, Some(Direction::Write)));
        writes.map(|(_, count)| count as f64).sum::<f64>()
    };
    let (ours, all) = (writes(&mut vcpus.iter().copied()), writes(&mut profile.vcpus().iter()));
    let exits = recorded(&profile.events, "kvm:kvm_exit")?.max(profile.total());
    (all > 0.0).then(|| profile.total() as f64 / exits as f64 * ours / all)
}

/// The number of events in the source; `None` if it does not contain the event. Readers differ in whether
/// they include the system in its name (`kvm:kvm_msr`, `kvm_msr`).
pub(super) fn recorded(events: &BTreeMap<String, u64>, event: &str) -> Option<u64> {
    let plain = event.rsplit(':').next().unwrap_or(event);
    events.get(event).or_else(|| events.get(plain)).copied()
}

/// The accesses of a vCPU by which its exits can be split: those to MSRs, and to the APIC page.
///
/// The event of the emulated APIC replaces them if they are missing: accesses to the page if there are no MSR exits, and
/// MSR accesses of the x2APIC if a recording has no event for MSRs.
pub(super) fn accesses(vcpu: &VcpuExits) -> Vec<(Access, &Exits)> {
    let by_msr = vcpu.own_counts().keys().any(|&reason| is_msr(reason, None));
    let emulated = vcpu.accesses.keys().any(|access| matches!(access, Access::Apic { .. }));
    // KVM handles EOIs of an xAPIC guest without an event for the page (`handle_apic_access` in `arch/x86/kvm/vmx/vmx.c`),
    // so the emulated APIC's events are more complete there.
    let direct = |access: &Access| match Register::of(*access) {
        Some(register) => register.mode == Mode::X2apic || by_msr || !emulated,
        None => matches!(access, Access::Msr { .. }),
    };
    let found: Vec<_> = vcpu.accesses.iter().filter(|(access, _)| direct(access)).collect();
    if !found.is_empty() {
        return found.into_iter().map(|(&access, exits)| (access, exits)).collect();
    }
    let stands_for = |access: &Access| match *access {
        Access::Apic { register, direction } if by_msr => {
            Some(Access::Msr { number: 0x800 + (register >> 4), direction })
        }
        Access::Apic { register, direction } => {
            Some(Access::Mmio { address: 0xfee0_0000 + u64::from(register), direction })
        }
        _ => None,
    };
    vcpu.accesses.iter().filter_map(|(access, exits)| Some((stands_for(access)?, exits))).collect()
}

/// Tests whether exits of this reason are MSR accesses, in this direction if one is given.
pub(super) fn is_msr(reason: ExitReason, direction: Option<Direction>) -> bool {
    match (reason.isa, reason.basic().code) {
        (Isa::Vmx, 31 | 84) => direction != Some(Direction::Write),
        (Isa::Vmx, 32 | 85) => direction != Some(Direction::Read),
        (Isa::Svm, 0x7c) => true,
        _ => false,
    }
}
