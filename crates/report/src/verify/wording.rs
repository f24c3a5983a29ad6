//! The parts of a verdict in words.

use std::fmt::Write as _;

use conclusions::activation::{
    Controls, DeviceDelivery, DeviceVerdict, Doubt, ExitSigns, InForce, IpiVirtualization, Irqchip, Mode,
    NoIpiVirtualization, PostingObstacle, Status, VmState,
};
use doctor::examination::without_cr8_intercept;
use exits::Inhibits;
use verify::{Changed, StateSeen, VmVerification};

use crate::format::{count, counted, whole_time};
use crate::text::printable;

/// The maximum number of listed changes; more are only counted.
const MOST_CHANGES: usize = 5;

pub(super) fn answer(vm: &VmVerification) -> String {
    let activation = &vm.activation;
    let mode = match activation.mode {
        Some(Mode::Apicv) => "APICv",
        Some(Mode::Avic) => "AVIC",
        Some(Mode::X2avic) => "x2AVIC",
        Some(Mode::HybridAvic) => "AVIC (accesses of x2APIC registers exit)",
        Some(Mode::None) | None => "interrupt virtualization",
    };
    match activation.status {
        Status::Active => format!("{mode} active"),
        Status::Partly if activation.active_vcpus == 0 => format!("{mode} active part of the time"),
        Status::Partly => {
            format!(
                "{mode} active for {} of {}",
                activation.active_vcpus,
                counted(activation.vcpus as u64, "vCPU")
            )
        }
        Status::Inhibited if activation.reasons.is_empty() => {
            "inhibited, without a reason in force".to_owned()
        }
        Status::Inhibited => {
            let names: Vec<String> = activation.reasons.iter().map(name_of).collect();
            format!("inhibited by {}", names.join(", "))
        }
        Status::Unknown => "unknown".to_owned(),
    }
}

pub(super) fn name_of(reason: &InForce) -> String {
    match (reason.reason, reason.number) {
        (Some(reason), _) => reason.name().to_owned(),
        (None, Some(number)) => format!("reason {number}"),
        (None, None) => "an unknown reason".to_owned(),
    }
}

pub(super) fn in_force(reason: &InForce, state: Option<&StateSeen>, watched_ns: u64) -> String {
    let mut text = name_of(reason);
    if let Some(state) = state {
        let _ =
            write!(text, ", set in {} of {}", reason.samples, counted(state.samples.len() as u64, "sample"));
    }
    match reason.since_ns {
        Some(since) => {
            let ago = whole_time(watched_ns.saturating_sub(since));
            let _ = write!(text, "; for {ago} (seen as it was set)");
        }
        None if reason.samples > 0 => text += "; since before it was watched",
        None => {}
    }
    if reason.changes > 1 {
        let _ = write!(text, "; {} meanwhile", counted(reason.changes as u64, "change"));
    }
    text
}

pub(super) fn ipis(state: IpiVirtualization, parameter: Option<bool>) -> String {
    let because = |why| match why {
        NoIpiVirtualization::Inhibited => "interrupt virtualization is not active",
        NoIpiVirtualization::Parameter => "enable_ipiv is off",
        NoIpiVirtualization::Erratum1235 => {
            "enable_ipiv is off, as the kernel leaves it on this family for erratum 1235; IPIs then take \
             avic_incomplete_ipi exits"
        }
        NoIpiVirtualization::HybridAvic => {
            "the guest uses x2APIC, whose registers the CPU's AVIC does not virtualize"
        }
        NoIpiVirtualization::Controls => "KVM leaves it out of the CPU's controls for this VM",
        NoIpiVirtualization::Cpu => "the CPU has no IPI virtualization; each IPI takes an exit of its sender",
        NoIpiVirtualization::Kernel => "this kernel's KVM has none (Linux 6.0 is needed)",
    };
    match state {
        IpiVirtualization::On if parameter.is_none() => "virtualized, as a part of AVIC".to_owned(),
        IpiVirtualization::On => "virtualized (enable_ipiv)".to_owned(),
        IpiVirtualization::Off(why) => format!("not virtualized: {}", because(why)),
        IpiVirtualization::NotAvailable(why) => format!("cannot be virtualized: {}", because(why)),
        IpiVirtualization::Unknown => "it is not known whether they are virtualized".to_owned(),
    }
}

