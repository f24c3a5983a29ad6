//! The verdicts of `exitless verify`, each with its evidence.

use std::fmt::Write as _;

use exits::Inhibits;
use exits::activation::{
    Controls, DeviceDelivery, DeviceVerdict, Doubt, ExitSigns, InForce, IpiVirtualization, Irqchip, Mode,
    NoIpiVirtualization, PostingObstacle, Status, VmState,
};
use experiment::verify::{Changed, HostSide, Provoked, StateSeen, Verification, VmVerification};
use host::Availability;

use super::{NARROWEST, wrapped};
use crate::figure::{count, printable, rate};
use crate::quantity::{counted, whole_time};

/// Width of the first column of a VM's lines.
const LABEL: usize = 16;
/// More changes than these are told by their number.
const MOST_CHANGES: usize = 5;

/// The verdict on each VM with what it rests on, the host's side first and the sum of all last.
///
/// No line is wider than `width` columns where `width` is at least 80. Without `colour` there is no escape sequence in
/// it.
#[must_use]
pub fn verification(seen: &Verification, width: usize, colour: bool) -> String {
    let page = Page { width: width.max(NARROWEST), colour };
    let mut text = page.host(&seen.host);
    for vm in &seen.vms {
        text.push('\n');
        text += &page.vm(vm, seen);
    }
    if let Some(provoked) = &seen.provoked {
        text.push('\n');
        text += &page.provoked(provoked);
    }
    if !seen.missing.is_empty() || !seen.likely.is_empty() {
        text += "\nMissing\n\n";
        for missing in &seen.missing {
            let whose = missing.pid.map_or(String::new(), |pid| format!(" of process {pid}"));
            text +=
                &wrapped(&format!("{}{whose}: {}", missing.what, missing.why), page.width, "  - ", "    ");
        }
        for likely in &seen.likely {
            let note = format!(
                "Process {} ({}) looks like a VM and may not be looked into; run as root",
                likely.pid,
                printable(&likely.command)
            );
            text += &wrapped(&note, page.width, "  - ", "    ");
        }
    }
    text.push('\n');
    text += &page.emphasised(&wrapped(&conclusion(seen), page.width, "", ""), seen.status);
    text
}

fn conclusion(seen: &Verification) -> String {
    let number = |status| seen.vms.iter().filter(|vm| vm.activation.status == status).count();
    let name = mechanism(&seen.host);
    if seen.vms.is_empty() {
        return match (&seen.provoked, seen.status) {
            (Some(_), Status::Active) => format!("No VM is running; a new one gets {name}."),
            (Some(provoked), Status::Inhibited) => {
                let why = provoked.why.as_deref().unwrap_or("its exits show none");
                format!("No VM is running; a new one does not get {name}: {why}.")
            }
            (_, Status::Inhibited) => format!(
                "No VM is running, and none could have {name}: the module has it off. `exitless doctor` or the \
                 parameter above tells more."
            ),
            (Some(_), _) => "No VM is running, and what a new one would get cannot be told.".to_owned(),
            (None, _) => {
                "No VM is running, so that nothing can be told; --provoke tells what a new one would \
                          get."
                    .to_owned()
            }
        };
    }
    let total = seen.vms.len();
    let off = number(Status::Inhibited) + number(Status::Partly);
    let unknown = number(Status::Unknown) + seen.likely.len();
    match (off, unknown) {
        (0, 0) if total == 1 => format!("{name} is active for the VM."),
        (0, 0) => format!("{name} is active for all {total} VMs."),
        (1, _) if total == 1 && number(Status::Partly) == 1 => {
            format!("{name} is active for some vCPUs of the VM only.")
        }
        (1, _) if total == 1 => format!("{name} is not active for the VM."),
        (0, 1) if total == 1 => format!("Whether {name} is active for the VM cannot be told."),
        (0, _) => format!("Whether {name} is active cannot be told for {}.", counted(unknown as u64, "VM")),
        (_, 0) => {
            format!("{name} is not, or not wholly, active for {off} of {}.", counted(total as u64, "VM"))
        }
        (_, _) => format!(
            "{name} is not, or not wholly, active for {off} of {}, and cannot be told for {unknown}.",
            counted(total as u64, "VM")
        ),
    }
}

fn mechanism(host: &HostSide) -> String {
    match (&host.interrupt_virtualization, host.isa) {
        (Some(found), _) => found.name.clone(),
        (None, Some(isa)) => isa.interrupt_virtualization().to_owned(),
        (None, None) => "interrupt virtualization".to_owned(),
    }
}

struct Page {
    width: usize,
    colour: bool,
}

impl Page {
    fn line(&self, label: &str, text: &str) -> String {
        let first = format!("  {label:<LABEL$}");
        let rest = " ".repeat(LABEL + 2);
        wrapped(text, self.width, &first, &rest)
    }

