//! The conclusion of an examination: one sentence, and the next command.

use super::kernels::{BARRED_BY_SNP, is_barred_by_snp, is_hit_by_erratum_1235};
use super::rule::Category;
use super::running;
use super::subject::Subject;
use super::vm_side::VmSide;
use crate::{Finding, Section, State};
use conclusions::activation::Status;
use exits::InhibitReason;
use host::vms::Vmm;
use serde::{Deserialize, Serialize};

/// The state of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// Interrupt virtualization is on, and active for all running VMs.
    Active,
    /// It is on, and no VM runs.
    Ready,
    /// It is on, and inhibited for some VM.
    Inhibited,
    /// It is on; for some VM it is unknown whether it is active.
    Unsure,
    /// The hardware has it, but the module's parameter or Xen's arguments switch it off.
    SwitchedOff,
    /// The CPU does not have it, or an underlying hypervisor hides it.
    Unavailable,
    /// Sources contradict each other.
    Contradicted,
    /// The CPU's virtualization cannot be used.
    NoVirtualization,
    /// The state cannot be read.
    Unknown,
}

/// The conclusion of an examination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conclusion {
    /// The state of the host.
    pub outcome: HostState,
    /// The state as a sentence.
    pub sentence: String,
    /// The next command. It must run on the examined host, except for that of a lab, which runs anywhere.
    pub next: Option<String>,
}

impl Conclusion {
    fn new(outcome: HostState, sentence: impl Into<String>, next: Option<&str>) -> Self {
        Self { outcome, sentence: sentence.into(), next: next.map(str::to_owned) }
    }
}

pub(super) fn conclude(
    subject: &Subject<'_>,
    sections: &[Section],
    sides: &[VmSide],
    chosen: &[i32],
) -> Conclusion {
    if subject.is_xen() {
        return xen(sections);
    }
    let fails = |category: Category| failures(sections, category);
    for rule in ["cpu-firmware", "cpu-virtualization"] {
        if let Some(finding) = fails(Category::Cpu).find(|finding| finding.rule == rule) {
            let sentence = format!("This host cannot run guests in hardware: {}.", finding.found);
            return Conclusion::new(
                HostState::NoVirtualization,
                sentence,
                Some("exitless prove --lab intel-apicv"),
            );
        }
    }
    if let Some(finding) = fails(Category::Contradictions).next() {
        let sentence = format!("Resolve this contradiction first: {}.", finding.found);
        return Conclusion::new(HostState::Contradicted, sentence, Some("exitless doctor --verbose"));
    }
    if let Some(finding) =
        fails(Category::Kvm).find(|one| one.rule == "kvm-module" || one.rule == "kvm-device")
    {
        let sentence = format!("Guests cannot be run here: {}.", finding.found);
        return Conclusion::new(HostState::NoVirtualization, sentence, None);
    }
    let name = subject.technology();
    match (subject.is_enabled(), subject.cpu_has()) {
        (Some(true), _) => enabled(subject, sides, chosen),
        (_, Some(false)) => {
            let sentence =
                format!("There is no {name} here, so guest interrupts cost exits whatever the settings.");
            Conclusion::new(HostState::Unavailable, sentence, Some("exitless predict"))
        }
        (Some(false), _) if is_hit_by_erratum_1235(subject.host) => {
            let sentence = "AVIC is rightly off: this kernel does not handle the CPU's erratum 1235.";
            Conclusion::new(HostState::SwitchedOff, sentence, None)
        }
        (Some(false), _) if is_barred_by_snp(subject.host) => {
            let sentence = format!("AVIC is rightly off: {BARRED_BY_SNP}.");
            Conclusion::new(HostState::SwitchedOff, sentence, None)
        }
        (Some(false), _) => {
            let mut sentence = format!("{name} is available but off: no VM uses it.");
            if !subject.running().is_empty() && !subject.host.kernel.has_built_in(subject.module()) {
                sentence += " As VMs run, it can be enabled for the next boot; --reload enables it at once when they \
                             have stopped.";
            }
            Conclusion::new(HostState::SwitchedOff, sentence, Some(&subject.switching("enable")))
        }
        (None, _) => {
            let sentence = format!("What may be read here does not show whether {name} is used.");
            let next = if subject.host.live {
                "sudo exitless doctor"
            } else {
                "sudo exitless snapshot host.tar.zst"
            };
            Conclusion::new(HostState::Unknown, sentence, Some(next))
        }
    }
}

/// The failures of a category, including children.
fn failures(sections: &[Section], category: Category) -> impl Iterator<Item = &Finding> {
    let of_it =
        sections.iter().filter(move |section| section.name == category.name() && section.form.is_none());
    of_it.flat_map(|section| &section.findings).flat_map(flat).filter(|finding| finding.state == State::Fail)
}

fn flat(finding: &Finding) -> Vec<&Finding> {
    let mut all = vec![finding];
    all.extend(finding.children.iter().flat_map(flat));
    all
}

