//! IOMMUs: their features, and the remapping of interrupts.

use super::interrupt::Interrupts;
use crate::root::{hexadecimal, kind_of};
use crate::{AbsenceKind, Fact, Root};

/// The IOMMUs of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Iommus {
    /// The IOMMUs with a kernel driver, by name; empty if there are none or they are off.
    pub units: Vec<IommuUnit>,
    /// The number of groups in `/sys/kernel/iommu_groups`; 0 if DMA is not remapped.
    pub groups: Fact<u32>,
    /// The firmware's tables on IOMMUs.
    pub tables: AcpiTables,
    /// True if device interrupts are remapped: the names of their chips in `/proc/interrupts` start with
    /// `IR-` (chips of Hyper-V and Xen do not count). `Ok(false)` if there are device interrupts and none is
    /// remapped.
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
    /// Its registers.
    pub registers: IommuRegisters,
}

/// The registers in sysfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IommuRegisters {
    /// AMD's extended feature register.
    Amd(Fact<AmdFeatures>),
    /// Intel's capability and extended capability registers.
    Intel(Fact<IntelCapabilities>),
    /// Another IOMMU (virtio-iommu), without registers in sysfs.
    Other,
}

/// The extended feature register (AMD I/O Virtualization Technology specification, MMIO offset 30h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AmdFeatures {
    /// The register.
    pub value: u64,
    /// The second register (offset 1A0h), which Linux 6.1 and later print too, separated by a colon.
    pub second: Option<u64>,
    /// XTSup, bit 2: interrupts can be remapped to x2APIC.
    pub x2apic: bool,
    /// GASup, bit 7: guest virtual APIC.
    pub guest_apic: bool,
    /// GAMSup, bits 23:21: 1 if the guest virtual APIC can be used for posting.
    pub guest_apic_modes: u8,
    /// PPRSup, bit 1.
    pub page_requests: bool,
    /// GTSup, bit 4: guest translation.
    pub guest_translation: bool,
    /// SNPSup, bit 63.
    pub secure_nested_paging: bool,
    /// SNPAVICSup of the second register, bits 7:5: support of AVIC while SNP is on; 1 if supported.
    pub snp_avic: Option<u8>,
}

impl AmdFeatures {
    /// Tests whether it can post device interrupts to vCPUs (specification, table 21;
    /// `drivers/iommu/amd/init.c`, `FEATURE_GAM_VAPIC`).
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
    /// The extended capability register; `None` if it could not be read.
    pub extended: Option<u64>,
    /// Posted interrupts, bit 59 of the capability register.
    pub posts: bool,
    /// Interrupt remapping, bit 3 of the extended register.
    pub interrupt_remapping: Option<bool>,
    /// Extended interrupt mode (x2APIC), bit 4 of the extended register.
    pub extended_interrupts: Option<bool>,
}

const UNITS: &str = "/sys/class/iommu";
const GROUPS: &str = "/sys/kernel/iommu_groups";
const TABLES: &str = "/sys/firmware/acpi/tables";

impl Iommus {
    pub(super) fn read(root: &Root, interrupts: &Interrupts) -> Self {
        let names = root.entries(UNITS, |_| true).unwrap_or_default();
        Self {
            units: names.into_iter().map(|name| IommuUnit::read(root, name)).collect(),
            groups: groups(root),
            tables: AcpiTables { ivrs: table(root, "IVRS"), dmar: table(root, "DMAR") },
            remapped: interrupts.remapped.part(|&(remapped, _)| remapped > 0),
        }
    }
}

fn groups(root: &Root) -> Fact<u32> {
    let names = root.entries(GROUPS, |_| true);
    match names {
        Ok(names) => {
            let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
            Fact::known(
                count,
                GROUPS,
                if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") },
            )
        }
        Err(error) => Fact::absent(kind_of(&error), format!("{GROUPS} cannot be listed: {error}")),
    }
}

fn table(root: &Root, name: &str) -> Fact<bool> {
    let path = format!("{TABLES}/{name}");
    if !root.is_directory(TABLES) {
        return Fact::absent(AbsenceKind::NotThere, format!("there is no {TABLES}"));
    }
    let there = root.exists(&path);
    Fact::known(there, path, if there { "there" } else { "not there" })
}

