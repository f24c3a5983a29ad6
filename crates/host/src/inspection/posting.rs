//! Interrupts of assigned devices: the IOMMU's support for posting them, and the counts of those that the
//! host handles itself.

use super::iommu::{AmdFeatures, IntelCapabilities};
use crate::Root;
use crate::interrupt_lines::{InterruptLine, interrupt_lines};
use crate::root::hexadecimal;
use crate::vms::{AssignedDevice, Vm, Vmm};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// An IOMMU and its support for posted interrupts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iommu {
    /// Its name in `/sys/class/iommu`.
    pub name: String,
    /// It supports posting; `None` if its register could not be read.
    pub posts: Option<bool>,
    /// The register as the kernel prints it.
    pub register: Option<String>,
}

/// One interrupt of an assigned device in `/proc/interrupts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInterrupt {
    /// The host's number.
    pub number: u32,
    /// The device's PCI address.
    pub device: String,
    /// It is level-triggered (INTx).
    pub level: bool,
    /// The number of times that each CPU that is online handled it since it was set up, with the interrupts of other
    /// devices that share its line.
    pub each: BTreeMap<u32, u64>,
}

/// The IOMMUs of the host below `root`; empty if there are none or they are off.
#[must_use]
pub fn iommus(root: &Path) -> Vec<Iommu> {
    let root = &Root::directory(root);
    let names = root.entries("/sys/class/iommu", |_| true).unwrap_or_default();
    names.into_iter().filter_map(|name| iommu(root, name)).collect()
}

fn iommu(root: &Root, name: String) -> Option<Iommu> {
    let home = format!("/sys/class/iommu/{name}");
    let read = |file: &str| root.text(&format!("{home}/{file}"), "a register").ok();
    let known = |kind: &str| root.exists(&format!("{home}/{kind}"));
    let (register, posts): (_, fn(&str) -> Option<bool>) = if known("intel-iommu") {
        (read("intel-iommu/cap"), |cap| Some(IntelCapabilities::of(hexadecimal(cap)?, None).posts))
    } else if known("amd-iommu") {
        (read("amd-iommu/features"), |features| Some(AmdFeatures::parse(features)?.posts()))
    } else {
        // Other IOMMUs, such as virtio-iommu, do not post interrupts.
        return None;
    };
    Some(Iommu { name, posts: register.as_deref().and_then(posts), register })
}

/// Joins answers of which some may be unknown: one that is `deciding` decides (false if all must be true, true if one
/// suffices). `None` if there are none, or if an unknown one could decide.
#[must_use]
pub fn joined(answers: impl IntoIterator<Item = Option<bool>>, deciding: bool) -> Option<bool> {
    let answers: Vec<Option<bool>> = answers.into_iter().collect();
    if answers.contains(&Some(deciding)) {
        return Some(deciding);
    }
    (!answers.is_empty() && !answers.contains(&None)).then_some(!deciding)
}

/// The PCI addresses, or other names, of the devices of `vm`: those of its open VFIO groups and devices, and
/// those on its command line that it still has.
#[must_use]
pub fn devices_of(root: &Path, vm: &Vm) -> Vec<String> {
    devices_in(&Root::directory(root), vm)
}

pub(crate) fn devices_in(root: &Root, vm: &Vm) -> Vec<String> {
    let mut found = BTreeSet::new();
    for path in &vm.vfio {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if path.parent() == Some(Path::new("/dev/vfio/devices")) {
            let device = root.link(&format!("/sys/class/vfio-dev/{name}/device")).ok();
            found.extend(device.and_then(|device| Some(device.file_name()?.to_str()?.to_owned())));
        } else {
            let group = name.strip_prefix("noiommu-").unwrap_or(name);
            let home = format!("/sys/kernel/iommu_groups/{group}/devices");
            let members = root.entries(&home, |_| true).unwrap_or_default();
            found.extend(members.into_iter().filter(|device| is_vfios(root, device)));
        }
    }
    found.extend(vm.devices.iter().filter_map(|device| match device {
        AssignedDevice::Pci(address) => (!is_unplugged(root, vm, address)).then(|| address.clone()),
        AssignedDevice::Sysfs(_) => None,
    }));
    found.into_iter().collect()
}

/// Tests whether a device of the command line is known to be no longer the VM's: QEMU closes the group with its last
/// device. Other VMMs may have the descriptors in another process.
fn is_unplugged(root: &Root, vm: &Vm, address: &str) -> bool {
    if vm.vmm != Vmm::Qemu {
        return false;
    }
    let home = format!("/sys/bus/pci/devices/{address}");
    let Ok(group) = root.link(&format!("{home}/iommu_group")) else { return false };
    let group = group.file_name().unwrap_or_default().to_string_lossy();
    let mut files = match root.entries(&format!("{home}/vfio-dev"), |_| true) {
        Ok(files) => files,
        // The device has another driver, or the kernel is older than 6.1.
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(_) => return false,
    };
    files.extend([group.to_string(), format!("noiommu-{group}")]);
    let open =
        |path: &PathBuf| path.file_name().is_some_and(|name| files.iter().any(|file| name == file.as_str()));
    !vm.vfio.iter().any(open)
}

