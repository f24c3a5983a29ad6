//! Converts QEMU's arguments to libvirt's XML, in libvirt's order.

mod buses;
mod character;
mod devices;
mod disks;
mod features;
mod head;
mod network;
mod screen;
mod small;

use super::{Converted, Loss};
use crate::libvirt::DEVICES;
use crate::qemu::given::{GivenOption, options};
use crate::xml::{New, Style};
use crate::{Definition, Device, Error, Files, Text};
use buses::Buses;

/// The most vCPUs that libvirt allows without an IOMMU that has `eim` (`QEMU_MAX_VCPUS_WITHOUT_EIM`,
/// `src/qemu/qemu_validate.c`).
const VCPUS_WITHOUT_EIM: u32 = 255;

/// Options that libvirt sets itself, for every domain or by its own choice.
const OWN: [(&str, &str); 19] = [
    ("S", "libvirt starts the vCPUs."),
    ("daemonize", "libvirt watches over QEMU."),
    ("pidfile", "libvirt watches over QEMU."),
    ("monitor", "libvirt has a monitor of its own: `virsh qemu-monitor-command`."),
    ("qmp", "libvirt has a monitor of its own: `virsh qemu-monitor-command`."),
    ("mon", "libvirt has a monitor of its own: `virsh qemu-monitor-command`."),
    ("nodefaults", "libvirt says it for every domain."),
    ("no-user-config", "libvirt says it for every domain."),
    ("no-shutdown", "libvirt says it for every domain."),
    ("msg", "libvirt says it for every domain."),
    ("sandbox", "libvirt says it as seccomp_sandbox in qemu.conf does."),
    ("runas", "libvirt says which user runs QEMU in qemu.conf."),
    ("chroot", "libvirt gives QEMU a namespace of its own."),
    ("D", "libvirt keeps a log in /var/log/libvirt/qemu."),
    ("incoming", "libvirt begins migrations."),
    ("nographic", "A domain without <graphics> has none; its serial line is `virsh console`."),
    ("id", "It is Proxmox's number of the VM."),
    ("pidfd", "libvirt watches over QEMU."),
    ("writeconfig", "It changes nothing for the VM."),
];

/// The document under construction.
struct Writing<'a> {
    definition: &'a Definition,
    options: &'a [GivenOption],
    buses: Buses,
    q35: bool,
    out: Converted,
    /// Arguments for `<qemu:commandline>` that are not in the options.
    added: Vec<String>,
    devices: Vec<New>,
    /// The number of each I/O thread, by its name.
    threads: Vec<(String, u32)>,
    /// Names of disks in the guest that are in use.
    targets: Vec<String>,
}

/// See [`to_xml`](super::to_xml).
pub(super) fn convert(text: &Text, files: &dyn Files) -> Result<Converted, Error> {
    let (definition, options) = options(text, files)?;
    let mut writing = Writing {
        q35: definition.is_q35(),
        buses: Buses::of(&definition),
        definition: &definition,
        options: &options,
        out: Converted::default(),
        added: Vec::new(),
        devices: Vec::new(),
        threads: Vec::new(),
        targets: Vec::new(),
    };
    let mut domain = writing.head();
    writing.all_devices();
    let mut devices = std::mem::take(&mut writing.devices);
    devices.sort_by_key(|device| DEVICES.iter().position(|name| *name == device.name));
    domain.children.push(New { children: devices, ..New::named("devices") });
    writing.remaining();
    let commandline = writing.passed_through();
    if !commandline.children.is_empty() {
        domain = domain.with("xmlns:qemu", "http://libvirt.org/schemas/domain/qemu/1.0").holding(commandline);
    }
    let mut out = writing.out;
    out.notes.extend(definition.doubts.iter().map(|doubt| format!("In doubt: {doubt}")));
    out.text = Style::libvirt().render(&domain, Some("\n")) + "\n";
    Ok(out)
}