fn xen(sections: &[Section]) -> Conclusion {
    let decides = ["xen-control", "xen-hvm", "xen-apicv-argument", "xen-apicv"];
    if let Some(finding) =
        failures(sections, Category::Xen).find(|finding| decides.contains(&finding.rule.as_str()))
    {
        let sentence = |start: &str| format!("{start}: {}.", finding.found);
        let not = "Xen does not use interrupt virtualization";
        return match finding.rule.as_str() {
            "xen-control" => {
                Conclusion::new(HostState::Unknown, sentence("Xen cannot be asked from here"), None)
            }
            "xen-apicv-argument" => Conclusion::new(
                HostState::SwitchedOff,
                sentence(not),
                Some("exitless enable --persist --apply"),
            ),
            _ => Conclusion::new(HostState::Unavailable, sentence(not), None),
        };
    }
    let findings =
        || sections.iter().filter(|one| one.name == Category::Xen.name()).flat_map(|one| &one.findings);
    let passed =
        |rule: &str| findings().flat_map(flat).any(|one| one.rule == rule && one.state == State::Pass);
    if passed("xen-apicv") || passed("xen-avic") {
        let sentence = "Xen uses the hardware's interrupt virtualization for its HVM guests.";
        return Conclusion::new(HostState::Ready, sentence, Some("exitless stat --by vm,reason"));
    }
    if findings().flat_map(flat).any(|one| one.rule == "xen-avic" && one.state == State::Warn) {
        let sentence = "Xen does not support AVIC, so guest interrupts cost exits on this host.";
        return Conclusion::new(HostState::Unavailable, sentence, Some("exitless stat --by vm,reason"));
    }
    let sentence =
        "Xen does not use the hardware's interrupt virtualization, or nothing here shows that it does.";
    Conclusion::new(HostState::Unknown, sentence, None)
}

fn enabled(subject: &Subject<'_>, sides: &[VmSide], chosen: &[i32]) -> Conclusion {
    let name = subject.technology();
    let wanted = |pid: i32| chosen.is_empty() || chosen.contains(&pid);
    let running: Vec<_> = subject.running().iter().filter(|one| wanted(one.vm.pid)).collect();
    if running.is_empty() {
        let sentence = format!("{name} is on, and no VM is running.");
        return Conclusion::new(HostState::Ready, sentence, Some("exitless verify --provoke"));
    }
    let status = |pid: i32| {
        let of_it = sides.iter().filter(|side| side.pid == pid).map(|side| side.activation.status);
        of_it.reduce(Status::worse).unwrap_or(Status::Unknown)
    };
    let inhibited: Vec<_> = running
        .iter()
        .filter(|one| matches!(status(one.vm.pid), Status::Inhibited | Status::Partly))
        .collect();
    let reasons = |pid: i32| sides.iter().filter(move |side| side.pid == pid).flat_map(VmSide::reasons);
    // Nothing in its definition gives AVIC to a VM whose memory is encrypted.
    let is_incurable =
        |pid: i32| reasons(pid).next().is_some() && reasons(pid).all(|reason| reason == InhibitReason::Sev);
    let curable = inhibited.iter().find(|one| !is_incurable(one.vm.pid));
    if let Some(first) = curable.or(inhibited.first()) {
        let reasons: Vec<&str> = reasons(first.vm.pid).map(InhibitReason::name).collect();
        let by = if reasons.is_empty() { String::new() } else { format!(" by {}", reasons.join(", ")) };
        let sentence = if running.len() == 1 {
            format!("{name} is on, and inhibited for VM {}{by}.", running::name(first))
        } else {
            format!(
                "{name} is on, and inhibited for {} of {} VMs: for {}{by}.",
                inhibited.len(),
                running.len(),
                running::name(first)
            )
        };
        let next = match &first.libvirt {
            _ if curable.is_none() => format!("exitless verify --vm {}", first.vm.pid),
            Some(libvirt) => format!("exitless vm fix libvirt:{}", libvirt.name),
            None if first.vm.vmm == Vmm::Qemu => format!("exitless vm fix {}", first.vm.pid),
            // `vm fix` changes definitions of QEMU only.
            None => format!("exitless verify --vm {}", first.vm.pid),
        };
        return Conclusion::new(HostState::Inhibited, sentence, Some(&next));
    }
    let unsure: Vec<_> = running.iter().filter(|one| status(one.vm.pid) == Status::Unknown).collect();
    if let Some(first) = unsure.first() {
        let of = match (unsure.len(), running.len()) {
            (1, 1) => format!("VM {}", running::name(first)),
            (some, all) => format!("{some} of {all} VMs"),
        };
        let sentence = format!("{name} is on; it is not known whether it is active for {of}.");
        return Conclusion::new(HostState::Unsure, sentence, Some("exitless verify"));
    }
    let of =
        if running.len() == 1 { "the running VM".to_owned() } else { format!("all {} VMs", running.len()) };
    Conclusion::new(HostState::Active, format!("{name} is on, and active for {of}."), Some("exitless verify"))
}
