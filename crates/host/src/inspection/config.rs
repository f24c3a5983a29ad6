//! The kernel's configuration.

use crate::root::understood;
use crate::{AbsenceKind, Fact, Root};
use std::collections::BTreeMap;
use std::io::Read as _;

/// The state of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionState {
    /// `=y`.
    BuiltIn,
    /// `=m`.
    Module,
    /// `is not set`, or absent.
    Off,
    /// Another value: a number or a text.
    Value(String),
}

/// The options that concern virtualization, interrupts, idling and tracing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelConfig {
    /// The file (`/proc/config.gz`, `/boot/config-RELEASE`, `/lib/modules/RELEASE/config`).
    pub file: String,
    /// Options with their values, without `CONFIG_`; options that are not set are omitted.
    pub options: BTreeMap<String, String>,
}

impl KernelConfig {
    /// The state of an option, with or without `CONFIG_`. Only options of these areas are kept: KVM, IOMMUs,
    /// VFIO, vhost, APIC, Xen, Hyper-V, lockdown, preemption, timers, tracing and debugfs.
    #[must_use]
    pub fn option(&self, name: &str) -> OptionState {
        match self.options.get(name.strip_prefix("CONFIG_").unwrap_or(name)).map(String::as_str) {
            Some("y") => OptionState::BuiltIn,
            Some("m") => OptionState::Module,
            Some(value) => OptionState::Value(value.to_owned()),
            None => OptionState::Off,
        }
    }
}

/// The prefixes of the options to keep: about a hundred of about ten thousand options.
const KEPT: &[&str] = &[
    "KVM",
    "HAVE_KVM",
    "VIRTUALIZATION",
    "VHOST",
    "VFIO",
    "VIRTIO",
    "IOMMU",
    "AMD_IOMMU",
    "INTEL_IOMMU",
    "IRQ_REMAP",
    "IRQ_BYPASS",
    "X86_X2APIC",
    "X86_POSTED_MSI",
    "X86_MSR",
    "X86_CPUID",
    "X86_64",
    "XEN",
    "HYPERV",
    "PARAVIRT",
    "HYPERVISOR_GUEST",
    "PREEMPT",
    "HZ",
    "NO_HZ",
    "HIGH_RES_TIMERS",
    "CPU_IDLE",
    "CPU_FREQ_DEFAULT",
    "CPU_ISOLATION",
    "HALTPOLL",
    "SECURITY_LOCKDOWN",
    "LOCK_DOWN",
    "DEBUG_FS",
    "DEBUG_INFO_BTF",
    "FTRACE",
    "TRACEPOINTS",
    "TRACING",
    "BPF",
    "PERF_EVENTS",
    "MODULES",
    "MICROCODE",
    "NR_CPUS",
    "MAXSMP",
    "NUMA",
    "IKCONFIG",
    "SCHED_CORE",
    "CGROUPS",
    "CPUSETS",
    "MITIGATION",
    "CPU_MITIGATIONS",
    "HUGETLB",
    "TRANSPARENT_HUGEPAGE",
    "AMD_MEM_ENCRYPT",
    "INTEL_TDX",
];
/// The limit of an unpacked configuration, in bytes; typical ones have about 300 KiB.
const LONGEST: u64 = 8 << 20;

impl KernelConfig {
    /// Reads the configuration from the kernel itself, or else from the places where distributions install
    /// it.
    pub(super) fn read(root: &Root, release: Option<&str>) -> Fact<Self> {
        let own = "/proc/config.gz";
        if let Ok(bytes) = root.read(own) {
            let mut text = Vec::new();
            // Ignore the error: the part before the damage is usable.
            let _ = flate2::read::GzDecoder::new(bytes.as_slice()).take(LONGEST).read_to_end(&mut text);
            return Self::fact(own, Fact::known(String::from_utf8_lossy(&text).into_owned(), own, ""));
        }
        let Some(release) = release.filter(|release| !release.contains('/')) else {
            return Fact::absent(
                AbsenceKind::NotThere,
                format!("there is no {own}, and the release is unknown"),
            );
        };
        let places = [
            format!("/boot/config-{release}"),
            format!("/lib/modules/{release}/config"),
            format!("/usr/lib/modules/{release}/config"),
        ];
        for path in &places {
            let line = root.line(path, "lines such as CONFIG_KVM=m");
            if line.value.is_ok() {
                return Self::fact(path, line);
            }
        }
        Fact::absent(AbsenceKind::NotThere, format!("neither {own} nor {} is there", places.join(" nor ")))
    }

    fn fact(path: &str, text: Fact<String>) -> Fact<Self> {
        let mut found = understood(text, path, "lines such as CONFIG_KVM=m", |text| {
            let options = parse(text);
            (!options.is_empty()).then(|| Self { file: path.to_owned(), options })
        });
        // The whole file is too long as evidence; a rule quotes the option.
        found.evidence.clear();
        found
    }
}

fn parse(text: &str) -> BTreeMap<String, String> {
    let option = |line: &str| {
        let (name, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
        let kept = KEPT.iter().any(|beginning| name.starts_with(beginning));
        kept.then(|| (name.to_owned(), value.trim().trim_matches('"').to_owned()))
    };
    text.lines().filter_map(option).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_areas_kept() {
        let text = "# CONFIG_KVM_XEN is not set\nCONFIG_KVM=m\nCONFIG_KVM_AMD=y\nCONFIG_NR_CPUS=8192\n\
            CONFIG_LOCALVERSION=\"-x\"\nCONFIG_HZ=250\nodd\n";
        let config = KernelConfig { file: String::new(), options: parse(text) };
        assert_eq!(config.option("KVM"), OptionState::Module);
        assert_eq!(config.option("CONFIG_KVM_AMD"), OptionState::BuiltIn);
        assert_eq!(config.option("KVM_XEN"), OptionState::Off);
        assert_eq!(config.option("NR_CPUS"), OptionState::Value("8192".to_owned()));
        assert_eq!(config.option("LOCALVERSION"), OptionState::Off);
    }
}