/// Tests whether a device is a mediated one: a part of a device whose driver on the host raises its interrupts.
#[must_use]
pub fn is_mediated(root: &Path, device: &str) -> bool {
    Root::directory(root).exists(&format!("/sys/bus/mdev/devices/{device}"))
}

/// Tests whether a device of a group belongs to VFIO: a group may also contain bridges, which stay with the
/// host.
fn is_vfios(root: &Root, device: &str) -> bool {
    let driver = root.link(&format!("/sys/bus/pci/devices/{device}/driver")).ok();
    let name = driver.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    name.is_none_or(|name| name.contains("vfio"))
}

/// The interrupts of all assigned devices, by number (names by `drivers/vfio/pci/vfio_pci_intrs.c`).
/// Interrupts that are posted stay in the list, but are not counted.
#[must_use]
pub fn device_interrupts(root: &Path) -> Vec<DeviceInterrupt> {
    let bytes = Root::directory(root).read("/proc/interrupts").unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let Some((cpus, lines)) = interrupt_lines(&text) else { return Vec::new() };
    lines.flat_map(|line| of_line(&cpus, &line)).collect()
}

/// The interrupts of a line: devices that share an INTx line are all in it.
fn of_line(cpus: &[u32], line: &InterruptLine<'_>) -> Vec<DeviceInterrupt> {
    let Ok(number) = line.label.parse::<u32>() else { return Vec::new() };
    let each: BTreeMap<u32, u64> = cpus.iter().copied().zip(line.counts.iter().copied()).collect();
    let of_device = |(at, _): (usize, &str)| {
        let (kind, rest) = line.rest[at..].split_once('(')?;
        let device = rest.split(')').next()?.to_owned();
        Some(DeviceInterrupt { number, device, level: kind.starts_with("vfio-intx"), each: each.clone() })
    };
    line.rest.match_indices("vfio-").filter_map(of_device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::{Seek as _, SeekFrom, Write as _};
    use std::os::unix::fs::symlink;

    const INTERRUPTS: &str = "            CPU0       CPU1\n   0:         40          0  IR-IO-APIC    2-edge      timer\n\
        133:          7         12  IR-PCI-MSIX-0000:65:00.0    0-edge      vfio-msix[0](0000:65:00.0)\n\
        134:          0          0  IR-PCI-MSIX-0000:65:00.0    1-edge      vfio-msix[1](0000:65:00.0)\n \
         18:          5          0  IR-IO-APIC   18-fasteoi   vfio-intx(0000:03:00.0), vfio-intx(0000:04:00.0)\n\
        bad: vfio-msi[0](\n NMI:          1          2   Non-maskable interrupts\n";

    #[test]
    fn interrupts_of_devices_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/interrupts"), INTERRUPTS).unwrap();
        let found = device_interrupts(root.path());
        let told: Vec<_> =
            found.iter().map(|one| (one.number, one.device.as_str(), one.level, one.each.clone())).collect();
        let (card, on) = ("0000:65:00.0", |zero, one| BTreeMap::from([(0, zero), (1, one)]));
        let expected = [
            (133, card, false, on(7, 12)),
            (134, card, false, on(0, 0)),
            (18, "0000:03:00.0", true, on(5, 0)),
            (18, "0000:04:00.0", true, on(5, 0)),
        ];
        assert_eq!(told, expected);
        assert!(device_interrupts(Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn interrupts_of_a_host_with_hundreds_of_processors_are_read_to_the_last() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        let mut file = fs::File::create(root.path().join("proc/interrupts")).unwrap();
        file.write_all(b"            CPU0       CPU1\n").unwrap();
        // A hole, which is one line without meaning, in the place of thousands of interrupts.
        file.seek(SeekFrom::Start(65 << 20)).unwrap();
        file.write_all(
            b"\n 9000:    7    12  IR-PCI-MSIX-0000:65:00.0    0-edge      vfio-msix[0](0000:65:00.0)\n",
        )
        .unwrap();
        file.write_all(b" PIN:    1    2   Posted-interrupt notification event\n").unwrap();
        let found: Vec<_> =
            device_interrupts(root.path()).into_iter().map(|one| (one.number, one.each)).collect();
        assert_eq!(found, [(9000, BTreeMap::from([(0, 7), (1, 12)]))]);
    }

    #[test]
    fn which_iommus_post() {
        let root = tempfile::tempdir().unwrap();
        let registers = [
            ("dmar0/intel-iommu/cap", "8d2078c106f0466\n"),
            ("dmar1/intel-iommu/cap", "19ed008c40780c66\n"),
            ("ivhd0/amd-iommu/features", "25bf732fa2295afe\n"),
            ("ivhd1/amd-iommu/features", "5:25bf732fa2295afe\n"),
            ("ivhd2/amd-iommu/features", "f77ef22294ada\n"),
            ("ivhd3/amd-iommu/features", "odd\n"),
            ("ivhd4/amd-iommu/features", "80\n"),
            ("ivhd5/amd-iommu/features", "200000\n"),
            ("dmar2/intel-iommu/cap", "d20780106f0462\n"),
            ("virt0/other/x", ""),
        ];
        for (path, value) in registers {
            let path = root.path().join("sys/class/iommu").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        }
        let posts: Vec<_> = iommus(root.path()).into_iter().map(|one| (one.name, one.posts)).collect();
        let expected = [
            ("dmar0", Some(true)),
            ("dmar1", Some(true)),
            ("dmar2", Some(false)),
            ("ivhd0", Some(true)),
            ("ivhd1", Some(true)),
            ("ivhd2", Some(true)),
            ("ivhd3", None),
            ("ivhd4", Some(false)),
            ("ivhd5", Some(false)),
        ];
        assert_eq!(posts, expected.map(|(name, posts)| (name.to_owned(), posts)));
    }

    #[test]
    fn the_order_of_answers_does_not_matter() {
        let (yes, no) = (Some(true), Some(false));
        for (answers, all, any) in [
            (vec![yes, yes], yes, yes),
            (vec![yes, no], no, yes),
            (vec![no, no], no, no),
            (vec![yes, None], None, yes),
            (vec![no, None], no, None),
            (vec![None], None, None),
            (vec![], None, None),
        ] {
            let reversed: Vec<_> = answers.iter().rev().copied().collect();
            for answers in [answers, reversed] {
                let found = [false, true].map(|deciding| joined(answers.iter().copied(), deciding));
                assert_eq!(found, [all, any], "{answers:?}");
            }
        }
    }

    #[test]
    fn devices_of_groups_without_their_bridges() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for (device, driver) in [("0000:65:00.0", "vfio-pci"), ("0000:64:00.0", "pcieport")] {
            fs::create_dir_all(at("sys/kernel/iommu_groups/12/devices").join(device)).unwrap();
            fs::create_dir_all(at("sys/bus/pci/devices").join(device)).unwrap();
            symlink(format!("../../drivers/{driver}"), at("sys/bus/pci/devices").join(device).join("driver"))
                .unwrap();
        }
        fs::create_dir_all(at("sys/class/vfio-dev/vfio3")).unwrap();
        symlink("../../../0000:66:00.1", at("sys/class/vfio-dev/vfio3/device")).unwrap();
        let vfio = ["/dev/vfio/12", "/dev/vfio/devices/vfio3", "/dev/vfio/99"].map(std::path::PathBuf::from);
        let devices =
            vec![AssignedDevice::Pci("0000:67:00.0".to_owned()), AssignedDevice::Sysfs("/sys/x".into())];
        let vm = Vm { devices, vfio: vfio.to_vec(), ..Vm::default() };
        assert_eq!(devices_of(root.path(), &vm), ["0000:65:00.0", "0000:66:00.1", "0000:67:00.0"]);
    }

    #[test]
    fn an_unplugged_device_of_the_command_line_is_no_longer_the_vms() {
        let root = tempfile::tempdir().unwrap();
        let at = |device: &str| root.path().join("sys/bus/pci/devices").join(device);
        for (device, group) in [("0000:65:00.0", "12"), ("0000:66:00.0", "13"), ("0000:67:00.0", "14")] {
            fs::create_dir_all(at(device)).unwrap();
            symlink(format!("../../../../kernel/iommu_groups/{group}"), at(device).join("iommu_group"))
                .unwrap();
        }
        fs::create_dir_all(at("0000:67:00.0").join("vfio-dev/vfio3")).unwrap();
        let addresses = ["0000:65:00.0", "0000:66:00.0", "0000:67:00.0", "0000:68:00.0"];
        let devices = addresses.map(|address| AssignedDevice::Pci(address.to_owned())).to_vec();
        let vfio = ["/dev/vfio/noiommu-12", "/dev/vfio/devices/vfio3"].map(PathBuf::from).to_vec();
        let vm = Vm { vmm: Vmm::Qemu, devices, vfio, ..Vm::default() };
        assert_eq!(devices_of(root.path(), &vm), ["0000:65:00.0", "0000:67:00.0", "0000:68:00.0"]);
        // Its file may be among those that cannot be listed.
        fs::write(at("0000:66:00.0").join("vfio-dev"), "").unwrap();
        assert_eq!(devices_of(root.path(), &vm), addresses);
        // The process of crosvm's devices has the descriptors.
        let other = Vm { vmm: Vmm::Crosvm, vfio: Vec::new(), ..vm };
        assert_eq!(devices_of(root.path(), &other), addresses);
    }

    #[test]
    fn a_mediated_device_is_told_from_one_of_pci() {
        let root = tempfile::tempdir().unwrap();
        let device = "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001";
        for folder in ["sys/kernel/iommu_groups/12/devices", "sys/bus/mdev/devices"] {
            fs::create_dir_all(root.path().join(folder).join(device)).unwrap();
        }
        let vm = Vm { vfio: vec![PathBuf::from("/dev/vfio/12")], ..Vm::default() };
        assert_eq!(devices_of(root.path(), &vm), [device]);
        assert!(is_mediated(root.path(), device) && !is_mediated(root.path(), "0000:65:00.0"));
    }
}
