//! The facts about a host by which a definition is judged.

use exits::{Isa, KernelVersion};
use host::{Fingerprint, Inspection, Root, XenControl, XenDevice};
use serde::{Deserialize, Serialize};

/// The CPU's way of delivering interrupts to vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Technology {
    /// AMD's, for guests in xAPIC mode.
    Avic,
    /// AMD's, also for guests in x2APIC mode.
    X2Avic,
    /// Intel's.
    Apicv,
}

impl Technology {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Avic => "AVIC",
            Self::X2Avic => "x2AVIC",
            Self::Apicv => "APICv",
        }
    }
}

/// The facts that rules need about the host on which a VM is to run. `None` is unknown: the rule's text then covers
/// the possible cases.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSide {
    /// Its instruction set for virtualization.
    pub isa: Option<Isa>,
    /// Its kernel, as a mainline version.
    pub kernel: Option<KernelVersion>,
    /// The CPU's way of delivering interrupts.
    pub technology: Option<Technology>,
    /// True if KVM uses that technology (`enable_apicv`, `avic`).
    pub enabled: Option<bool>,
    /// True if IPIs between running vCPUs cause no exit (by `enable_ipiv` and the CPU).
    pub ipi_virtualization: Option<bool>,
    /// True if KVM allows nested guests (`nested`).
    pub nested: Option<bool>,
    /// The largest APIC ID for which interrupt virtualization works, if it differs from the technology's limit.
    pub largest_apic_id: Option<u32>,
    /// True if KVM counts the uses of AutoEOI (Linux 5.15). Before, the SynIC alone inhibits interrupt virtualization,
    /// and KVM does not know hv-avic.
    pub auto_eoi_counted: Option<bool>,
    /// True if Xen uses an IOMMU; only for a control domain of Xen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xen_iommu: Option<bool>,
    /// The PCI functions of the host, with those that `xl` can assign to a guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xen_devices: Option<Vec<XenDevice>>,
}

impl HostSide {
    /// The first kernel with inhibits (`APICV_INHIBIT_REASON_*`; 8df14af42f00). Before, AVIC needs a split irqchip
    /// (`svm_get_enable_apicv`), offering SVM and the PIT's ticks change nothing, and KVM hides x2APIC from guests with AVIC
    /// (`svm_cpuid_update`).
    pub(crate) const INHIBITS: KernelVersion = KernelVersion::new(5, 6);

    /// The side of any host with CPUs of a vendor.
    #[must_use]
    pub fn of_vendor(isa: Isa) -> Self {
        let technology = match isa {
            Isa::Vmx => Some(Technology::Apicv),
            // It may be AVIC or x2AVIC; the rules tell the difference.
            Isa::Svm => None,
        };
        Self { isa: Some(isa), technology, ..Self::default() }
    }

    /// The side of the host below `root`, with the facts that only a control domain of Xen has.
    ///
    /// # Errors
    /// Those of [`Inspection::read`].
    pub fn below(root: &Root) -> Result<Self, host::Error> {
        let (side, xen) = (Self::of(&Inspection::read(root)?), Self::of_xen(root));
        // Xen hides the processor's flags from the control domain.
        let isa = side.isa.or(xen.isa);
        Ok(Self { isa, xen_iommu: xen.xen_iommu, xen_devices: xen.xen_devices, ..side })
    }

    /// The facts that only a control domain of Xen has; all unknown on another host.
    #[must_use]
    pub fn of_xen(root: &Root) -> Self {
        let Some(xen) = XenControl::read(root) else { return Self::default() };
        Self { isa: xen.isa, xen_iommu: xen.iommu, xen_devices: XenDevice::all(root), ..Self::default() }
    }

    /// The side of the host with this fingerprint. A fingerprint has the kernel's version, but not a vendor's
    /// backports.
    pub(crate) fn of_fingerprint(host: &Fingerprint) -> Self {
        let cpu = host.cpu.as_ref();
        let has = |flag: &str| cpu.is_some_and(|cpu| cpu.has(flag));
        let isa = match () {
            () if has("svm") => Some(Isa::Svm),
            () if has("vmx") => Some(Isa::Vmx),
            () => None,
        };
        let parameter = |name: &str| {
            let module = if isa? == Isa::Svm { "kvm_amd" } else { "kvm_intel" };
            host::switch(host.parameter(module, name)?)
        };
        let (technology, switched_by) = match isa {
            Some(Isa::Svm) if has("x2avic") => (Some(Technology::X2Avic), "avic"),
            Some(Isa::Svm) if has("avic") => (Some(Technology::Avic), "avic"),
            Some(Isa::Svm) => (None, "avic"),
            _ => (
                cpu.and_then(|cpu| cpu.has_vmx("apicv")).filter(|&apicv| apicv).map(|_| Technology::Apicv),
                "enable_apicv",
            ),
        };
        Self {
            isa,
            kernel: host.kernel(),
            technology,
            enabled: parameter(switched_by),
            ipi_virtualization: parameter("enable_ipiv"),
            nested: parameter("nested"),
            largest_apic_id: None,
            auto_eoi_counted: None,
            xen_iommu: None,
            xen_devices: None,
        }
    }

    /// The name of the host's interrupt virtualization.
    pub(super) fn name(&self) -> &'static str {
        match (self.technology, self.isa) {
            (Some(technology), _) => technology.name(),
            (None, Some(Isa::Svm)) => "AVIC",
            (None, Some(Isa::Vmx)) => "APICv",
            (None, None) => "APICv or AVIC",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_host_with_x2avic_is_known_by_its_files() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/cpuinfo", "processor : 0\nvendor_id : AuthenticAMD\nflags : svm avic x2avic npt\n");
        write("proc/sys/kernel/osrelease", "6.12.107+deb13-amd64\n");
        write("sys/module/kvm_amd/parameters/avic", "Y\n");
        write("sys/module/kvm_amd/parameters/nested", "1\n");
        write("sys/module/kvm_amd/parameters/enable_ipiv", "N\n");
        let side = HostSide::of_fingerprint(&Fingerprint::read(root.path()).unwrap());
        let expected = HostSide {
            isa: Some(Isa::Svm),
            kernel: Some(KernelVersion::new(6, 12)),
            technology: Some(Technology::X2Avic),
            enabled: Some(true),
            ipi_virtualization: Some(false),
            nested: Some(true),
            ..HostSide::default()
        };
        assert_eq!(side, expected);
    }

    #[test]
    fn nothing_is_known_of_an_empty_root() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(HostSide::below(&Root::directory(root.path())).unwrap(), HostSide::default());
    }
}