pub(super) fn delivery(verdict: &DeviceVerdict, watched_ns: u64) -> String {
    let evidence = &verdict.evidence;
    let obstacle = evidence.obstacle.map(|obstacle| match obstacle {
        PostingObstacle::Inhibited => "interrupt virtualization is not active for the VM",
        PostingObstacle::Iommu => "the IOMMU cannot post",
        PostingObstacle::Parameter => "enable_device_posted_irqs is off",
        PostingObstacle::KernelArgument => "the host's kernel arguments forbid posting",
        PostingObstacle::LevelTriggered => "it interrupts by INTx, which is never posted",
        PostingObstacle::Mediated => "a driver of the host raises its interrupts, which are never posted",
    });
    let how = match verdict.delivery {
        DeviceDelivery::Posted => "interrupts are posted to the vCPU",
        DeviceDelivery::ByHost => "the host takes its interrupts and injects them",
        DeviceDelivery::None => "no interrupt is set up",
        DeviceDelivery::Unknown if evidence.is_mixed() => {
            "not all of its vectors are posted; none of its interrupts reached the host"
        }
        DeviceDelivery::Unknown => "posted or idle: none of its interrupts reached the host",
    };
    let mut text = format!("{}: {how}", printable(&verdict.device));
    if let Some(obstacle) = obstacle {
        let _ = write!(text, "; {obstacle}");
    }
    let _ = write!(
        text,
        "; {} in the host, {} in {}",
        counted(evidence.host_vectors as u64, "vector"),
        counted(evidence.host_interrupts, "interrupt"),
        whole_time(watched_ns)
    );
    match evidence.last_update_posts {
        Some(true) => text += "; kvm_pi_irte_update: posted",
        Some(false) => text += "; kvm_pi_irte_update: not posted",
        None if evidence.updated_vectors > 0 => {
            let updated = counted(evidence.updated_vectors as u64, "vector");
            let _ = write!(text, "; kvm_pi_irte_update: {} of {updated} posted", evidence.posted_vectors);
        }
        None => {}
    }
    text
}

pub(super) fn state_in_words(seen: &StateSeen) -> String {
    let state: &VmState = &seen.last;
    let mut parts = Vec::new();
    parts.push(match state.inhibits {
        Some(mask) => format!("inhibit mask {}", Inhibits(mask.0)),
        None => "no inhibit mask".to_owned(),
    });
    let active = state.vcpus.iter().filter(|vcpu| vcpu.active == Some(true)).count();
    parts.push(format!("apicv_active for {active} of {}", counted(state.vcpus.len() as u64, "vCPU")));
    let told: Vec<Controls> = state.vcpus.iter().filter_map(|vcpu| vcpu.controls).collect();
    if !told.is_empty() {
        let delivers = told.iter().filter(|controls| controls.delivers()).count();
        let field = match told[0] {
            Controls::Vmx { .. } => "virtual-interrupt delivery in the VMCS",
            Controls::Svm { .. } => "AVIC enable in the VMCB",
        };
        parts.push(format!("{field} of {delivers}"));
    }
    let x2apic = state.vcpus.iter().filter(|vcpu| vcpu.x2apic == Some(true)).count();
    parts.push(format!("x2APIC mode in {x2apic}"));
    parts.extend(state.irqchip.map(|irqchip| {
        let place = match irqchip {
            Irqchip::None => "no irqchip in the kernel",
            Irqchip::Kernel => "irqchip in the kernel",
            Irqchip::Split => "split irqchip",
        };
        place.to_owned()
    }));
    parts.extend(
        state
            .pit_reinjects
            .map(|reinjects| if reinjects { "PIT reinjects".to_owned() } else { "PIT discards".to_owned() }),
    );
    parts.join(", ")
}

pub(super) fn changes_in_words(changes: &[Changed], watched_ns: u64) -> String {
    let watched = whole_time(watched_ns);
    if changes.is_empty() {
        return format!("no change of inhibit reasons in {watched}");
    }
    let one = |change: &Changed| {
        let name =
            change.reason.map_or(format!("reason {}", change.number), |reason| reason.name().to_owned());
        let what = if change.set { "set" } else { "cleared" };
        format!("{name} {what} at {}", whole_time(change.after_ns))
    };
    let told: Vec<String> = changes.iter().take(MOST_CHANGES).map(one).collect();
    let rest = match changes.len().saturating_sub(MOST_CHANGES) {
        0 => String::new(),
        more => format!(", {more} more"),
    };
    format!("{} in {watched}: {}{rest}", counted(changes.len() as u64, "report"), told.join(", "))
}

