//! Rules over a definition.

use crate::{Evidence, Finding, Fix};
use domain::{DefinitionChange, Device, Form, Irqchip, Place};
use exits::{Cure, CurePlace, InhibitReason};

use super::subject::Subject;
use super::{
    apic, assigned, cpu, disks, enlightenments, interrupts, legacy, network, placement, timers, vhost_user,
    virtio, xl,
};
pub(super) use crate::verdict::Verdict;

/// A rule over a definition.
pub struct Rule {
    /// Its stable name in lower case with dashes.
    pub name: &'static str,
    /// Its title, in a few words.
    pub title: &'static str,
    /// The reason why it matters, in one line.
    pub why: &'static str,
    /// The source.
    pub source: &'static str,
    /// True if its change needs a change in the guest (another driver, or doing without a feature) or prevents migration.
    /// Such changes are made only if the rule is named.
    pub guest_follows: bool,
    /// True if it concerns only VMs on KVM.
    pub(super) needs_kvm: bool,
    pub(super) check: fn(&Subject<'_>) -> Verdict,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Rule").field(&self.name).finish()
    }
}

impl Rule {
    pub(super) fn finding(&self, verdict: Verdict) -> Finding {
        verdict.finding(self.name, self.title, self.why, self.source)
    }
}

/// The subject of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Interrupt controllers.
    Interrupts,
    /// Local APICs and their IDs.
    Apic,
    /// The CPU that the guest sees.
    Cpu,
    /// Hyper-V's enlightenments.
    HyperV,
    /// Timers.
    Timers,
    /// Devices of the host, and the guest's IOMMU.
    Assigned,
    /// Disks.
    Disks,
    /// Network interfaces.
    Network,
    /// Notifications of virtio devices.
    Virtio,
    /// Devices that another process serves.
    VhostUser,
    /// Other emulated devices.
    Legacy,
    /// The CPUs on which the VM's threads run.
    Placement,
    /// Xen: the type of the guest, and its virtual processor.
    XlGuest,
    /// Xen: timers and enlightenments.
    XlTimers,
    /// Xen: devices.
    XlDevices,
}

impl Group {
    /// The groups for Xen's definitions.
    pub const OF_XL: &'static [Self] = &[Self::XlGuest, Self::XlTimers, Self::XlDevices];

    /// The groups for definitions in this form, in the order of display.
    #[must_use]
    pub const fn of(form: Form) -> &'static [Self] {
        match form {
            Form::Xl => Self::OF_XL,
            _ => Self::ALL,
        }
    }

    /// The groups for QEMU's and libvirt's definitions, in the order of display.
    pub const ALL: &'static [Self] = &[
        Self::Interrupts,
        Self::Apic,
        Self::Cpu,
        Self::HyperV,
        Self::Timers,
        Self::Assigned,
        Self::Disks,
        Self::Network,
        Self::Virtio,
        Self::VhostUser,
        Self::Legacy,
        Self::Placement,
    ];

    /// Its stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupts => "interrupts",
            Self::Apic => "apic",
            Self::Cpu => "cpu",
            Self::HyperV => "hyper-v",
            Self::Timers => "timers",
            Self::Assigned => "assigned",
            Self::Disks => "disks",
            Self::Network => "network",
            Self::Virtio => "virtio",
            Self::VhostUser => "vhost-user",
            Self::Legacy => "emulated",
            Self::Placement => "placement",
            Self::XlGuest => "xl-guest",
            Self::XlTimers => "xl-timers",
            Self::XlDevices => "xl-devices",
        }
    }

    /// Its heading.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Interrupts => "Interrupt controllers",
            Self::Apic => "Local APICs",
            Self::Cpu => "CPU",
            Self::HyperV => "Hyper-V enlightenments",
            Self::Timers => "Timers",
            Self::Assigned => "Assigned devices and IOMMU",
            Self::Disks => "Disks",
            Self::Network => "Network",
            Self::Virtio => "Virtio notifications",
            Self::VhostUser => "Devices over vhost-user",
            Self::Legacy => "Emulated devices",
            Self::Placement => "Placement",
            Self::XlGuest => "Guest of Xen",
            Self::XlTimers => "Timers of Xen's guest",
            Self::XlDevices => "Devices of Xen's guest",
        }
    }

    /// Its rules.
    #[must_use]
    pub const fn rules(self) -> &'static [Rule] {
        match self {
            Self::Interrupts => interrupts::RULES,
            Self::Apic => apic::RULES,
            Self::Cpu => cpu::RULES,
            Self::HyperV => enlightenments::RULES,
            Self::Timers => timers::RULES,
            Self::Assigned => assigned::RULES,
            Self::Disks => disks::RULES,
            Self::Network => network::RULES,
            Self::Virtio => virtio::RULES,
            Self::VhostUser => vhost_user::RULES,
            Self::Legacy => legacy::RULES,
            Self::Placement => placement::RULES,
            Self::XlGuest => xl::GUEST,
            Self::XlTimers => xl::TIMERS,
            Self::XlDevices => xl::DEVICES,
        }
    }
}