impl IommuUnit {
    fn read(root: &Root, name: String) -> Self {
        let home = format!("{UNITS}/{name}");
        let registers = if root.is_directory(&format!("{home}/amd-iommu")) {
            IommuRegisters::Amd(root.fact(
                &format!("{home}/amd-iommu/features"),
                "the extended feature register in hexadecimal",
                AmdFeatures::parse,
            ))
        } else if root.is_directory(&format!("{home}/intel-iommu")) {
            let register = |name: &str| {
                root.fact(&format!("{home}/intel-iommu/{name}"), "a register in hexadecimal", hexadecimal)
            };
            let (capability, extended) = (register("cap"), register("ecap"));
            let extended_value = extended.get().copied();
            let mut found = capability.map(|value| IntelCapabilities::of(value, extended_value));
            found.evidence.extend(extended.evidence);
            IommuRegisters::Intel(found)
        } else {
            IommuRegisters::Other
        };
        Self { name, registers }
    }
}

impl AmdFeatures {
    /// Parses all formats of sysfs: the register alone; since Linux 6.1 the second one, a colon, and the
    /// first; since 6.7 in the reverse order (`drivers/iommu/amd/init.c`, `amd_iommu_show_features`,
    /// 7b7563a93437). The first has high bits set on all processors with AVIC, the second only a few low
    /// bits, so the greater one is the first.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (second, first) = match text.split_once(':') {
            Some((one, other)) => {
                let (one, other) = (hexadecimal(one)?, hexadecimal(other)?);
                (Some(one.min(other)), one.max(other))
            }
            None => (None, hexadecimal(text)?),
        };
        let bit = |bit: u32| first & 1 << bit != 0;
        Some(Self {
            value: first,
            second,
            x2apic: bit(2),
            guest_apic: bit(7),
            guest_apic_modes: (first >> 21 & 0b111) as u8,
            page_requests: bit(1),
            guest_translation: bit(4),
            secure_nested_paging: bit(63),
            snp_avic: second.map(|second| (second >> 5 & 0b111) as u8),
        })
    }
}

impl IntelCapabilities {
    pub(crate) fn of(capability: u64, extended: Option<u64>) -> Self {
        Self {
            capability,
            extended,
            posts: capability & 1 << 59 != 0,
            interrupt_remapping: extended.map(|value| value & 1 << 3 != 0),
            extended_interrupts: extended.map(|value| value & 1 << 4 != 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_formats_of_the_feature_register() {
        let plain = AmdFeatures::parse("25bf732fa2295afe\n").unwrap();
        assert!(plain.guest_apic && plain.x2apic && plain.posts());
        assert_eq!((plain.guest_apic_modes, plain.second), (1, None));
        let both = AmdFeatures::parse("0x25:25bf732fa2295afe").unwrap();
        assert_eq!((both.value, both.second, both.snp_avic), (plain.value, Some(0x25), Some(1)));
        assert_eq!(AmdFeatures::parse("25bf732fa2295afe:25"), Some(both), "since Linux 6.7");
        for wrong in ["", "x", "1:2:3", ":1", "+1", "25bf732fa2295afe0"] {
            assert_eq!(AmdFeatures::parse(wrong), None, "{wrong}");
        }
        assert!(!AmdFeatures::parse("80").unwrap().posts(), "GASup without GAMSup");
        assert!(!AmdFeatures::parse("200000").unwrap().posts(), "GAMSup without GASup");
    }

    #[test]
    fn bits_of_intels_registers() {
        let found = IntelCapabilities::of(0x08d2_078c_106f_0466, Some(0x00f0_20df));
        assert!(found.posts);
        assert_eq!((found.interrupt_remapping, found.extended_interrupts), (Some(true), Some(true)));
        let found = IntelCapabilities::of(0x00d2_078c_106f_0466, None);
        assert!(!found.posts && found.interrupt_remapping.is_none());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9a-fx:+ ]{0,40}") {
            let _ = AmdFeatures::parse(&text);
        }
    }
}
