//! The table of devices, read from the files that are compiled in.

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

/// The order of entries that stand for any PCI device.
const ANY_PCI: i32 = 90;

/// A file of the table that cannot be read: a defect of the program.
#[derive(Debug, thiserror::Error)]
#[error("The built-in table {file} is not as expected; this is a defect of exitless, please report it")]
pub struct TableError {
    /// Its name.
    pub file: &'static str,
    /// Where, and what was expected.
    #[source]
    pub source: Box<toml::de::Error>,
}

/// The effect of a cure on the exits of its device; the most thorough first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// All of them may go.
    Gone,
    /// Some of them go.
    Fewer,
    /// They stay, and take less time.
    Cheaper,
    /// They stay: it only tells more of them, or nothing is to be done.
    Stay,
}

/// A change that avoids exits of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cure {
    /// Its name among those of the device.
    pub id: String,
    /// The hypervisors for whose VMs it is a cure.
    #[serde(default = "of_kvm", skip_serializing)]
    pub hypervisors: Vec<Hypervisor>,
    /// It is a cure only on processors of this instruction set.
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
    /// Its condition.
    pub needs: Option<String>,
    /// It is a cure only for VMs of which all of these hold, as far as that is known.
    #[serde(default, skip_serializing)]
    pub when: Vec<Fact>,
    /// It is a cure only for VMs among whose exits is one of these; for all where none is named.
    #[serde(default, skip_serializing)]
    pub when_seen: Vec<Match>,
    /// It is no cure for VMs among whose exits is one of these.
    #[serde(default, skip_serializing)]
    pub not_seen: Vec<Match>,
    /// A VM of which one of these holds has it already.
    #[serde(default, skip_serializing)]
    pub there: Vec<Fact>,
    /// A VM among whose exits is one of these has it already.
    #[serde(default, skip_serializing)]
    pub there_seen: Vec<Match>,
    /// The same as changes that a program can make in a definition; none where only a human or the guest can. All of
    /// them together are the cure.
    #[serde(default, skip_serializing)]
    pub apply: Vec<Action>,
    /// It helps Windows alone.
    #[serde(default, skip_serializing)]
    pub windows: bool,
    /// Its sources: files of the kernel, of QEMU, sections of manuals.
    pub sources: Vec<String>,
}

fn of_kvm() -> Vec<Hypervisor> {
    vec![Hypervisor::Kvm]
}

impl Cure {
    /// Tests whether it can be a cure for a VM with these exits, of which `facts` is known.
    pub(crate) fn fits(&self, facts: Option<&Facts>, seen: &Seen) -> bool {
        facts.is_none_or(|facts| facts.all(&self.when))
            && (self.when_seen.is_empty() || seen.has_any(&self.when_seen))
            && self.isa.is_none_or(|isa| seen.has_isa(isa))
            && !seen.has_any(&self.not_seen)
    }

    /// Tests whether the VM has it already.
    pub(crate) fn is_there(&self, facts: Option<&Facts>, seen: &Seen) -> bool {
        facts.is_some_and(|facts| self.there.iter().any(|&fact| facts.has(fact)))
            || seen.has_any(&self.there_seen)
    }

    /// The changes that it takes in `definition`; none where a program cannot make it, or nothing there is concerned.
    #[must_use]
    pub fn changes(&self, definition: &Definition) -> Vec<DefinitionChange> {
        self.apply.iter().flat_map(|action| action.changes(definition)).collect()
    }
}

/// A device model, or what else causes exits.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its name for programs.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its name for people.
    pub what: String,
    /// The reason why a guest reaches for it.
    pub why: String,
    /// What differs on Xen.
    #[serde(default)]
    pub xen: OnXen,
    /// The marks of its exits.
    #[serde(rename = "match")]
    pub matches: Vec<Match>,
    /// PCI devices that it is: `VENDOR:DEVICE` in hexadecimal digits, `VENDOR:` for all of one, or `class:CLASS`.
    #[serde(default)]
    pub pci: Vec<String>,
    /// It is looked for only in VMs of which all of these are known to hold.
    #[serde(default)]
    pub when: Vec<Fact>,
    /// The order among several devices that match: the lowest is meant.
    #[serde(default)]
    pub order: i32,
    /// The causes that wake a VM at rest here; none where it says nothing about that.
    pub wakes: Option<String>,
    /// True if the vCPU sleeps in these exits, so that their time is no cost.
    #[serde(default)]
    pub sleeps: bool,
    /// The cures of the exits.
    #[serde(rename = "cure")]
    pub cures: Vec<Cure>,
}

/// The words for a device on Xen, where they differ.
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

/// Something that costs CPU time without exits, and is told of from a VM's definition alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspect {
    /// Its name for programs.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its effect.
    pub says: String,
    /// It is suspected of VMs of which all of these hold.
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

/// All that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The devices, in the order in which they are asked.
    pub devices: Vec<Device>,
    /// A cost without exits.
    pub suspects: Vec<Suspect>,
}

impl Table {
    /// Reads the table for VMs of a hypervisor.
    ///
    /// # Errors
    /// When a file that was compiled in is wrong, which tests rule out.
    pub fn load(hypervisor: Hypervisor) -> Result<Self, TableError> {
        let mut table = Self { devices: Vec::new(), suspects: Vec::new() };
        for (name, text) in FILES {
            let wrong = |source| TableError { file: name, source: Box::new(source) };
            let file: File = toml::from_str(text).map_err(wrong)?;
            table.devices.extend(file.device.into_iter().map(|device| device.of(hypervisor)));
            // All of them are QEMU's under KVM.
            table.suspects.extend(file.suspect.into_iter().filter(|_| hypervisor == Hypervisor::Kvm));
        }
        table.devices.sort_by_key(|device| device.order);
        Ok(table)
    }

    /// The device that this access reaches: that of the PCI device at the address where it is known, and else that whose
    /// place it is. A device that is known by a VM's definition alone is found with that only.
    #[must_use]
    pub fn of_access(&self, access: Access, facts: Option<&Facts>) -> Option<&Device> {
        if let Some(bar) = facts.and_then(|facts| facts.bar(access)) {
            let unnamed = || self.devices.iter().find(|device| device.is_anywhere(access));
            return self.devices.iter().find(|device| device.is_pci(bar)).or_else(unnamed);
        }
        self.devices
            .iter()
            .filter(|device| device.is_in(facts))
            .find(|device| device.matches.iter().any(|one| one.has_access(access)))
    }

    /// The subject of exits of this reason that no access explains.
    #[must_use]
    pub fn of_reason(&self, reason: ExitReason) -> Option<&Device> {
        let name = reason.name()?;
        self.devices.iter().find(|device| device.matches.iter().any(|one| one.has_reason(name)))
    }
}

impl Device {
    /// The device with the words and the cures for VMs of a hypervisor.
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

    /// Tests whether it stands for whatever PCI device has the address.
    fn is_anywhere(&self, access: Access) -> bool {
        self.when.is_empty() && self.order >= ANY_PCI && self.matches.iter().any(|one| one.has_access(access))
    }

    fn is_in(&self, facts: Option<&Facts>) -> bool {
        self.when.is_empty() || facts.is_some_and(|facts| facts.all(&self.when))
    }

    /// Tests whether it was told from the VM's definition, so that it is likely and not certain.
    #[must_use]
    pub fn is_by_definition(&self) -> bool {
        !self.when.is_empty() && self.order > 0
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
