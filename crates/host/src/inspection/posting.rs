//! Interrupts of assigned devices: the IOMMU's support for posting them, and the counts of those that the
//! host handles itself.

use super::iommu::{AmdFeatures, IntelCapabilities};
use crate::Root;
use crate::interrupt_lines::{InterruptLine, interrupt_lines};
use crate::root::hexadecimal;
use crate::vms::{AssignedDevice, Vm};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

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
    /// The number of times that each CPU that is online handled it since it was set up.
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
/// those on its command line.
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
        AssignedDevice::Pci(address) => Some(address.clone()),
        AssignedDevice::Sysfs(_) => None,
    }));
    found.into_iter().collect()
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
    lines.filter_map(|line| device_interrupt(&cpus, line)).collect()
}

fn device_interrupt(cpus: &[u32], line: InterruptLine<'_>) -> Option<DeviceInterrupt> {
    let at = line.rest.rfind("vfio-")?;
    let (kind, rest) = line.rest[at..].split_once('(')?;
    let device = rest.split(')').next()?.to_owned();
    Some(DeviceInterrupt {
        number: line.label.parse().ok()?,
        device,
        level: kind.starts_with("vfio-intx"),
        each: cpus.iter().copied().zip(line.counts).collect(),
    })
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
         18:          5          0  IR-IO-APIC   18-fasteoi   vfio-intx(0000:03:00.0)\n\
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
}
