//! The program that manages a VM, and the VM's names there.
//!
//! All evidence comes from the process: its control group, which only root can choose, and its command line, which its
//! user can choose. Names from a command line are accepted only in the form that the managing program uses.

use super::Vmm;
use super::arguments::{properties, property, values};
use serde::{Deserialize, Serialize};

/// The program in which the user of a VM changes its settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Manager {
    /// libvirt, without a known program above it.
    Libvirt,
    /// Proxmox VE.
    Proxmox,
    /// OpenStack Nova.
    Nova,
    /// KubeVirt.
    #[serde(rename = "kubevirt")]
    KubeVirt,
    /// oVirt.
    Ovirt,
    /// Incus.
    Incus,
    /// LXD, from which Incus came.
    Lxd,
    /// QEMU, started by hand or by an unknown program.
    Qemu,
    /// cloud-hypervisor.
    CloudHypervisor,
    /// crosvm.
    Crosvm,
    /// firecracker.
    Firecracker,
    /// Unknown.
    #[default]
    Other,
}

impl Manager {
    /// All managers.
    pub const ALL: &'static [Self] = &[
        Self::Libvirt,
        Self::Proxmox,
        Self::Nova,
        Self::KubeVirt,
        Self::Ovirt,
        Self::Incus,
        Self::Lxd,
        Self::Qemu,
        Self::CloudHypervisor,
        Self::Crosvm,
        Self::Firecracker,
        Self::Other,
    ];

    /// Its own name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Libvirt => "libvirt",
            Self::Proxmox => "Proxmox VE",
            Self::Nova => "OpenStack Nova",
            Self::KubeVirt => "KubeVirt",
            Self::Ovirt => "oVirt",
            Self::Incus => "Incus",
            Self::Lxd => "LXD",
            Self::Qemu => "QEMU",
            Self::CloudHypervisor => "cloud-hypervisor",
            Self::Crosvm => "crosvm",
            Self::Firecracker => "firecracker",
            Self::Other => "unknown",
        }
    }

    /// Tests whether there is no known manager above the VMM: it is the VMM itself, or unknown.
    #[must_use]
    pub const fn is_vmm(self) -> bool {
        matches!(self, Self::Qemu | Self::CloudHypervisor | Self::Crosvm | Self::Firecracker | Self::Other)
    }

    /// Tests whether its VMs are domains of the host's libvirt, with an ID there. Those of KubeVirt belong to a
    /// libvirt in each pod.
    const fn uses_libvirt_of_the_host(self) -> bool {
        matches!(self, Self::Libvirt | Self::Nova | Self::Ovirt)
    }
}

/// The manager of a VM, and the VM's names there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Management {
    /// The program.
    pub manager: Manager,
    /// The evidence in the command line or control group of the process.
    pub evidence: Vec<String>,
    /// The UUID, in lower case.
    pub uuid: Option<String>,
    /// libvirt's ID of the running domain.
    pub libvirt_id: Option<u32>,
    /// True if the control group confirms `libvirt_id`.
    #[serde(default)]
    pub libvirt_id_confirmed: bool,
    /// The VM ID in Proxmox VE.
    pub vmid: Option<u32>,
    /// True if the control group confirms `vmid`.
    pub vmid_confirmed: bool,
    /// The namespace in Kubernetes, and the name in it.
    pub namespaced: Option<(String, String)>,
}

/// The valid VM IDs of Proxmox VE (qm(1), `<vmid>`).
const VMIDS: std::ops::RangeInclusive<u32> = 100..=999_999_999;
/// The directory of Proxmox VE's sockets (qemu-server, src/PVE/QemuServer/Helpers.pm, `$var_run_tmpdir`).
const PROXMOX_RUN: &str = "/run/qemu-server/";

impl Management {
    /// The management of a process of this VMM, with the VM's name and the lines of `/proc/PID/cgroup`.
    pub(super) fn of(vmm: Vmm, name: Option<&str>, arguments: &[String], cgroup: &str) -> Self {
        match vmm {
            Vmm::Qemu => Self::of_qemu(name, arguments, cgroup),
            Vmm::CloudHypervisor => {
                let platform = values(arguments, &["platform"]).last().map(|text| properties(text, "uuid"));
                let uuid = platform.and_then(|found| uuid(property(&found, "uuid")?));
                Self { manager: Manager::CloudHypervisor, uuid, ..Self::default() }
            }
            Vmm::Crosvm => Self { manager: Manager::Crosvm, ..Self::default() },
            Vmm::Firecracker => Self { manager: Manager::Firecracker, ..Self::default() },
            _ => Self::default(),
        }
    }