pub(super) fn signs_in_words(signs: &ExitSigns, watched_ns: u64) -> String {
    let without = [
        (signs.windows, ["interrupt window", "interrupt windows"]),
        (signs.eoi_writes, ["EOI write", "EOI writes"]),
        (signs.tpr_writes, ["TPR write", "TPR writes"]),
        (signs.cr8_writes, ["CR8 write", "CR8 writes"]),
        (signs.icr_writes, ["ICR write", "ICR writes"]),
    ];
    let with = [
        (signs.handed_back, ["register access handed back", "register accesses handed back"]),
        (signs.eoi_induced, ["EOI that the host must see", "EOIs that the host must see"]),
        (signs.incomplete_ipis, ["incomplete IPI", "incomplete IPIs"]),
    ];
    let list = |some: &[(u64, [&str; 2])]| {
        let told: Vec<String> = some
            .iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, [one, many])| {
                format!("{} {}", count(*number), if *number == 1 { one } else { many })
            })
            .collect();
        if told.is_empty() { "none".to_owned() } else { told.join(", ") }
    };
    format!(
        "{} in {}; of those that it removes: {}; of those that exist only with it: {}",
        count(signs.exits),
        whole_time(watched_ns),
        list(&without),
        list(&with)
    )
}

pub(super) fn doubt_in_words(doubt: &Doubt, state: Option<&StateSeen>) -> String {
    let samples = state.map_or(0, |state| state.samples.len());
    let numbers = |vcpus: &[u32]| {
        let told: Vec<String> = vcpus.iter().map(u32::to_string).collect();
        told.join(", ")
    };
    match doubt {
        Doubt::Passing(reason) => format!(
            "{} comes and goes: set in {} of {}, {}",
            name_of(reason),
            reason.samples,
            counted(samples as u64, "sample"),
            counted(reason.changes as u64, "change")
        ),
        Doubt::Lifted(reason) => {
            format!(
                "{} was set for a time and is not now ({} of {})",
                name_of(reason),
                reason.samples,
                counted(samples as u64, "sample")
            )
        }
        Doubt::InactiveVcpus(vcpus) => format!(
            "Not active for vCPU {}: they take up a lifted reason when they next run, or their own APIC is off, or they \
             run a nested guest, during which AVIC is off",
            numbers(vcpus)
        ),
        Doubt::SometimesInactive { vcpus, samples: inactive } => format!(
            "Not active for vCPU {} in up to {inactive} of {}, without a reason of the VM: AVIC is off while a vCPU runs a \
             nested guest, and after a reason is cleared until the vCPU next runs",
            numbers(vcpus),
            counted(samples as u64, "sample")
        ),
        Doubt::ControlsDisagree(vcpus) => format!(
            "KVM says active for vCPU {}, but the CPU is not told to deliver; it may be changing just now",
            numbers(vcpus)
        ),
        Doubt::WindowsSeen(number) => format!(
            "{} all the same: those of NMIs, or of an emulated PIC, which are injected",
            counted(*number, "interrupt window")
        ),
        Doubt::Cr8WritesSeen(number) => format!(
            "{} although AVIC is active: this kernel goes on to intercept them; fixed in {}",
            counted(*number, "CR8 write"),
            without_cr8_intercept()
        ),
        Doubt::RegisterWritesSeen(number) => format!(
            "{} of EOI or TPR, which the CPU handles itself if KVM lets it: probably a bug of this kernel",
            counted(*number, "emulated write")
        ),
        Doubt::OnlyWithItSeen(number) => format!(
            "{} that exist only with interrupt virtualization: it was active part of the time",
            counted(*number, "exit")
        ),
        Doubt::CpuDenies => {
            "KVM uses it, but the CPU says that it has none (kvm_amd.force_avic), and no exit \
                             shows that it works all the same"
                .to_owned()
        }
        Doubt::ByExitsAlone => "Judged by exits alone: KVM's own state could not be read".to_owned(),
        Doubt::ByParameterAlone => {
            "Judged by the module's parameter alone: KVM's own state could not be read".to_owned()
        }
    }
}