    fn emphasised(&self, text: &str, status: Status) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let code = match status {
            Status::Active => "1;32",
            Status::Inhibited | Status::Partly => "1;31",
            Status::Unknown => "1;33",
        };
        format!("\u{1b}[{code}m{}\u{1b}[0m\n", text.trim_end())
    }

    fn host(&self, host: &HostSide) -> String {
        let mut text = String::from("This host\n");
        let kernel =
            host.kernel.as_deref().map_or("unknown".to_owned(), |release| format!("Linux {release}"));
        let cpu = host.cpu.as_deref().map_or(String::new(), |name| format!(" on {}", printable(name)));
        text += &self.line("kernel", &(printable(&kernel) + &cpu));
        match &host.interrupt_virtualization {
            Some(found) => {
                let can = match &found.available {
                    Availability::Yes => "the CPU has it".to_owned(),
                    Availability::No(why) => why.clone(),
                };
                let value = found.value.as_deref().unwrap_or("not to be read");
                let parameter = format!("{} is {value}", found.parameter.display());
                text += &self.line(&found.name, &format!("{can}; {parameter}"));
            }
            None => text += &self.line("CPU", "shows no virtualization (neither vmx nor svm)"),
        }
        if host.module.is_none() {
            let module = "neither kvm_intel nor kvm_amd is loaded, so that no VM here runs on hardware";
            text += &self.line("KVM", module);
        }
        if let Some(why) = &host.kvm {
            text += &self.line("/dev/kvm", why);
        }
        if !host.iommus.is_empty() {
            let post = |wanted| host.iommus.iter().filter(|one| one.posts == wanted).count();
            let told = format!(
                "{}: {} can post interrupts, {} cannot, {} unknown",
                counted(host.iommus.len() as u64, "unit"),
                post(Some(true)),
                post(Some(false)),
                post(None)
            );
            text += &self.line("IOMMU", &told);
        }
        text
    }

    fn vm(&self, vm: &VmVerification, seen: &Verification) -> String {
        let activation = &vm.activation;
        let which = vm.which.map_or(String::new(), |which| format!(", its VM {which}"));
        let title = format!("{} (process {}{which}): {}", printable(&vm.name), vm.pid, answer(vm));
        let mut text = self.emphasised(&wrapped(&title, self.width, "", ""), activation.status);
        for reason in &activation.reasons {
            text += &self.line("reason", &in_force(reason, vm.state.as_ref(), seen.watched_ns));
            let Some(known) = vm.cures.iter().find(|known| Some(known.reason) == reason.reason) else {
                continue;
            };
            text += &self.line("  set by", known.set_by);
            for cure in &known.cures {
                text += &self.line("  mend", &format!("{}: {}", cure.place.name(), cure.change));
            }
            if known.cures.is_empty() {
                text += &self.line("  mend", known.reason.cure());
            }
        }
        text += &self.line("IPIs", &ipis(vm.ipi_virtualization, seen.host.enable_ipiv));
        for device in &vm.devices {
            text += &self.line("device", &delivery(device, seen.watched_ns));
        }
        if let Some(state) = &vm.state {
            text += &self.line("KVM's state", &state_in_words(state));
        }
        if let Some(changes) = &vm.changes {
            text += &self.line("tracepoints", &changes_in_words(changes, seen.watched_ns));
        }
        if let Some(signs) = &vm.exits {
            text += &self.line("exits", &signs_in_words(signs, seen.watched_ns));
        }
        for doubt in &activation.doubts {
            text += &self.line("note", &doubt_in_words(doubt, vm.state.as_ref()));
        }
        text
    }

    fn provoked(&self, provoked: &Provoked) -> String {
        let title = match provoked.status {
            Status::Active => "A micro VM on this host (not one of the VMs above): active",
            Status::Inhibited | Status::Partly => {
                "A micro VM on this host (not one of the VMs above): inhibited"
            }
            Status::Unknown => "A micro VM on this host (not one of the VMs above): cannot be told",
        };
        let mut text = self.emphasised(&wrapped(title, self.width, "", ""), provoked.status);
        if let Some(why) = &provoked.why {
            text += &self.line("why", why);
        }
        let pairs = [("EOI", provoked.exits_per_eoi), ("IPI", provoked.exits_per_ipi)];
        for (what, pair) in pairs {
            let figure = |value: Option<f64>| value.map_or("not measured".to_owned(), rate);
            if pair.on.is_some() || pair.off.is_some() {
                let told = format!("{} inhibited, {} not inhibited", figure(pair.off), figure(pair.on));
                text += &self.line(&format!("exits an {what}"), &told);
            }
        }
        text
    }
}

fn answer(vm: &VmVerification) -> String {
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
        Status::Partly => {
            format!("{mode} active for {} of {} vCPUs", activation.active_vcpus, activation.vcpus)
        }
        Status::Inhibited if activation.reasons.is_empty() => {
            "inhibited, without a reason in force".to_owned()
        }
        Status::Inhibited => {
            let names: Vec<String> = activation.reasons.iter().map(name_of).collect();
            format!("inhibited by {}", names.join(", "))
        }
        Status::Unknown => "cannot be told".to_owned(),
    }
}

