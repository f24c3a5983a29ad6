//! The verdicts of `exitless verify`, each with its evidence.

mod wording;

use conclusions::activation::Status;
use doctor::managed::hides;
use exits::Cure;
use host::{Availability, Lack};
use verify::{HostSide, Provoked, Verification, VmVerification};

use self::wording::{
    answer, changes_in_words, delivery, doubt_in_words, in_force, ipis, signs_in_words, state_in_words,
};
use crate::findings::tree::managed_in_words;
use crate::format::{counted, per_operation};
use crate::terminal::labels::listed;
use crate::terminal::{NARROWEST, emphasised, wrapped};
use crate::text::printable;
use host::vms::{AS_ROOT, Vmm};

/// Width of the first column of a VM's lines.
const LABEL: usize = 16;

/// The verdict on each VM with its evidence, after the host's facts and before the summary.
///
/// No line is wider than `width` columns if `width` is at least 80. Without `colour` it has no escape
/// sequences.
#[must_use]
pub fn terminal(seen: &Verification, width: usize, colour: bool) -> String {
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
    let missing = seen.missing.iter().map(|missing| {
        let whose = missing.pid.map_or(String::new(), |pid| format!(" of process {pid}"));
        format!("{}{whose}: {}", missing.what, missing.why)
    });
    let likely = seen.likely.iter().map(|likely| {
        let command = printable(&likely.command);
        format!("Process {} ({command}) looks like a VM and cannot be inspected; {AS_ROOT}", likely.pid)
    });
    text += &listed("Missing", missing.chain(likely), page.width);
    text.push('\n');
    text += &page.emphasised(&wrapped(&conclusion(seen), page.width, "", ""), seen.status);
    text
}

fn conclusion(seen: &Verification) -> String {
    let number = |status| seen.vms.iter().filter(|vm| vm.activation.status == status).count();
    let name = mechanism(&seen.host);
    if seen.vms.is_empty() && seen.host.xen {
        return "This is Xen's control domain: Xen uses interrupt virtualization for all HVM and PVH guests or for none, \
                and `exitless doctor` tells which; what it leaves: `exitless stat --by vm,reason`."
            .to_owned();
    }
    if seen.vms.is_empty() {
        return match (&seen.provoked, seen.status) {
            (Some(_), Status::Active) => format!("No VM was found; a new one gets {name}."),
            (Some(provoked), Status::Inhibited) => {
                let why = provoked.why.as_deref().unwrap_or("its exits show none");
                format!("No VM was found; a new one does not get {name}: {why}.")
            }
            (_, Status::Inhibited) => match seen.host.lack() {
                Some(Lack { why, next }) => {
                    format!("No VM was found, and none could have {name}: {why}. What to do: {next}.")
                }
                None => format!(
                    "No VM was found, and none could have {name}: the module has it off. `exitless enable` switches \
                     it on."
                ),
            },
            (Some(_), _) => "No VM was found, and whether a new one would have it is unknown.".to_owned(),
            (None, _) => "No VM was found, so the state is unknown; --provoke shows what a new one would \
                          get."
                .to_owned(),
        };
    }
    let total = seen.vms.len();
    let off = number(Status::Inhibited) + number(Status::Partly);
    let unknown = number(Status::Unknown) + seen.likely.len() + seen.held.len();
    match (off, unknown) {
        (0, 0) if total == 1 => format!("{name} is active for the VM."),
        (0, 0) => format!("{name} is active for all {total} VMs."),
        (1, _) if total == 1 && number(Status::Partly) == 1 => {
            format!("{name} is active for only some vCPUs of the VM, or part of the time.")
        }
        (1, _) if total == 1 => format!("{name} is not active for the VM."),
        (0, 1) if number(Status::Unknown) == total => {
            format!("It is not known whether {name} is active for the VM.")
        }
        (0, _) => format!("It is not known whether {name} is active for {}.", counted(unknown as u64, "VM")),
        (_, 0) => {
            format!("{name} is not, or not fully, active for {off} of {}.", counted(total as u64, "VM"))
        }
        (_, _) => format!(
            "{name} is not, or not fully, active for {off} of {}, and unknown for {unknown}.",
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
        let code = match status {
            Status::Active => "1;32",
            Status::Inhibited | Status::Partly => "1;31",
            Status::Unknown => "1;33",
        };
        emphasised(text, code, self.colour)
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
            None if host.xen => {
                text += &self.line("Xen", "this is its control domain: Xen, not KVM, runs the VMs here");
            }
            None => text += &self.line("CPU", "shows no virtualization (neither vmx nor svm)"),
        }
        if host.module.is_none() && !host.xen {
            let module = "neither kvm_intel nor kvm_amd is loaded, so that no VM here runs on hardware";
            text += &self.line("KVM", module);
        }
        if let Some(why) = host.kvm.as_ref().filter(|_| !host.xen) {
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
            text += &self.line("  set by", &known.set_by);
            for managed in &known.managed {
                for told in managed_in_words(managed) {
                    text += &self.line("  fix", &told);
                }
            }
            // The user of a management program edits neither QEMU's arguments nor libvirt's XML, and other VMMs have
            // neither.
            let shown = |cure: &&Cure| match known.managed.is_empty() {
                true => vm.vmm == Vmm::Qemu || !cure.place.is_of_qemu(),
                false => !hides(cure.place),
            };
            for cure in known.cures.iter().filter(shown) {
                text += &self.line("  fix", &format!("{}: {}", cure.place.name(), cure.change));
            }
            if known.cures.is_empty() {
                text += &self.line("  fix", known.next.as_deref().unwrap_or(known.reason.cure()));
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
            Status::Unknown => "A micro VM on this host (not one of the VMs above): unknown",
        };
        let mut text = self.emphasised(&wrapped(title, self.width, "", ""), provoked.status);
        if let Some(why) = &provoked.why {
            text += &self.line("why", why);
        }
        let pairs = [("EOI", provoked.exits_per_eoi), ("IPI", provoked.exits_per_ipi)];
        for (what, pair) in pairs {
            let figure = |value: Option<f64>| value.map_or("not measured".to_owned(), per_operation);
            if pair.on.is_some() || pair.off.is_some() {
                let told = format!("{} inhibited, {} not inhibited", figure(pair.off), figure(pair.on));
                text += &self.line(&format!("exits an {what}"), &told);
            }
        }
        text
    }
}

#[cfg(test)]
#[path = "verify/tests.rs"]
mod tests;
