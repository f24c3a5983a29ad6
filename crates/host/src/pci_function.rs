//! PCI functions of the host, as candidates for assignment to guests: virtual or physical, with their
//! drivers.

use serde::{Deserialize, Serialize};

use crate::Root;

const DEVICES: &str = "/sys/bus/pci/devices";

/// A function of the host (`/sys/bus/pci/devices/ADDRESS`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciFunction {
    /// `0000:03:10.0`.
    pub address: String,
    /// Its SR-IOV role.
    pub role: FunctionRole,
    /// The bound driver; `pciback` if it is ready for a guest of Xen, `vfio-pci` if it is ready for one of
    /// KVM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}

/// The SR-IOV role of a function (Linux Documentation/ABI/testing/sysfs-bus-pci, `physfn` and
/// `sriov_numvfs`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FunctionRole {
    /// A virtual function: the link `physfn` names the physical one.
    Virtual {
        /// The address of the physical function.
        of: String,
    },
    /// A physical function, or a device without SR-IOV.
    Physical {
        /// The number of its virtual functions (`sriov_numvfs`).
        virtual_functions: u32,
        /// The maximum number of its virtual functions (`sriov_totalvfs`); 0 without SR-IOV.
        possible: u32,
    },
}

impl PciFunction {
    /// Reads the function at an address; `None` if there is no such device.
    #[must_use]
    pub fn read(root: &Root, address: &str) -> Option<Self> {
        let address = whole_address(address)?;
        let home = format!("{DEVICES}/{address}");
        if !root.is_directory(&home) {
            return None;
        }
        let target = |link: &str| {
            let target = root.link(&format!("{home}/{link}")).ok()?;
            Some(target.file_name()?.to_string_lossy().into_owned())
        };
        let count = |file: &str| {
            let text = root.text(&format!("{home}/{file}"), "a number").ok()?;
            text.trim().parse::<u32>().ok()
        };
        let role = match target("physfn") {
            Some(of) => FunctionRole::Virtual { of },
            None => FunctionRole::Physical {
                virtual_functions: count("sriov_numvfs").unwrap_or(0),
                possible: count("sriov_totalvfs").unwrap_or(0),
            },
        };
        Some(Self { driver: target("driver"), role, address })
    }

    /// All functions, in the order of their addresses.
    #[must_use]
    pub fn all(root: &Root) -> Vec<Self> {
        let addresses = root.entries(DEVICES, |name| whole_address(name).is_some()).unwrap_or_default();
        addresses.iter().filter_map(|address| Self::read(root, address)).collect()
    }

    /// Tests whether the function is a virtual one.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        matches!(self.role, FunctionRole::Virtual { .. })
    }
}

/// The address in the kernel's form. Its domain and leading zeros may be missing, as `xl` and QEMU allow. `None` if the text
/// is not the address of a single function.
#[must_use]
pub fn whole_address(text: &str) -> Option<String> {
    let number = |digits: &str| {
        // `from_str_radix` would accept a sign.
        let digits = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        u32::from_str_radix(digits?, 16).ok()
    };
    let (slot, function) = text.trim().split_once('.')?;
    let function = number(function)?;
    let parts: Vec<u32> = slot.split(':').map(number).collect::<Option<_>>()?;
    let (domain, bus, slot) = match parts[..] {
        [bus, slot] => (0, bus, slot),
        [domain, bus, slot] => (domain, bus, slot),
        _ => return None,
    };
    let fits = bus <= 0xff && slot <= 0x1f && function <= 7;
    fits.then(|| format!("{domain:04x}:{bus:02x}:{slot:02x}.{function}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn addresses_as_people_and_the_kernel_write_them() {
        assert_eq!(whole_address("03:10.0").as_deref(), Some("0000:03:10.0"));
        assert_eq!(whole_address("0000:3B:10.7").as_deref(), Some("0000:3b:10.7"));
        assert_eq!(whole_address("3B:0.0").as_deref(), Some("0000:3b:00.0"));
        assert_eq!(whole_address("10000:e1:00.0").as_deref(), Some("10000:e1:00.0"));
        for wrong in
            ["", "03:10", "03:10.8", "03:10.*", "03:20.0", "100:0.0", "+3:10.0", "03:.0", "0000:03:10.0.0"]
        {
            assert_eq!(whole_address(wrong), None, "{wrong}");
        }
        for wrong in ["a:b:c.d", "../..:03:10.0", "0:0000:03:10.0"] {
            assert_eq!(whole_address(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_virtual_function_knows_its_physical_one() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join("sys/bus/pci/devices").join(path);
        for address in ["0000:03:00.0", "0000:03:10.0", "0000:04:00.0"] {
            fs::create_dir_all(at(address)).unwrap();
        }
        fs::write(at("0000:03:00.0/sriov_numvfs"), "2\n").unwrap();
        fs::write(at("0000:03:00.0/sriov_totalvfs"), "63\n").unwrap();
        symlink("../0000:03:00.0", at("0000:03:10.0/physfn")).unwrap();
        symlink("../../../bus/pci/drivers/pciback", at("0000:03:10.0/driver")).unwrap();
        let found = PciFunction::all(&Root::directory(root.path()));
        let function = |address: &str, role, driver: Option<&str>| PciFunction {
            address: address.to_owned(),
            role,
            driver: driver.map(str::to_owned),
        };
        let physical = |virtual_functions, possible| FunctionRole::Physical { virtual_functions, possible };
        let of = FunctionRole::Virtual { of: "0000:03:00.0".to_owned() };
        let expected = [
            function("0000:03:00.0", physical(2, 63), None),
            function("0000:03:10.0", of, Some("pciback")),
            function("0000:04:00.0", physical(0, 0), None),
        ];
        assert_eq!(found, expected);
        assert!(found[1].is_virtual() && !found[0].is_virtual());
        assert_eq!(PciFunction::read(&Root::directory(root.path()), "05:00.0"), None);
    }
}
