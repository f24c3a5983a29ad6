//! The parts of `/proc/cpuinfo` that describe a CPU and its virtualization.

use exits::Isa;
use serde::{Deserialize, Serialize};

/// A processor: the first one of `/proc/cpuinfo`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// `vendor_id`: GenuineIntel, AuthenticAMD, ...
    pub vendor: Option<String>,
    /// `model name`.
    pub name: Option<String>,
    /// `cpu family`.
    pub family: Option<u32>,
    /// `model`.
    pub model: Option<u32>,
    /// `stepping`.
    pub stepping: Option<u32>,
    /// `microcode`, as printed (`0xb000040`).
    pub microcode: Option<String>,
    /// CPUID announces a hypervisor (flag `hypervisor`); `None` without a flags line.
    pub hypervisor: Option<bool>,
    /// The flags of the `flags` line that concern virtualization and interrupts, in the kernel's order.
    pub flags: Vec<String>,
    /// The `vmx flags` line (Linux 5.6 and later on Intel).
    pub vmx_flags: Option<String>,
}

/// The flags to keep, on virtualization and APIC modes (`arch/x86/include/asm/cpufeatures.h`).
const KEPT_FLAGS: &[&str] = &[
    "vmx",
    "svm",
    "avic",
    "x2avic",
    "vgif",
    "vnmi",
    "npt",
    "nrip_save",
    "decodeassists",
    "pausefilter",
    "pfthreshold",
    "sev",
    "sev_es",
    "sev_snp",
    "x2apic",
    "tsc_deadline_timer",
    "constant_tsc",
    "nonstop_tsc",
    "arat",
    "idle_hlt",
    "bus_lock_threshold",
];

impl Cpu {
    /// Parses the first processor's paragraph. Unknown lines are ignored.
    pub(crate) fn parse(cpuinfo: &str) -> Option<Self> {
        let first = cpuinfo.split("\n\n").find(|paragraph| paragraph.contains(':'))?;
        let field = |name: &str| {
            first.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            })
        };
        let number = |name: &str| field(name).and_then(|value| value.parse().ok());
        let flags = field("flags");
        Some(Self {
            vendor: field("vendor_id"),
            name: field("model name"),
            family: number("cpu family"),
            model: number("model"),
            stepping: number("stepping"),
            microcode: field("microcode"),
            hypervisor: flags.as_deref().map(|line| has_word(line, "hypervisor")),
            flags: flags
                .iter()
                .flat_map(|line| line.split_whitespace())
                .filter(|flag| KEPT_FLAGS.contains(flag))
                .map(str::to_owned)
                .collect(),
            vmx_flags: field("vmx flags"),
        })
    }

    /// Tests whether the `flags` line contains this word (one of those kept).
    #[must_use]
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|kept| kept == flag)
    }

    /// The instruction set, by its flag, or else by its vendor.
    #[must_use]
    pub fn isa(&self) -> Option<Isa> {
        if self.has("svm") {
            Some(Isa::Svm)
        } else if self.has("vmx") {
            Some(Isa::Vmx)
        } else {
            self.vendors_isa()
        }
    }

    /// The instruction set of its vendor, even if firmware or a hypervisor hides the flag.
    #[must_use]
    pub fn vendors_isa(&self) -> Option<Isa> {
        match self.vendor.as_deref()? {
            // The kernel prints the last one with blanks, which are not kept.
            "GenuineIntel" | "CentaurHauls" | "Shanghai" => Some(Isa::Vmx),
            "AuthenticAMD" | "HygonGenuine" => Some(Isa::Svm),
            _ => None,
        }
    }

    /// Tests whether the `vmx flags` line contains this word; `None` without the line.
    #[must_use]
    pub fn has_vmx(&self, flag: &str) -> Option<bool> {
        self.vmx_flags.as_deref().map(|line| has_word(line, flag))
    }
}

fn has_word(line: &str, word: &str) -> bool {
    line.split_whitespace().any(|candidate| candidate == word)
}

/// The number of processors in the file.
pub(crate) fn processors(cpuinfo: &str) -> u32 {
    let count = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) const INTEL: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\n\
        model name\t: Xeon: Ice Lake\nstepping\t: 6\nmicrocode\t: 0xd0003b9\n\
        flags\t\t: fpu vmx x2apic hypervisor\nvmx flags\t: vnmi posted_intr apicv vapic_reg vid\n\n\
        processor\t: 1\nvendor_id\t: GenuineIntel\n";

    #[test]
    fn the_first_processor() {
        let cpu = Cpu::parse(INTEL).unwrap();
        assert_eq!(cpu.name.as_deref(), Some("Xeon: Ice Lake"));
        assert_eq!((cpu.family, cpu.model, cpu.stepping), (Some(6), Some(106), Some(6)));
        assert_eq!(cpu.flags, ["vmx", "x2apic"]);
        assert_eq!(cpu.hypervisor, Some(true));
        assert_eq!(cpu.has_vmx("vid"), Some(true));
        assert_eq!(cpu.has_vmx("vi"), Some(false));
        assert_eq!(processors(INTEL), 2);
    }

    #[test]
    fn a_vendor_has_one_instruction_set() {
        let isa = |vendor: &str| Cpu::parse(&format!("vendor_id\t: {vendor}\n")).unwrap().vendors_isa();
        assert_eq!(["GenuineIntel", "CentaurHauls", "  Shanghai  "].map(isa), [Some(Isa::Vmx); 3]);
        assert_eq!(["AuthenticAMD", "HygonGenuine"].map(isa), [Some(Isa::Svm); 2]);
        assert_eq!(isa("other"), None);
    }

    #[test]
    fn an_empty_file_is_no_processor() {
        assert_eq!(Cpu::parse(""), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z_: \t\n]{0,200}") {
            let _ = Cpu::parse(&text);
        }
    }
}
