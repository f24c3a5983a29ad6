//! The laboratories.

use std::time::Duration;

use crate::error::Error;
use crate::progress::Effort;
use crate::{recipe, xen_recipe};

/// The emulator under a laboratory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emulator {
    /// Bochs, for VMX with APICv and posted interrupts.
    Bochs,
    /// QEMU's TCG, for SVM.
    Qemu,
}

impl Emulator {
    /// The emulator's name for display.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bochs => "Bochs",
            Self::Qemu => "QEMU",
        }
    }

    /// The effort of compiling the emulator.
    pub fn effort(self) -> Effort {
        let (download_mib, disk_mib, seconds) = match self {
            Self::Bochs => (15, 150, 75),
            Self::Qemu => (50, 900, 100),
        };
        Effort { download_mib, disk_mib, time: Duration::from_secs(seconds) }
    }
}

/// The hypervisor of an emulated host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hypervisor {
    /// KVM, in the host's own kernel.
    Kvm {
        /// The vendor's module for the CPU.
        vendor_module: &'static str,
    },
    /// Xen, with a control domain (dom0) in which commands run.
    Xen,
}

/// An emulated host of virtual machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lab {
    /// The name on the command line.
    pub name: &'static str,
    /// One line for `lab list`.
    pub summary: &'static str,
    /// The emulator that runs it.
    pub emulator: Emulator,
    /// The hypervisor that runs virtual machines in it.
    pub hypervisor: Hypervisor,
    /// The CPU has interrupt virtualization: APICv or AVIC.
    pub apicv: bool,
    /// Kernel arguments in addition to the common ones.
    pub kernel_arguments: &'static str,
    /// The default limit on the emulator's time for reaching user space.
    pub boot_limit: Duration,
}

/// Many times as long as a boot takes: meant to catch machines that hang, not slow ones.
const BOOT_LIMIT: Duration = Duration::from_secs(600);

/// All laboratories, in the order of `lab list`.
pub const LABS: [Lab; 5] = [
    Lab {
        name: "intel-apicv",
        summary: "Intel VMX with APICv and posted interrupts, kvm_intel (Bochs)",
        emulator: Emulator::Bochs,
        hypervisor: Hypervisor::Kvm { vendor_module: "kvm-intel" },
        apicv: true,
        kernel_arguments: "",
        boot_limit: BOOT_LIMIT,
    },
    Lab {
        name: "amd-svm",
        summary: "AMD SVM with nested paging and without AVIC, kvm_amd (QEMU TCG)",
        emulator: Emulator::Qemu,
        hypervisor: Hypervisor::Kvm { vendor_module: "kvm-amd" },
        apicv: false,
        kernel_arguments: "",
        boot_limit: BOOT_LIMIT,
    },
    Lab {
        name: "amd-avic",
        summary: "AMD SVM with AVIC and x2AVIC, kvm_amd (QEMU TCG)",
        emulator: Emulator::Qemu,
        hypervisor: Hypervisor::Kvm { vendor_module: "kvm-amd" },
        apicv: true,
        // kvm_amd enables AVIC by default only since Linux 6.18, on CPUs like this one: family 19h, model 10h
        // or later, with x2AVIC.
        kernel_arguments: "kvm_amd.avic=1",
        boot_limit: BOOT_LIMIT,
    },
    Lab {
        name: "xen",
        summary: "Xen with SVM and nested paging, xl and xentrace in dom0 (QEMU TCG)",
        emulator: Emulator::Qemu,
        hypervisor: Hypervisor::Xen,
        apicv: false,
        // Xen owns the serial port, and forwards its control domain's console.
        kernel_arguments: "console=hvc0",
        boot_limit: BOOT_LIMIT,
    },
    Lab {
        name: "xen-apicv",
        summary: "Xen with VMX, APICv and posted interrupts, xl and xentrace in dom0 (Bochs)",
        emulator: Emulator::Bochs,
        hypervisor: Hypervisor::Xen,
        apicv: true,
        // Linux's early PCI scan uses I/O ports, and Xen emulates each of dom0's accesses.
        kernel_arguments: "console=hvc0 pci=noearly",
        boot_limit: BOOT_LIMIT,
    },
];

impl Lab {
    /// Finds a laboratory by its name.
    ///
    /// # Errors
    /// [`Error::UnknownLab`], with the known names.
    pub fn find(name: &str) -> Result<&'static Self, Error> {
        LABS.iter().find(|lab| lab.name == name).ok_or_else(|| Error::UnknownLab {
            name: name.to_owned(),
            known: LABS.map(|lab| lab.name).join(", "),
        })
    }

    /// The Debian packages requested for the host's image; their dependencies are not listed.
    pub fn requested_packages(&self) -> &'static [&'static str] {
        if self.is_xen() { &xen_recipe::PACKAGES } else { &recipe::PACKAGES }
    }

    /// Tests whether the hypervisor is Xen, whose host has an image of its own.
    pub fn is_xen(&self) -> bool {
        self.hypervisor == Hypervisor::Xen
    }

    /// Tests whether the machine can have devices for assignment to guests.
    pub fn can_have_devices(&self) -> bool {
        self.emulator == Emulator::Qemu
    }

    /// Tests whether Debian's QEMU, which is in the image, can replace ours. It has no AVIC.
    pub fn runs_in_debians_qemu(&self) -> bool {
        self.emulator == Emulator::Qemu && !self.apicv
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let message = Lab::find("intel").unwrap_err().to_string();
        assert!(
            message.contains("\"intel\"")
                && message.contains("intel-apicv, amd-svm, amd-avic, xen, xen-apicv"),
            "{message}"
        );
    }

    #[test]
    fn debians_qemu_serves_those_without_avic() {
        let served: Vec<_> =
            LABS.iter().filter(|lab| lab.runs_in_debians_qemu()).map(|lab| lab.name).collect();
        assert_eq!(served, ["amd-svm", "xen"]);
    }
}