    fn of_qemu(name: Option<&str>, arguments: &[String], cgroup: &str) -> Self {
        let smbios = Smbios::of(arguments, "1");
        let given = values(arguments, &["uuid"]).last().and_then(|text| uuid(text));
        let (libvirt_id, libvirt_id_confirmed) = libvirt_id(arguments, cgroup).unzip();
        let mut found = Self {
            manager: Manager::Qemu,
            uuid: given.or_else(|| smbios.uuid.clone()),
            libvirt_id,
            libvirt_id_confirmed: libvirt_id_confirmed.unwrap_or_default(),
            ..Self::default()
        };
        if let Some((vmid, confirmed)) = vmid(arguments, cgroup) {
            (found.vmid, found.vmid_confirmed) = (Some(vmid), confirmed);
            let seen = if confirmed {
                format!("control group qemu.slice/{vmid}.scope")
            } else {
                format!("-id {vmid}")
            };
            return found.made_by(Manager::Proxmox, seen);
        }
        let pods = cgroup.lines().any(|line| line.contains("kubepods"));
        if let Some(seen) = smbios.says(&["manufacturer", "family"], &["KubeVirt"]) {
            found.namespaced = name.and_then(namespaced);
            return found.made_by(Manager::KubeVirt, seen);
        }
        let in_pod = if pods && found.libvirt_id.is_some() { name.and_then(namespaced) } else { None };
        if let Some(names) = in_pod {
            found.namespaced = Some(names);
            return found.made_by(Manager::KubeVirt, "a domain in a control group of kubepods".to_owned());
        }
        // Distributions change the manufacturer, so only the product counts; Red Hat changes that too
        // (nova/version.py, and its release file).
        if let Some(seen) = smbios.says(&["product"], &["OpenStack Nova", "OpenStack Compute"]) {
            return found.made_by(Manager::Nova, seen);
        }
        if found.libvirt_id.is_some() && name.is_some_and(is_of_nova) {
            return found.made_by(Manager::Nova, "a domain with a name of its template".to_owned());
        }
        if let Some(seen) = smbios.says(&["manufacturer"], &["oVirt"]) {
            return found.made_by(Manager::Ovirt, seen);
        }
        // internal/server/instance/drivers/driver_qemu.go of Incus, lxd/instance/drivers/driver_qemu.go of LXD.
        let board = Smbios::of(arguments, "2");
        for (manager, product) in [(Manager::Incus, "Incus"), (Manager::Lxd, "LXD")] {
            if let Some(seen) = board.says(&["product"], &[product]) {
                return found.made_by(manager, seen);
            }
        }
        match found.libvirt_id {
            Some(id) => found.made_by(Manager::Libvirt, format!("domain {id}")),
            None => found,
        }
    }

    fn made_by(mut self, manager: Manager, evidence: String) -> Self {
        self.manager = manager;
        self.evidence.push(evidence);
        self
    }

    /// Tests whether the VM has this UUID or `namespace/name`.
    pub(super) fn is_called(&self, wanted: &str) -> bool {
        let uuid = self.uuid.as_deref().is_some_and(|uuid| uuid.eq_ignore_ascii_case(wanted));
        let spaced = |(space, name): &(String, String)| wanted.split_once('/') == Some((space, name));
        uuid || self.namespaced.as_ref().is_some_and(spaced)
    }

    /// Tests whether it has this VM ID in Proxmox VE.
    pub(super) fn has_vmid(&self, number: u32) -> bool {
        self.vmid == Some(number)
    }

    /// Tests whether it has this ID in the host's libvirt.
    pub(super) fn is_domain(&self, number: u32) -> bool {
        self.manager.uses_libvirt_of_the_host() && self.libvirt_id == Some(number)
    }
}

/// The first `-smbios` of a type on the command line: 1 describes the system, 2 its board. In QEMU later ones override
/// fields of earlier ones, but managers write only one.
struct Smbios {
    kind: &'static str,
    fields: Vec<(String, String)>,
    uuid: Option<String>,
}

