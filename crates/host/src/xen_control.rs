//! Facts for programs that observe Xen's guests from the control domain.

use std::collections::BTreeMap;

use exits::Isa;

use crate::xen_domains::XenDomain;
use crate::{Cpu, Fact, Root};

/// Xen, seen from its control domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XenControl {
    /// The TSC frequency in Hz: `cpu_mhz` of `xl info`, which has three decimals.
    pub tsc_hz: Option<u64>,
    /// The instruction set of its exits, from the processor's vendor.
    pub isa: Option<Isa>,
    /// Xen's version (`xen_version` of `xl info`).
    pub version: Option<String>,
    /// Xen's own command line (`xen_commandline` of `xl info`).
    pub command_line: Option<String>,
    /// Xen uses an IOMMU, so devices can be assigned to guests (`virt_caps` of `xl info`).
    pub iommu: Option<bool>,
}

impl XenControl {
    /// Tests whether this is a control domain: `/proc/xen/capabilities` has `control_d`.
    #[must_use]
    pub fn is_here(root: &Root) -> bool {
        let capabilities = root.text("/proc/xen/capabilities", "control_d in the control domain");
        capabilities.is_ok_and(|text| text.split_whitespace().any(|word| word == "control_d"))
    }

    /// Reads the facts; `None` if this is not a control domain.
    #[must_use]
    pub fn read(root: &Root) -> Option<Self> {
        if !Self::is_here(root) {
            return None;
        }
        let info = root.command("xl info").map(|text| XenInfo::parse(&text));
        let field = |name: &str| info.get().and_then(|info| info.field(name));
        let cpuinfo = root.text("/proc/cpuinfo", "a list of processors").ok();
        let cpu = cpuinfo.and_then(|text| Cpu::parse(&text));
        Some(Self {
            tsc_hz: field("cpu_mhz").and_then(hertz),
            isa: cpu.and_then(|cpu| cpu.vendors_isa()),
            version: field("xen_version").map(str::to_owned),
            command_line: field("xen_commandline").map(str::to_owned),
            iommu: field("virt_caps").map(|caps| caps.contains("directio")),
        })
    }

    /// The current domains.
    #[must_use]
    pub fn domains(root: &Root) -> Fact<Vec<XenDomain>> {
        root.command("xl list").map(|text| XenDomain::list(&text).collect())
    }

    /// The names of the current domains by ID; empty if `xl` cannot be run.
    #[must_use]
    pub fn domain_names(root: &Root) -> BTreeMap<u32, String> {
        let domains = Self::domains(root).value.unwrap_or_default();
        domains.into_iter().map(|domain| (domain.id, domain.name)).collect()
    }
}

/// The output of `xl info`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XenInfo {
    /// All fields by name: `xen_version`, `virt_caps`, `xen_commandline`, `xen_scheduler`, `nr_cpus`, ...
    pub fields: BTreeMap<String, String>,
}

impl XenInfo {
    pub(crate) fn parse(text: &str) -> Self {
        let field = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.trim().to_owned(), value.trim().to_owned()))
        };
        Self { fields: text.lines().filter_map(field).collect() }
    }

    /// The value of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

/// Converts a frequency in MHz, such as `2095.075`, to Hz.
fn hertz(mhz: &str) -> Option<u64> {
    let mhz: f64 = mhz.parse().ok()?;
    let hz = (mhz * 1e6).round();
    // No processor has a frequency of zero or above the bound.
    (1.0..1e12).contains(&hz).then_some(hz as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control_domain(capabilities: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("proc/xen/capabilities", capabilities),
            ("proc/cpuinfo", "processor\t: 0\nvendor_id\t: AuthenticAMD\n"),
            (
                "exitless/commands/xl-info",
                "xen_version            : 4.20.4\ncpu_mhz                : 2095.075\n\
                 virt_caps              : pv hvm hvm_directio pv_directio hap\n",
            ),
            (
                "exitless/commands/xl-list",
                "Name       ID   Mem VCPUs\tState\tTime(s)\nDomain-0    0   832     2     r-----      9.1\n\
                 my vm       3   256     1     -b----       1.0\n",
            ),
        ];
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_control_domain_is_known_with_its_clock_and_its_domains() {
        let folder = control_domain("control_d\n");
        let root = Root::directory(folder.path());
        let expected = XenControl {
            tsc_hz: Some(2_095_075_000),
            isa: Some(Isa::Svm),
            version: Some("4.20.4".to_owned()),
            command_line: None,
            iommu: Some(true),
        };
        assert!(XenControl::is_here(&root));
        assert_eq!(XenControl::read(&root), Some(expected));
        let names = BTreeMap::from([(0, "Domain-0".to_owned()), (3, "my vm".to_owned())]);
        assert_eq!(XenControl::domain_names(&root), names);
    }

    #[test]
    fn a_guest_of_xen_and_a_host_without_it_are_none() {
        let guest = control_domain("\n");
        assert_eq!(XenControl::read(&Root::directory(guest.path())), None);
        assert!(!XenControl::is_here(&Root::directory(guest.path())));
        let without = tempfile::tempdir().unwrap();
        assert_eq!(XenControl::read(&Root::directory(without.path())), None);
    }

    #[test]
    fn no_frequency_is_made_of_nonsense() {
        assert_eq!(hertz("2095.075"), Some(2_095_075_000));
        for text in ["", "0", "-1", "nan", "inf", "1e30"] {
            assert_eq!(hertz(text), None, "{text}");
        }
    }
}