impl Verdict {
    /// Adds a part of the definition as evidence.
    pub(super) fn said(mut self, form: Form, place: &Place) -> Self {
        if !place.text.is_empty() {
            self.evidence.push(evidence(form, place));
        }
        self
    }

    /// Adds the part that names a device as evidence, or the machine if the device is one of its default
    /// devices.
    pub(super) fn said_of_device(self, form: Form, device: &Device) -> Self {
        if device.place.text.is_empty() {
            return self.unsaid("-nodefaults", format!("the machine includes {}", device.model));
        }
        self.said(form, &device.place)
    }

    /// Adds a default as evidence: the setting that the definition lacks, and the effective value.
    pub(super) fn unsaid(self, what: &str, holds: impl Into<String>) -> Self {
        self.seen(format!("{what} is not set"), holds)
    }

    /// Adds a fix by these changes; each call adds an alternative.
    pub(super) fn fix(mut self, changes: Vec<DefinitionChange>) -> Self {
        if !changes.is_empty() {
            self.fixes.push(Fix::Definition(changes));
        }
        self
    }

    /// Leaves out the fixes that split the irqchip. If there is no other, people are told what has to come first.
    pub(super) fn without_split(mut self) -> Self {
        let had_fixes = !self.fixes.is_empty();
        self.fixes.retain(|fix| !splits(fix));
        if had_fixes && self.fixes.is_empty() { self.advice(BEFORE_SPLIT) } else { self }
    }

    /// Adds the cures of an inhibit reason on the host or in the guest.
    pub(super) fn cured_elsewhere(self, reason: InhibitReason) -> Self {
        let elsewhere = |cure: &&Cure| matches!(cure.place, CurePlace::Host | CurePlace::Guest);
        let cures = reason.cures().iter().filter(elsewhere);
        cures.fold(self, |verdict, cure| verdict.advice(format!("{}: {}", cure.place.name(), cure.change)))
    }

    /// Replaces the text of the finding.
    pub(super) fn finds(mut self, found: impl Into<String>) -> Self {
        self.found = found.into();
        self
    }
}

/// The step before the irqchip of a VM is split whose RTC catches up on lost ticks.
const BEFORE_SPLIT: &str = "first give Windows hv-stimer, or another guest -rtc driftfix=none (libvirt: <timer \
                            name='rtc' tickpolicy='delay'/>), and run exitless vm fix again, which splits the irqchip: \
                            with a split one QEMU takes each tick of an RTC that catches up for lost, and repeats it. \
                            Linux does not tick by the RTC: where the policy is fixed (Nova), split its irqchip by hand";

/// Tests whether a fix splits the irqchip, as interrupt remapping does too.
fn splits(fix: &Fix) -> bool {
    let Fix::Definition(changes) = fix else { return false };
    changes.iter().any(|change| {
        matches!(change, DefinitionChange::Irqchip(Irqchip::Split) | DefinitionChange::InterruptRemapping)
    })
}

/// The evidence for a part of the definition. The command line of a process has no lines, so only the
/// argument itself is shown.
fn evidence(form: Form, place: &Place) -> Evidence {
    let at = match form {
        Form::Qemu if place.line <= 1 => "argument".to_owned(),
        _ => format!("line {}", place.line),
    };
    Evidence { place: at, value: place.text.clone() }
}
