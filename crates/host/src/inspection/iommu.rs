//! IOMMUs: what they are able to, and whether interrupts go through them.

use crate::Fact;

/// The IOMMUs of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Iommus {
    /// Those that the kernel drives, by name; empty when there are none or they are off.
    pub units: Vec<IommuUnit>,
    /// How many groups there are in `/sys/kernel/iommu_groups`; 0 when DMA is not remapped.
    pub groups: Fact<u32>,
    /// Which tables the firmware gave.
    pub tables: AcpiTables,
    /// Whether device interrupts go through remapping: chips called `IR-` in `/proc/interrupts`, and those of Hyper-V
    /// and Xen not. `Ok(false)` when there are device interrupts and none is remapped.
    pub remapped: Fact<bool>,
}

/// Tables of the firmware that describe IOMMUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AcpiTables {
    /// `/sys/firmware/acpi/tables/IVRS`, AMD's.
    pub ivrs: Fact<bool>,
    /// `/sys/firmware/acpi/tables/DMAR`, Intel's.
    pub dmar: Fact<bool>,
}

/// One IOMMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IommuUnit {
    /// Its name in `/sys/class/iommu`: `ivhd0`, `dmar0`.
    pub name: String,
    /// What its registers say.
    pub registers: IommuRegisters,
}

/// The registers that sysfs shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IommuRegisters {
    /// AMD's, by the extended feature register.
    Amd(Fact<AmdFeatures>),
    /// Intel's, by the capability and extended capability registers.
    Intel(Fact<IntelCapabilities>),
    /// Another one (virtio-iommu), of which sysfs tells nothing.
    Other,
}

/// The extended feature register (AMD I/O Virtualization Technology specification, MMIO offset 30h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AmdFeatures {
    /// The register.
    pub value: u64,
    /// The second one (offset 1A0h), which Linux 6.1 and later put after the first and a colon.
    pub second: Option<u64>,
    /// XTSup, bit 2: interrupts can be remapped to x2APIC.
    pub x2apic: bool,
    /// GASup, bit 7: guest virtual APIC.
    pub guest_apic: bool,
    /// GAMSup, bits 23:21: 1 when the guest virtual APIC can be used for posting.
    pub guest_apic_modes: u8,
    /// PPRSup, bit 1.
    pub page_requests: bool,
    /// GTSup, bit 4: guest translation.
    pub guest_translation: bool,
    /// SNPSup, bit 63.
    pub secure_nested_paging: bool,
    /// SNPAVICSup of the second register, bits 7:5: how AVIC may be used while SNP is on; 1 when it may.
    pub snp_avic: Option<u8>,
}

impl AmdFeatures {
    /// Whether it can deliver device interrupts to vCPUs (specification, table 21; `drivers/iommu/amd/init.c`,
    /// `FEATURE_GAM_VAPIC`).
    #[must_use]
    pub fn posts(&self) -> bool {
        self.guest_apic && self.guest_apic_modes & 1 != 0
    }
}

/// The capability registers (Intel VT-d specification, 11.4.2 and 11.4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntelCapabilities {
    /// The capability register.
    pub capability: u64,
    /// The extended one; `None` when it could not be read.
    pub extended: Option<u64>,
    /// Posted interrupts, bit 59 of the capability register.
    pub posts: bool,
    /// Interrupt remapping, bit 3 of the extended one.
    pub interrupt_remapping: Option<bool>,
    /// Extended interrupt mode (x2APIC), bit 4 of the extended one.
    pub extended_interrupts: Option<bool>,
}
