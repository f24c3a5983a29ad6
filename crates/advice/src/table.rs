//! The table of devices, read from the embedded files.

use domain::{Definition, DefinitionChange};
use exits::{Access, ExitReason, Hypervisor, Isa};
use host::pci::Bar;
use serde::{Deserialize, Serialize};

use crate::seen::{Match, Seen};
use crate::{Action, Fact, Facts};

/// The files, by name.
const FILES: [(&str, &str); 5] = [
    ("timers.toml", include_str!("table/timers.toml")),
    ("interrupts.toml", include_str!("table/interrupts.toml")),
    ("legacy.toml", include_str!("table/legacy.toml")),
    ("devices.toml", include_str!("table/devices.toml")),
    ("processor.toml", include_str!("table/processor.toml")),
];

/// The lowest order of entries that stand for any PCI device.
const ANY_PCI: i32 = 90;

/// The entries for PCI devices that only QEMU's address windows tell.
const BY_WINDOW: [&str; 2] = ["pci-memory", "pci-ports"];

/// The entry for devices that are assigned to the VM.
const ASSIGNED: &str = "assigned";

/// An embedded file of the table that cannot be parsed: a bug.
#[derive(Debug, thiserror::Error)]
#[error("The built-in table {file} is not as expected; this is a defect of exitless, please report it")]
pub struct TableError {
    /// Its name.
    pub file: &'static str,
    /// The position in the file and the error.
    #[source]
    pub source: Box<toml::de::Error>,
}

/// The effect of a cure on the exits of its device; the most thorough first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// All of them may go.
    Gone,
    /// Some of them may go.
    Fewer,
    /// They stay, but take less time.
    Cheaper,
    /// They stay: the cure only gives more information about them, or there is nothing to do.
    Stay,
}

/// A change that avoids exits of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cure {
    /// Its name, unique within the device.
    pub id: String,
    /// The hypervisors on which it is a cure.
    #[serde(default = "of_kvm", skip_serializing)]
    pub hypervisors: Vec<Hypervisor>,
    /// The only instruction set (VMX or SVM) on whose processors it is a cure; any if absent.
    #[serde(default, skip_serializing)]
    pub isa: Option<Isa>,
    /// What to do, in a few words that begin with a verb.
    pub does: String,
    /// Its effect on the exits.
    pub effect: Effect,
    /// QEMU's arguments.
    pub qemu: Option<String>,
    /// libvirt's XML.
    pub libvirt: Option<String>,
    /// Settings of Xen's xl.cfg.
    pub xl: Option<String>,
    /// The change in the guest.
    pub guest: Option<String>,
    /// The change on the host.
    pub host: Option<String>,
    /// A condition that must be met first.
    pub needs: Option<String>,
    /// It is only a cure for VMs with all of these facts. Not checked if the VM's definition is unknown.
    #[serde(default, skip_serializing)]
    pub when: Vec<Fact>,
    /// It does not help VMs with one of these facts.
    #[serde(default, skip_serializing)]
    pub not: Vec<Fact>,
    /// It is only a cure for VMs with exits that match one of these; for all VMs if the list is empty.
    #[serde(default, skip_serializing)]
    pub when_seen: Vec<Match>,
    /// It does not help VMs with exits that match one of these.
    #[serde(default, skip_serializing)]
    pub not_seen: Vec<Match>,
    /// A VM with one of these facts already has it.
    #[serde(default, skip_serializing)]
    pub there: Vec<Fact>,
    /// A VM with exits that match one of these already has it.
    #[serde(default, skip_serializing)]
    pub there_seen: Vec<Match>,
    /// The cure as changes that a program can make in a definition, all of which are needed. Empty if it must be done by a
    /// human or in the guest.
    #[serde(default, skip_serializing)]
    pub apply: Vec<Action>,
    /// True if its change in the guest or on the host helps without the settings of QEMU or libvirt.
    #[serde(default, skip_serializing)]
    pub alone: bool,
    /// True if it only helps Windows guests.
    #[serde(default, skip_serializing)]
    pub windows: bool,
    /// Its sources: files of the kernel, of QEMU, sections of manuals.
    pub sources: Vec<String>,
}

