//! Messages of the kernel's log on virtualization and interrupts.

use crate::root::LogLine;
use crate::{Evidence, Fact, Root};

/// Lines of the kernel's log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelLog {
    /// Lines about KVM, IOMMUs, APICs, Xen, microcode and lockdown, and kernel warnings, oldest first. The
    /// log is a ring buffer: an early line may have been overwritten.
    pub lines: Fact<Vec<LogLine>>,
    /// True if the log starts with the kernel's first message: only then does the absence of a line mean
    /// something. `false` if unknown.
    pub whole: bool,
}

/// Lines that contain one of these, in lower case, are kept.
const KEPT: &[&str] = &[
    "amd-vi",
    "dmar",
    "kvm",
    "svm",
    "avic",
    "apic",
    "vmx",
    "iommu",
    "irq remapping",
    "interrupt remapping",
    "posted interrupt",
    "hypervisor",
    "locked down",
    "lockdown",
    "microcode",
    "xen",
    "vfio",
    "secure boot",
    "warning: cpu",
    "rip: 0010:",
    "hyper-v",
];
/// Lines among them that contain one of these are omitted: there are hundreds, and they mean nothing.
const LEFT_OUT: &[&str] = &["lapic_nmi", "x2apic[0x", "command line:", "acpi: apic"];
/// The largest number of lines to keep: an IOMMU can log one for each hotplugged device.
const MOST: usize = 2000;

impl KernelLog {
    pub(super) fn read(root: &Root) -> Self {
        let messages = root.messages(is_kept);
        let whole = messages.get().is_some_and(|messages| messages.first == Some(0));
        let lines = messages.map(|messages| messages.wanted.into_iter().take(MOST).collect());
        Self { lines, whole }
    }

    /// The first line that contains the text, case-sensitive.
    #[must_use]
    pub fn line_with(&self, text: &str) -> Option<&LogLine> {
        self.lines.get()?.iter().find(|line| line.text.contains(text))
    }

    /// The first line that contains the text, as evidence.
    #[must_use]
    pub fn evidence(&self, text: &str) -> Option<Evidence> {
        Some(Evidence::new("kernel log", self.line_with(text)?.text.clone()))
    }
}

fn is_kept(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    KEPT.iter().any(|part| text.contains(part)) && !LEFT_OUT.iter().any(|part| text.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_matter() {
        for line in [
            "AMD-Vi: Virtual APIC enabled",
            "AMD-Vi: Interrupt remapping enabled",
            "DMAR-IR: Enabled IRQ remapping in x2apic mode",
            "kvm_amd: AVIC enabled",
            "SVM: x2AVIC enabled",
            "x2apic enabled",
            "WARNING: CPU: 3 PID: 9 at arch/x86/kvm/svm/avic.c:1000",
            "Kernel is locked down from EFI Secure Boot; see man kernel_lockdown.7",
        ] {
            assert!(is_kept(line), "{line}");
        }
        for line in [
            "Command line: kvm_amd.avic=1 password=x",
            "usb 1-1: new device",
            "ACPI: LAPIC_NMI (acpi_id[0xff]",
        ] {
            assert!(!is_kept(line), "{line}");
        }
    }
}
