//! Fixes by the settings of the program that manages a VM: users of Proxmox VE or KubeVirt can edit neither QEMU's
//! command line nor libvirt's XML.

mod table;

pub use table::{ROWS, Row, Setting, Words};

use crate::{Finding, Fix, Managed};
use domain::{CpuModel, Definition, DefinitionChange, Device, DeviceKind, FeatureState};
use exits::{CurePlace, InhibitReason};
use host::vms::{Management, Manager};

/// Tests whether a program has settings of its own. Those of QEMU and libvirt are the forms of definitions.
#[must_use]
pub const fn has_words(manager: Manager) -> bool {
    !matches!(manager, Manager::Qemu | Manager::Libvirt | Manager::Other)
}

/// Tests whether a program with settings of its own hides this place from its user.
#[must_use]
pub const fn hides(place: CurePlace) -> bool {
    matches!(place, CurePlace::Qemu | CurePlace::Libvirt | CurePlace::Vmm)
}

/// A setting with its new value, as placeholders of [`Words`].
struct Edit {
    setting: Setting,
    /// The name of a CPU feature or an enlightenment, the bus of a disk, or the machine; see [`Row::only`].
    name: String,
    values: Vec<(&'static str, String)>,
}

impl Edit {
    fn new(setting: Setting, name: &str, values: Vec<(&'static str, String)>) -> Self {
        Self { setting, name: name.to_owned(), values }
    }

    fn switch(setting: Setting, name: &str, on: bool) -> Self {
        let word = |yes: &str, no: &str| if on { yes } else { no }.to_owned();
        let values = vec![
            ("feature", name.to_owned()),
            ("sign", word("+", "-")),
            ("bool", word("true", "false")),
            ("policy", word("require", "disable")),
            ("bit", word("1", "0")),
            // For settings that hide or forbid something.
            ("unbool", word("false", "true")),
            ("unbit", word("0", "1")),
        ];
        Self::new(setting, name, values)
    }

    /// The setting of a device.
    fn of_device(setting: Setting, device: Option<&Device>, mut values: Vec<(&'static str, String)>) -> Self {
        let any =
            if matches!(setting, Setting::VirtioNetwork | Setting::NetworkQueues) { "netN" } else { "scsiN" };
        let (bus, slot) = device.and_then(|device| slot(device.id.as_deref()?)).unwrap_or(("", any));
        values.push(("slot", slot.to_owned()));
        Self::new(setting, bus, values)
    }

    /// The setting for a change of the definition; `None` if no program has one, so the change is shown in
    /// the definition's form.
    fn of(change: &DefinitionChange, definition: Option<&Definition>) -> Option<Self> {
        let found = |device: usize| definition.and_then(|vm| vm.devices.get(device));
        let kind = |device: usize| found(device).map(|device| device.kind);
        let plain = |setting| Self::new(setting, "", Vec::new());
        Some(match change {
            DefinitionChange::Irqchip(_) => plain(Setting::SplitIrqchip),
            DefinitionChange::PitTickPolicy(_) => plain(Setting::DiscardPitTicks),
            DefinitionChange::Hpet(false) => plain(Setting::NoHpet),
            DefinitionChange::CpuModel(model) => {
                let (qemu, libvirt) = match model {
                    CpuModel::Named(name) => (name.as_str(), name.as_str()),
                    CpuModel::HostModel => ("host", "host-model"),
                    _ => ("host", "host-passthrough"),
                };
                let values = vec![("model", qemu.to_owned()), ("mode", libvirt.to_owned())];
                Self::new(Setting::CpuModel, "", values)
            }
            DefinitionChange::CpuFeature(name, state) if name == "svm" || name == "vmx" => {
                Self::switch(Setting::Nested, name, *state != FeatureState::Off)
            }
            // QEMU has them beside the features of the CPU: `kvm`, `kvm-pv-eoi`, `kvmclock`.
            DefinitionChange::CpuFeature(name, state) if name.starts_with("kvm") => {
                Self::switch(Setting::KvmFeature, name, *state != FeatureState::Off)
            }
            DefinitionChange::CpuFeature(name, state) => {
                Self::switch(Setting::CpuFeature, name, *state != FeatureState::Off)
            }
            DefinitionChange::HyperV(name, on) => Self::switch(Setting::HyperV, name, *on),
            DefinitionChange::InterruptRemapping => {
                let old = definition.is_some_and(Definition::is_i440fx);
                Self::new(Setting::InterruptRemapping, if old { "i440fx" } else { "" }, Vec::new())
            }
            DefinitionChange::DeviceModel { device, .. } => match kind(*device)? {
                DeviceKind::Network => Self::of_device(Setting::VirtioNetwork, found(*device), Vec::new()),
                DeviceKind::Disk | DeviceKind::Controller => plain(Setting::VirtioDisk),
                _ => return None,
            },
            DefinitionChange::Queues { device, queues } => {
                let setting = if kind(*device)? == DeviceKind::Network {
                    Setting::NetworkQueues
                } else {
                    Setting::DiskQueues
                };
                Self::of_device(setting, found(*device), vec![("queues", queues.to_string())])
            }
            DefinitionChange::IoThread { device, .. } => {
                Self::of_device(Setting::IoThread, found(*device), Vec::new())
            }
            DefinitionChange::Aio { device, aio } => {
                Self::of_device(Setting::Aio, found(*device), vec![("aio", aio.clone())])
            }
            _ => return None,
        })
    }

    fn row(&self, manager: Manager) -> Option<&'static Row> {
        let manager = if manager == Manager::Lxd { Manager::Incus } else { manager };
        let fits = |row: &&Row| row.manager == manager && row.setting == self.setting;
        let named = ROWS.iter().filter(fits).find(|row| !row.only.is_empty() && row.only == self.name);
        named.or_else(|| ROWS.iter().filter(fits).find(|row| row.only.is_empty()))
    }
}

/// The settings that remove an inhibit reason, each sufficient alone, the least invasive first.
fn edits_of(reason: InhibitReason) -> Vec<Edit> {
    let x2apic = |on| Edit::switch(Setting::CpuFeature, "x2apic", on);
    let plain = |setting| Edit::new(setting, "", Vec::new());
    match reason {
        InhibitReason::HyperV => vec![Edit::switch(Setting::HyperV, "avic", true)],
        InhibitReason::Absent => vec![plain(Setting::SplitIrqchip)],
        InhibitReason::PitReinject => vec![plain(Setting::DiscardPitTicks), plain(Setting::SplitIrqchip)],
        InhibitReason::PhysicalIdAliased
        | InhibitReason::LogicalIdAliased
        | InhibitReason::ApicIdModified => vec![x2apic(true)],
        InhibitReason::X2Apic => vec![x2apic(false)],
        InhibitReason::Nested => vec![Edit::switch(Setting::Nested, "svm", false)],
        InhibitReason::PhysicalIdTooBig => vec![plain(Setting::FewerVcpus)],
        _ => Vec::new(),
    }
}

/// The condition of a split irqchip: QEMU would repeat the ticks of such an RTC without end.
const UNLESS_RTC_CATCHES_UP: &str =
    " (not for Windows without hv-stimer if the RTC catches up on lost ticks)";

/// The fixes of an inhibit reason by the settings of a VM's manager; empty if the manager has no settings of
/// its own.
#[must_use]
pub fn of_reason(reason: InhibitReason, name: &str, management: &Management) -> Vec<Managed> {
    if !has_words(management.manager) {
        return Vec::new();
    }
    // Crosvm does not repeat ticks, and the other two have no setting.
    let runs_qemu =
        !matches!(management.manager, Manager::CloudHypervisor | Manager::Crosvm | Manager::Firecracker);
    let in_words = |edit: Edit| {
        let splits = edit.setting == Setting::SplitIrqchip;
        let mut one = said(&[edit], name, management)?;
        // The definition, which would show the policy of the RTC, is not known here.
        if splits && runs_qemu {
            one.changes.iter_mut().for_each(|change| change.push_str(UNLESS_RTC_CATCHES_UP));
        }
        Some(one)
    };
    let mut found: Vec<Managed> = edits_of(reason).into_iter().filter_map(in_words).collect();
    if reason == InhibitReason::HyperV {
        // Older KVM does not know hv-avic, and QEMU then refuses to start with it.
        for change in found.iter_mut().flat_map(|one| one.changes.iter_mut()) {
            change.push_str(" (hv-avic needs Linux 5.15 on the host)");
        }
    }
    found
}

/// Adds to each finding the fixes by settings of the VM's manager, before the equivalent changes of the
/// definition.
pub fn translate(
    findings: &mut [Finding],
    definition: Option<&Definition>,
    name: &str,
    management: &Management,
) {
    if !has_words(management.manager) {
        return;
    }
    for finding in findings {
        translate(&mut finding.children, definition, name, management);
        let changes = finding.fixes.iter().filter_map(|fix| match fix {
            Fix::Definition(changes) => Some(changes),
            _ => None,
        });
        let in_words = |changes: &Vec<DefinitionChange>| {
            let edits: Option<Vec<Edit>> =
                changes.iter().map(|change| Edit::of(change, definition)).collect();
            said(&edits?, name, management)
        };
        // If the manager has no setting for one of the changes, show all of them in the definition's form.
        let Some(mut found) = changes.map(in_words).collect::<Option<Vec<Managed>>>() else { continue };
        found.dedup();
        finding.fixes.splice(0..0, found.into_iter().map(Fix::Managed));
    }
}

fn said(edits: &[Edit], name: &str, management: &Management) -> Option<Managed> {
    let manager = management.manager;
    let mut all = Managed { manager, changes: Vec::new(), without: Vec::new(), sources: Vec::new() };
    let mut arguments: Vec<&str> = Vec::new();
    for edit in edits {
        let row = edit.row(manager)?;
        match row.words {
            Words::Change(text) => all.changes.push(filled(text, edit, name, management)),
            Words::Arguments(words) => arguments.extend(words),
            Words::Nothing(why) => all.without.push(why.to_owned()),
        }
        all.sources.push(row.source.to_owned());
    }
    if !arguments.is_empty() {
        all.changes.push(passed_on(&arguments, name, management));
    }
    all.changes.dedup();
    all.without.dedup();
    all.sources.dedup();
    Some(all)
}

/// The setting by which a manager passes arguments to QEMU.
fn passed_on(arguments: &[&str], name: &str, management: &Management) -> String {
    match management.manager {
        Manager::Proxmox => {
            format!(
                "qm set {} --args '{}' (it replaces args that are set)",
                vmid(management),
                arguments.join(" ")
            )
        }
        Manager::Incus | Manager::Lxd => format!(
            "{} config set {} raw.qemu='{}' (it replaces raw.qemu that is set)",
            client(management.manager),
            named(name, management),
            arguments.join(" ")
        ),
        _ => {
            let quoted: Vec<String> = arguments.iter().map(|argument| format!("\"{argument}\"")).collect();
            format!("custom property qemu_cmdline = [{}] (vdsm-hook-qemucmdline)", quoted.join(","))
        }
    }
}

/// The bus and the option of a device of Proxmox VE, by its name on QEMU's command line: `virtio0`, `net0`, or
/// `virtioscsi0` for the controller of scsi0 alone (qemu-server src/PVE/QemuServer.pm, `config_to_command`).
fn slot(id: &str) -> Option<(&str, &str)> {
    let option = id.strip_prefix("virtio").filter(|rest| rest.starts_with("scsi")).unwrap_or(id);
    let bus = option.trim_end_matches(|one: char| one.is_ascii_digit());
    let is_numbered = (1..=2).contains(&(option.len() - bus.len()));
    (is_numbered && ["ide", "sata", "scsi", "virtio", "net"].contains(&bus)).then_some((bus, option))
}

fn vmid(management: &Management) -> String {
    management.vmid.map_or("VMID".to_owned(), |vmid| vmid.to_string())
}

/// The VM's name in its manager. The process chooses it. It is escaped when the text is printed; in a command there are
/// only names that Incus and LXD allow (`IsHostname` in Incus's shared/validate/validate.go).
fn named(name: &str, management: &Management) -> String {
    let is_hostname = || {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..64).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with('-')
    };
    match (&management.namespaced, management.manager) {
        (Some((space, name)), _) => format!("{space}/{name}"),
        (None, Manager::Incus | Manager::Lxd) if !is_hostname() => "INSTANCE".to_owned(),
        (None, _) => name.chars().take(64).collect(),
    }
}

/// The command-line client of Incus and LXD.
const fn client(manager: Manager) -> &'static str {
    if matches!(manager, Manager::Lxd) { "lxc" } else { "incus" }
}

/// Replaces the placeholders.
fn filled(text: &str, edit: &Edit, name: &str, management: &Management) -> String {
    let mut text = text.replace("{vmid}", &vmid(management));
    text = text.replace("{vm}", &named(name, management));
    text = text.replace("{client}", client(management.manager));
    for (key, value) in &edit.values {
        text = text.replace(&format!("{{{key}}}"), value);
    }
    text
}

#[cfg(test)]
#[path = "managed/managed_tests.rs"]
mod tests;