fn of_kvm() -> Vec<Hypervisor> {
    vec![Hypervisor::Kvm]
}

impl Cure {
    /// Tests whether it can be a cure for a VM with these facts and exits.
    pub(crate) fn fits(&self, facts: Option<&Facts>, seen: &Seen) -> bool {
        facts.is_none_or(|facts| facts.all(&self.when) && !facts.any(&self.not))
            && (self.when_seen.is_empty() || seen.has_any(&self.when_seen))
            && self.isa.is_none_or(|isa| seen.has_isa(isa))
            && !seen.has_any(&self.not_seen)
    }

    /// Tests whether the VM already has it.
    pub(crate) fn is_there(&self, facts: Option<&Facts>, seen: &Seen) -> bool {
        facts.is_some_and(|facts| facts.any(&self.there)) || seen.has_any(&self.there_seen)
    }

    /// The changes to make in `definition`. Empty if a program cannot make them, or if `definition` has nothing to change.
    #[must_use]
    pub fn changes(&self, definition: &Definition) -> Vec<DefinitionChange> {
        self.apply.iter().flat_map(|action| action.changes(definition)).collect()
    }
}

/// A device model, or another cause of exits.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its name for programs.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its name for people.
    pub what: String,
    /// The reason why a guest accesses it.
    pub why: String,
    /// The texts that differ on Xen.
    #[serde(default)]
    pub xen: OnXen,
    /// The patterns of its exits.
    #[serde(rename = "match")]
    pub matches: Vec<Match>,
    /// The PCI IDs of the device: `VENDOR:DEVICE` in hexadecimal, `VENDOR:` for all devices of a vendor, or `class:CLASS`.
    #[serde(default)]
    pub pci: Vec<String>,
    /// It is only considered for VMs that are known to have all of these facts.
    #[serde(default)]
    pub when: Vec<Fact>,
    /// The precedence if several devices match: the lowest wins.
    #[serde(default)]
    pub order: i32,
    /// The sources of wake-ups of an idle VM that these exits indicate; none if they say nothing about that.
    pub wakes: Option<String>,
    /// True if the vCPU sleeps in these exits, so that their time is no cost.
    #[serde(default)]
    pub sleeps: bool,
    /// The cures of the exits.
    #[serde(rename = "cure")]
    pub cures: Vec<Cure>,
}

/// The texts of a device that differ on Xen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnXen {
    /// [`Device::name`].
    pub name: Option<String>,
    /// [`Device::what`].
    pub what: Option<String>,
    /// [`Device::why`].
    pub why: Option<String>,
    /// [`Device::wakes`].
    pub wakes: Option<String>,
}

/// A setting that costs CPU time without exits, found by the VM's definition alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspect {
    /// Its name for programs.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its effect.
    pub says: String,
    /// It is suspected in VMs with all of these facts.
    #[serde(skip_serializing)]
    pub when: Vec<Fact>,
    /// The change.
    pub change: String,
    /// Its sources.
    pub sources: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    device: Vec<Device>,
    #[serde(default)]
    suspect: Vec<Suspect>,
}

/// The whole table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The devices, in order of precedence.
    pub devices: Vec<Device>,
    /// The causes of costs without exits.
    pub suspects: Vec<Suspect>,
}

impl Table {
    /// Reads the table for VMs of a hypervisor.
    ///
    /// # Errors
    /// If an embedded file is invalid, which tests rule out.
    pub fn load(hypervisor: Hypervisor) -> Result<Self, TableError> {
        let mut table = Self { devices: Vec::new(), suspects: Vec::new() };
        for (name, text) in FILES {
            let wrong = |source| TableError { file: name, source: Box::new(source) };
            let file: File = toml::from_str(text).map_err(wrong)?;
            table.devices.extend(file.device.into_iter().map(|device| device.of(hypervisor)));
            // All suspects are about QEMU with KVM.
            table.suspects.extend(file.suspect.into_iter().filter(|_| hypervisor == Hypervisor::Kvm));
        }
        table.devices.sort_by_key(|device| device.order);
        Ok(table)
    }