impl<'a> Writing<'a> {
    /// The last option with a name.
    fn option(&self, name: &str) -> Option<&'a GivenOption> {
        self.options.iter().rev().find(|option| option.name == name)
    }

    /// All options with a name, in order.
    fn all(&self, name: &'a str) -> impl Iterator<Item = &'a GivenOption> + use<'a> {
        self.options.iter().filter(move |option| option.name == name)
    }

    /// Takes the last option with a name.
    fn take(&self, name: &str) -> Option<&'a GivenOption> {
        let found = self.option(name)?;
        for option in self.options.iter().filter(|option| option.name == name) {
            option.used.set(true);
        }
        Some(found)
    }

    /// Takes the option with this name and this `id`, or value of another key.
    fn named(&self, name: &str, key: &str, value: &str) -> Option<&'a GivenOption> {
        let found =
            self.options.iter().find(|option| option.name == name && option.get(key) == Some(value))?;
        found.used.set(true);
        Some(found)
    }

    /// The option that defines a device.
    fn origin(&self, device: &Device) -> Option<&'a GivenOption> {
        let place = &device.place;
        let same =
            |option: &&GivenOption| option.place.start == place.start && option.place.text == place.text;
        self.options.iter().find(same).filter(|_| place.end > place.start)
    }

    /// Tests whether it has more vCPUs than libvirt allows without an IOMMU that has `eim`.
    fn is_wide(&self) -> bool {
        self.definition.most_vcpus() > VCPUS_WITHOUT_EIM
    }

    fn note(&mut self, note: impl Into<String>) {
        self.out.notes.push(note.into());
    }

    fn loss(&mut self, what: impl Into<String>, why: &str) {
        self.out.losses.push(Loss { what: what.into(), why: why.to_owned() });
    }

    /// Properties of a device that its element does not contain are losses, except those that libvirt chooses
    /// itself.
    fn unsaid(&mut self, device: &Device, said: &[&str]) {
        const CHOSEN: [&str; 14] = [
            "driver",
            "id",
            "bus",
            "addr",
            "bootindex",
            "multifunction",
            "vectors",
            "mq",
            "write-cache",
            "channel",
            "scsi-id",
            "lun",
            "unit",
            "port",
        ];
        // A device of a short option has the properties of that option, not of a driver.
        let own = self.origin(device).is_none_or(|option| option.name == "device");
        for (name, value) in device.properties.iter().filter(|_| own) {
            let same = |other: &&str| other.replace('_', "-") == name.replace('_', "-");
            if !CHOSEN.iter().chain(said).any(same) {
                let what = format!("-device {}: {name}={value}", device.model);
                self.loss(
                    what,
                    "libvirt has no attribute for it; <qemu:override> can set it by the device's alias.",
                );
            }
        }
    }

    /// Options without a counterpart: libvirt's own, or passed through.
    fn remaining(&mut self) {
        for option in self.options {
            if option.used.get() {
                continue;
            }
            let secret = option.name == "object" && option.get("qom-type") == Some("secret");
            if secret && option.get("id").is_some_and(|id| id.starts_with("masterKey")) {
                option.used.set(true);
                continue;
            }
            if let Some((_, why)) = OWN.iter().find(|(name, _)| *name == option.name) {
                option.used.set(true);
                let said = if option.said.is_empty() { String::new() } else { format!(" {}", option.said) };
                // An option that libvirt sets for every domain is not a loss.
                if why.contains("for every domain") || why.contains("starts the vCPUs") {
                    continue;
                }
                self.loss(format!("-{}{said}", option.name), why);
                // Only the monitor uses its character device.
                if let (true, Some(id)) = (option.name == "mon", option.get("chardev")) {
                    self.named("chardev", "id", id);
                }
            }
        }
    }

    fn passed_through(&mut self) -> New {
        let mut commandline = New::named("qemu:commandline");
        let mut argument = |value: &str| {
            commandline.children.push(New::named("qemu:arg").with("value", value));
        };
        for option in self.options.iter().filter(|option| !option.used.get()) {
            argument(&format!("-{}", option.name));
            let mut shown = format!("-{}", option.name);
            if !option.said.is_empty() {
                argument(&option.said);
                shown += &format!(" {}", option.said);
            }
            self.out.passed_through.push(shown);
        }
        for pair in self.added.chunks(2) {
            pair.iter().for_each(|value| argument(value));
            self.out.passed_through.push(pair.join(" "));
        }
        commandline
    }
}