fn name_of(reason: &InForce) -> String {
    match (reason.reason, reason.number) {
        (Some(reason), _) => reason.name().to_owned(),
        (None, Some(number)) => format!("reason {number}"),
        (None, None) => "an unknown reason".to_owned(),
    }
}

fn in_force(reason: &InForce, state: Option<&StateSeen>, watched_ns: u64) -> String {
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

fn ipis(state: IpiVirtualization, parameter: Option<bool>) -> String {
    let because = |why| match why {
        NoIpiVirtualization::Inhibited => "interrupt virtualization is not active",
        NoIpiVirtualization::Parameter => "enable_ipiv is off",
        NoIpiVirtualization::Erratum1235 => {
            "enable_ipiv is off, as the kernel leaves it on this family for erratum 1235; IPIs then take \
             avic_incomplete_ipi exits"
        }
        NoIpiVirtualization::Controls => "KVM leaves it out of the CPU's controls for this VM",
        NoIpiVirtualization::Cpu => "the CPU has no IPI virtualization; each IPI takes an exit of its sender",
        NoIpiVirtualization::Kernel => "this kernel's KVM has none (Linux 5.19 is needed)",
    };
    match state {
        IpiVirtualization::On if parameter.is_none() => "virtualized, as a part of AVIC".to_owned(),
        IpiVirtualization::On => "virtualized (enable_ipiv)".to_owned(),
        IpiVirtualization::Off(why) => format!("not virtualized: {}", because(why)),
        IpiVirtualization::NotAvailable(why) => format!("cannot be virtualized: {}", because(why)),
        IpiVirtualization::Unknown => "whether they are virtualized cannot be told".to_owned(),
    }
}

fn delivery(verdict: &DeviceVerdict, watched_ns: u64) -> String {
    let evidence = &verdict.evidence;
    let obstacle = evidence.obstacle.map(|obstacle| match obstacle {
        PostingObstacle::Inhibited => "interrupt virtualization is not active for the VM",
        PostingObstacle::Iommu => "the IOMMU cannot post",
        PostingObstacle::Parameter => "enable_device_posted_irqs is off",
        PostingObstacle::KernelArgument => "the host's kernel arguments forbid posting",
        PostingObstacle::LevelTriggered => "it interrupts by INTx, which is never posted",
    });
    let how = match verdict.delivery {
        DeviceDelivery::Posted => "interrupts are posted to the vCPU",
        DeviceDelivery::ByHost => "the host takes its interrupts and injects them",
        DeviceDelivery::None => "no interrupt is set up",
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
        None => {}
    }
    text
}

fn state_in_words(seen: &StateSeen) -> String {
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

fn changes_in_words(changes: &[Changed], watched_ns: u64) -> String {
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

fn signs_in_words(signs: &ExitSigns, watched_ns: u64) -> String {
    let without = [
        (signs.windows, "interrupt windows"),
        (signs.eoi_writes, "EOI writes"),
        (signs.tpr_writes, "TPR writes"),
        (signs.icr_writes, "ICR writes"),
    ];
    let with = [
        (signs.handed_back, "register accesses handed back"),
        (signs.eoi_induced, "EOIs that the host must see"),
        (signs.incomplete_ipis, "incomplete IPIs"),
    ];
    let list = |some: &[(u64, &str)]| {
        let told: Vec<String> = some
            .iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, what)| format!("{} {what}", count(*number)))
            .collect();
        if told.is_empty() { "none".to_owned() } else { told.join(", ") }
    };
    format!(
        "{} in {}; of those that it takes away: {}; of those only with it: {}",
        count(signs.exits),
        whole_time(watched_ns),
        list(&without),
        list(&with)
    )
}

fn doubt_in_words(doubt: &Doubt, state: Option<&StateSeen>) -> String {
    let samples = state.map_or(0, |state| state.samples.len());
    let numbers = |vcpus: &[u32]| {
        let told: Vec<String> = vcpus.iter().map(u32::to_string).collect();
        told.join(", ")
    };
    match doubt {
        Doubt::Passing(reason) => format!(
            "{} comes and goes: set in {} of {samples} samples, {}",
            name_of(reason),
            reason.samples,
            counted(reason.changes as u64, "change")
        ),
        Doubt::Lifted(reason) => {
            format!(
                "{} was set for a time and is not now ({} of {samples} samples)",
                name_of(reason),
                reason.samples
            )
        }
        Doubt::InactiveVcpus(vcpus) => format!(
            "Not active for vCPU {}: they take up a lifted reason when they next run, or their own APIC is off",
            numbers(vcpus)
        ),
        Doubt::ControlsDisagree(vcpus) => format!(
            "KVM says active for vCPU {}, but the CPU is not told to deliver; it may be changing just now",
            numbers(vcpus)
        ),
        Doubt::WindowsSeen(number) => format!(
            "{} all the same: those of NMIs, or of an emulated PIC, which are injected",
            counted(*number, "interrupt window")
        ),
        Doubt::OnlyWithItSeen(number) => format!(
            "{} that exist only with interrupt virtualization: it was active for a part of the time",
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

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