    /// The table for VMs of VMMs other than QEMU: without cures that need settings of QEMU or libvirt, and without devices
    /// that only QEMU's address windows tell.
    #[must_use]
    pub fn without_qemu(&self) -> Self {
        let mut devices = self.devices.clone();
        devices.retain(|device| !BY_WINDOW.contains(&device.id.as_str()));
        for device in &mut devices {
            device.cures.retain(|cure| cure.alone || cure.qemu.is_none() && cure.libvirt.is_none());
            for cure in &mut device.cures {
                (cure.qemu, cure.libvirt) = (None, None);
                cure.apply.clear();
            }
        }
        Self { devices, suspects: Vec::new() }
    }

    /// The device that this access is to: by the PCI device whose BAR contains it, if that is known, or else by the address
    /// ranges of the table. Devices that depend on the VM's definition are only found with `facts`.
    #[must_use]
    pub fn of_access(&self, access: Access, facts: Option<&Facts>) -> Option<&Device> {
        if let Some((facts, bar)) = facts.and_then(|facts| Some((facts, facts.bar(access)?))) {
            // The IDs of an assigned device are those of the host's, and may be those that QEMU emulates.
            let is_assigned = facts.is_assigned(bar);
            let is_its =
                |device: &Device| if is_assigned { device.id == ASSIGNED } else { device.is_pci(bar) };
            let unnamed = || self.devices.iter().find(|device| device.is_anywhere(access));
            return self.devices.iter().find(|device| is_its(device)).or_else(unnamed);
        }
        self.devices
            .iter()
            .filter(|device| device.is_in(facts))
            .find(|device| device.matches.iter().any(|one| one.has_access(access)))
    }

    /// The device that exits of this reason are attributed to if no access explains them.
    #[must_use]
    pub fn of_reason(&self, reason: ExitReason) -> Option<&Device> {
        let name = reason.name()?;
        self.devices.iter().find(|device| device.matches.iter().any(|one| one.has_reason(name)))
    }
}

impl Device {
    /// The device with the texts and cures for a hypervisor.
    fn of(mut self, hypervisor: Hypervisor) -> Self {
        self.cures.retain(|cure| cure.hypervisors.contains(&hypervisor));
        if hypervisor == Hypervisor::Xen {
            let OnXen { name, what, why, wakes } = std::mem::take(&mut self.xen);
            (self.name, self.wakes) = (name.unwrap_or(self.name), wakes.or(self.wakes));
            (self.what, self.why) = (what.unwrap_or(self.what), why.unwrap_or(self.why));
        }
        self
    }

    fn is_pci(&self, bar: &Bar) -> bool {
        let names = [
            format!("{:04x}:{:04x}", bar.vendor, bar.device),
            format!("{:04x}:", bar.vendor),
            format!("class:{:04x}", bar.class),
        ];
        self.pci.iter().any(|one| names.contains(one))
    }

    /// Tests whether it is the entry for an unknown PCI device at this address.
    fn is_anywhere(&self, access: Access) -> bool {
        self.when.is_empty() && self.order >= ANY_PCI && self.matches.iter().any(|one| one.has_access(access))
    }

    fn is_in(&self, facts: Option<&Facts>) -> bool {
        self.when.is_empty() || facts.is_some_and(|facts| facts.all(&self.when))
    }

    /// Tests whether it was inferred from the VM's definition, so that it is likely but not certain.
    #[must_use]
    pub fn is_by_definition(&self) -> bool {
        !self.when.is_empty() && self.order > 0
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