impl Smbios {
    fn of(arguments: &[String], kind: &'static str) -> Self {
        let of_kind = |text: &&str| {
            let fields = properties(text, "type");
            (property(&fields, "type") == Some(kind)).then_some(fields)
        };
        let fields = values(arguments, &["smbios"]).iter().find_map(of_kind).unwrap_or_default();
        let uuid = property(&fields, "uuid").and_then(uuid);
        Self { kind, fields, uuid }
    }

    /// The first of these fields that has one of these values, as evidence.
    fn says(&self, fields: &[&str], wanted: &[&str]) -> Option<String> {
        let has = |field: &&&str| property(&self.fields, field).is_some_and(|value| wanted.contains(&value));
        let field = fields.iter().find(has)?;
        Some(format!("-smbios type={},{field}={}", self.kind, property(&self.fields, field)?))
    }
}

/// A UUID in lower case; `None` for other text.
fn uuid(text: &str) -> Option<String> {
    let dashes = [8, 13, 18, 23];
    let fits = |(place, byte): (usize, u8)| match dashes.contains(&place) {
        true => byte == b'-',
        false => byte.is_ascii_hexdigit(),
    };
    (text.len() == 36 && text.bytes().enumerate().all(fits)).then(|| text.to_ascii_lowercase())
}

/// The paths in the lines of `/proc/PID/cgroup`. Compare them from the root on: users can create groups with any name below
/// their own group, but not at the top.
fn groups(cgroup: &str) -> impl Iterator<Item = &str> {
    cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2))
}

/// Parses a number that has only digits: `parse` would accept a sign.
fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The VM ID in Proxmox VE, and whether the control group confirms it (`qemu.slice/100.scope`).
fn vmid(arguments: &[String], cgroup: &str) -> Option<(u32, bool)> {
    let in_group = groups(cgroup).find_map(|path| {
        let scope = path.strip_prefix("/qemu.slice/")?;
        digits(scope.split('/').next()?.strip_suffix(".scope")?)
    });
    if let Some(vmid) = in_group.filter(|vmid| VMIDS.contains(vmid)) {
        return Some((vmid, true));
    }
    let vmid = digits(values(arguments, &["id"]).last()?).filter(|vmid| VMIDS.contains(vmid))?;
    let own = format!("{PROXMOX_RUN}{vmid}.");
    arguments.iter().any(|argument| argument.contains(&own)).then_some((vmid, false))
}

/// libvirt's ID of the domain, and whether it is from the control group (`machine-qemu\x2d3\x2dweb.scope`), or else from
/// libvirt's directory for the domain (`.../domain-3-web/...`; libvirt, src/qemu/qemu_domain.c,
/// `qemuDomainSetPrivatePaths`).
fn libvirt_id(arguments: &[String], cgroup: &str) -> Option<(u32, bool)> {
    let from = |text: &str, before: &str, after: &str| {
        let (_, rest) = text.split_once(before)?;
        digits(rest.split_once(after)?.0).filter(|id| *id > 0)
    };
    let of_group = |path: &str| {
        digits(path.strip_prefix("/machine.slice/machine-qemu\\x2d")?.split_once("\\x2d")?.0)
            .filter(|id| *id > 0)
    };
    let of_place = |text: &String| from(text, "/domain-", "-");
    let in_group = groups(cgroup).find_map(of_group).map(|id| (id, true));
    in_group.or_else(|| Some((arguments.iter().find_map(of_place)?, false)))
}

/// Tests for a name by Nova's default template, `instance-%08x` (nova/conf/compute.py,
/// `instance_name_template`).
fn is_of_nova(name: &str) -> bool {
    let number = name.strip_prefix("instance-");
    number.is_some_and(|number| {
        number.len() == 8 && number.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Splits KubeVirt's name of a domain, `namespace_name` (pkg/virt-launcher/virtwrap/util, `DomainFromNamespaceName`).
/// Neither part may have an underscore in Kubernetes.
fn namespaced(domain: &str) -> Option<(String, String)> {
    let (space, name) = domain.split_once('_')?;
    let is_label = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&text.len())
            && text.bytes().all(fits)
            && !text.starts_with('-')
            && !text.ends_with('-')
    };
    // Names of VMs may contain dots; each part between them is a label.
    let is_name = name.len() <= 253 && name.split('.').all(is_label);
    (is_label(space) && is_name).then(|| (space.to_owned(), name.to_owned()))
}

#[cfg(test)]
#[path = "manager_tests.rs"]
mod tests;
