//! The properties that QEMU's options of several devices have in common.

use std::path::Path;

use super::super::plan::QemuPlan;

/// A path as a value in a QEMU option, where commas are doubled.
pub(super) fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// The suffix of QEMU's names of virtio devices: microvm has no PCI by default.
pub(super) fn virtio_suffix(plan: &QemuPlan) -> &'static str {
    let pci = !plan.is_microvm() || plan.machine.split(',').any(|option| option == "pcie=on");
    if pci { "pci" } else { "device" }
}

/// The tap device of guest `index`; the process number distinguishes studies on one machine.
pub(super) fn tap_name(index: u32) -> String {
    format!("ex{}-{index}", std::process::id())
}
