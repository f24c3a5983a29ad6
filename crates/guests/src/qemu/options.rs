//! Parts that several of QEMU's options share.

use std::path::Path;

use super::super::plan::QemuPlan;

/// A path as a value in a QEMU option.
pub(super) fn escaped(path: &Path) -> String {
    domain::qemu::escaped(&path.display().to_string())
}

/// The suffix of virtio devices' names in QEMU: "pci", or "device" for virtio-mmio, as a microvm has no PCI by default.
pub(super) fn virtio_suffix(plan: &QemuPlan) -> &'static str {
    let pci = !plan.is_microvm() || plan.machine.split(',').any(|option| option == "pcie=on");
    if pci { "pci" } else { "device" }
}

/// The name of guest `index`'s tap device; the process ID distinguishes studies on one machine.
pub(super) fn tap_name(index: u32) -> String {
    format!("ex{}-{index}", std::process::id())
}
