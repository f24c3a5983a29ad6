//! Devices of the host that are assigned to a VM, from its command line.

use super::Vmm;
use super::arguments::{all_values, properties, property, values};
use crate::whole_address;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A device assigned through VFIO.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AssignedDevice {
    /// A PCI device, as `0000:65:00.0` or as in the command line.
    Pci(String),
    /// Another device, or a mediated one, by its directory in sysfs.
    Sysfs(String),
}

/// The devices on the command line, in its order. Hotplugged devices are not on it; only their open groups
/// show them.
pub(super) fn of(vmm: Vmm, arguments: &[String]) -> Vec<AssignedDevice> {
    match vmm {
        Vmm::Qemu => values(arguments, &["device"]).into_iter().filter_map(of_qemu).collect(),
        Vmm::CloudHypervisor => by_path(&all_values(arguments, "device")),
        Vmm::Crosvm => by_path(&values(arguments, &["vfio"])),
        Vmm::Firecracker | Vmm::Other => Vec::new(),
    }
}

/// Parses `vfio-pci,host=65:00.0`, `vfio-pci,sysfsdev=/sys/...`, or a JSON object with the same names, which
/// libvirt writes.
fn of_qemu(text: &str) -> Option<AssignedDevice> {
    let found = if text.starts_with('{') { from_json(text)? } else { properties(text, "driver") };
    if !property(&found, "driver")?.starts_with("vfio-") {
        return None;
    }
    let whole = |address: &str| whole_address(address).unwrap_or_else(|| address.to_owned());
    let pci = property(&found, "host").map(|address| AssignedDevice::Pci(whole(address)));
    pci.or_else(|| property(&found, "sysfsdev").map(by_directory))
}

fn from_json(text: &str) -> Option<Vec<(String, String)>> {
    let Ok(Value::Object(object)) = serde_json::from_str(text) else { return None };
    let strings = object.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())));
    Some(strings.collect())
}

fn by_path(values: &[&str]) -> Vec<AssignedDevice> {
    let device = |text: &&str| property(&properties(text, "path"), "path").map(by_directory);
    values.iter().filter_map(device).collect()
}

fn by_directory(path: &str) -> AssignedDevice {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    match whole_address(name).filter(|_| path.contains("/pci/")) {
        Some(address) => AssignedDevice::Pci(address),
        None => AssignedDevice::Sysfs(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_every_spelling() {
        let pci = |address: &str| AssignedDevice::Pci(address.to_owned());
        let mediated = "/sys/bus/mdev/devices/83b8f4f2";
        let arguments = [
            "qemu",
            "-device",
            "vfio-pci,host=3B:0.0,id=a",
            "-device",
            r#"{"driver":"vfio-pci","host":"0000:66:00.1","id":"b","bootindex":1}"#,
            "-device",
            "virtio-net-pci,host=x",
            "-device",
            &format!("vfio-pci,sysfsdev={mediated}"),
            "-device",
            "{broken",
            "-device",
            "vfio-pci",
        ]
        .map(str::to_owned);
        let expected = [pci("0000:3b:00.0"), pci("0000:66:00.1"), AssignedDevice::Sysfs(mediated.to_owned())];
        assert_eq!(of(Vmm::Qemu, &arguments), expected);
        let path = "/sys/bus/pci/devices/0000:01:00.0";
        let (first, second) = (format!("path={path}/,iommu=on"), "path=/sys/bus/pci/devices/0000:02:00.0");
        let line = ["x", "--device", &first, second, "--vfio", path].map(str::to_owned);
        assert_eq!(of(Vmm::CloudHypervisor, &line), [pci("0000:01:00.0"), pci("0000:02:00.0")]);
        assert_eq!(of(Vmm::Crosvm, &line), [pci("0000:01:00.0")]);
        assert!(of(Vmm::Firecracker, &line).is_empty());
    }
}
