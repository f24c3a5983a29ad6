//! Devices of a Xen host that are ready for assignment to guests.

use serde::{Deserialize, Serialize};

use crate::pci_function::PciFunction;
use crate::{Root, inspection};

/// A PCI function of the host, as seen from Xen's control domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XenDevice {
    /// The function.
    pub function: PciFunction,
    /// True if `xl pci-assignable-list` lists it.
    pub ready: bool,
}

impl XenDevice {
    /// All functions of the host below `root`; `None` if `xl` cannot be run.
    #[must_use]
    pub fn all(root: &Root) -> Option<Vec<Self>> {
        let listed = root.command("xl pci-assignable-list");
        let ready = inspection::xen_addresses(listed.get()?);
        let functions = PciFunction::all(root).into_iter();
        Some(functions.map(|function| Self { ready: ready.contains(&function.address), function }).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xl_lists_is_ready() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for address in ["0000:03:10.0", "0000:03:10.2"] {
            put(&format!("sys/bus/pci/devices/{address}/class"), "0x020000\n");
        }
        let root = Root::directory(folder.path());
        assert_eq!(XenDevice::all(&root), None);
        put("exitless/commands/xl-pci-assignable-list", "0000:03:10.2 \n");
        let found = XenDevice::all(&root).unwrap();
        let told: Vec<_> = found.iter().map(|one| (one.function.address.as_str(), one.ready)).collect();
        assert_eq!(told, [("0000:03:10.0", false), ("0000:03:10.2", true)]);
    }
}
