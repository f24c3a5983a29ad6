//! Xen, where it is below.

use super::arguments::Arguments;
use crate::{AbsenceKind, Evidence, Fact, Root};
use std::collections::BTreeMap;

/// Xen as its guest sees it, and as its control domain does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Xen {
    /// Whether this is the control domain: `/proc/xen/capabilities` says `control_d`.
    pub control: Fact<bool>,
    /// `/sys/hypervisor/guest_type`: `PV`, `PVH`, `HVM`.
    pub guest_type: Fact<String>,
    /// `/sys/hypervisor/version/{major,minor,extra}`, joined: `4.17.5`.
    pub version: Fact<String>,
    /// `xl info`.
    pub info: Fact<XenInfo>,
    /// `xl dmesg`.
    pub log: Fact<XenLog>,
    /// `xl list`.
    pub domains: Fact<Vec<XenDomain>>,
}

/// What `xl info` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XenInfo {
    /// All of it, name to value: `xen_version`, `virt_caps`, `xen_commandline`, `xen_scheduler`, `nr_cpus`, ...
    pub fields: BTreeMap<String, String>,
}

/// What Xen's own log says of virtualization.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XenLog {
    /// What Xen lists under "VMX: Supported advanced features" or "SVM: Supported advanced features", without the dash
    /// (`xen/arch/x86/hvm/vmx/vmcs.c`, `vmx_display_features`; `xen/arch/x86/hvm/svm/svm.c`, `start_svm`).
    pub features: Vec<String>,
    /// Lines of the log that concern HVM, IOMMUs, APICs and interrupts, oldest first.
    pub lines: Vec<String>,
    /// "Intel VT-d Posted Interrupt supported" or "enabled" and its like: the word after it.
    pub posted_interrupts: Option<String>,
}

/// A domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XenDomain {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u32,
    /// vCPUs.
    pub vcpus: u32,
    /// State letters (`r-----`).
    pub state: String,
}

impl Xen {
    /// `None` where no Xen is below.
    pub(super) fn read(root: &Root, hypervisor: &Fact<Option<String>>) -> Option<Self> {
        let named = root.text("/sys/hypervisor/type", "a hypervisor's name").is_ok_and(|name| name == "xen");
        let by_cpuid = matches!(hypervisor.get(), Some(Some(name)) if name == "XenVMMXenVMM");
        let control = root.line("/proc/xen/capabilities", "control_d in the control domain");
        if !named && !by_cpuid && control.value.is_err() {
            return None;
        }
        let control = control.map(|text| text.split_whitespace().any(|word| word == "control_d"));
        let ask = |line: &str| match control.get() {
            Some(true) => root.command(line),
            _ => Fact::absent(
                AbsenceKind::NotApplicable,
                format!("`{line}` works in Xen's control domain alone"),
            ),
        };
        Some(Self {
            guest_type: root.line("/sys/hypervisor/guest_type", "a kind such as PV"),
            version: version(root),
            info: ask("xl info").map(|text| XenInfo::parse(&text)),
            log: ask("xl dmesg").map(|text| XenLog::parse(&text)),
            domains: ask("xl list").map(|text| text.lines().filter_map(XenDomain::parse).collect()),
            control,
        })
    }
}

fn version(root: &Root) -> Fact<String> {
    let home = "/sys/hypervisor/version";
    let part = |name: &str| root.line(&format!("{home}/{name}"), "a number");
    let major = part("major");
    let (minor, extra) = (part("minor"), part("extra"));
    let mut found = major.map(|major| {
        let minor = minor.get().map(|minor| format!(".{minor}")).unwrap_or_default();
        format!("{major}{minor}{}", extra.get().map_or("", String::as_str))
    });
    if let Ok(text) = &found.value {
        found.evidence = vec![Evidence::new(home, text.clone())];
    }
    found
}

impl XenInfo {
    pub(crate) fn parse(text: &str) -> Self {
        let field = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.trim().to_owned(), value.trim().to_owned()))
        };
        Self { fields: text.lines().filter_map(field).collect() }
    }

    /// One field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// Xen's own command line (`xen_commandline`), where `apicv=`, `iommu=` and `x2apic=` are.
    #[must_use]
    pub fn arguments(&self) -> Arguments {
        Arguments::parse(self.field("xen_commandline").unwrap_or_default())
    }
}

/// Parts of the log's lines that are kept, in lower case.
const KEPT: &[&str] = &[
    "vmx",
    "svm",
    "hvm",
    "apic",
    "iommu",
    "i/o virtualisation",
    "vt-d",
    "amd-vi",
    "interrupt",
    "posted",
    "scheduler",
    "dom0",
    "xen version",
    "command line",
    "shadow",
    "altp2m",
    "avic",
];
/// More lines than this are not kept.
const MOST_LINES: usize = 1000;

impl XenLog {
    fn parse(text: &str) -> Self {
        let mut found = Self::default();
        let mut in_features = false;
        for line in text.lines() {
            // Times may go before the mark, others after it.
            let line = line.split_once("(XEN)").map_or(line, |(_, line)| line);
            let line = line
                .trim_start()
                .strip_prefix('[')
                .and_then(|line| line.split_once(']'))
                .map_or(line, |(_, line)| line);
            let line = line.trim();
            if let Some(feature) = line.strip_prefix("- ").filter(|_| in_features) {
                if feature != "none" {
                    found.features.push(feature.to_owned());
                }
                continue;
            }
            in_features = line.ends_with("Supported advanced features:");
            if let Some(rest) = line.strip_prefix("Intel VT-d Posted Interrupt ") {
                found.posted_interrupts = Some(rest.trim_end_matches('.').trim().to_owned());
            }
            let lower = line.to_ascii_lowercase();
            if found.lines.len() < MOST_LINES && KEPT.iter().any(|part| lower.contains(part)) {
                found.lines.push(line.to_owned());
            }
        }
        found
    }

    /// Whether Xen lists a feature, by its beginning: `Virtual Interrupt Delivery`.
    #[must_use]
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|one| one.starts_with(feature))
    }
}

impl XenDomain {
    /// A line of `xl list`: `Name ID Mem VCPUs State Time(s)`. A name can have blanks.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut rest = line.trim_end();
        let mut last = || {
            let (before, word) = rest.rsplit_once(char::is_whitespace)?;
            rest = before.trim_end();
            Some(word)
        };
        let (_, state, vcpus, _, id) = (last()?, last()?, last()?, last()?, last()?);
        Some(Self {
            name: rest.to_owned(),
            id: id.parse().ok()?,
            vcpus: vcpus.parse().ok()?,
            state: state.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn features_and_posting_in_every_form_of_the_log() {
        for before in ["(XEN) ", "(XEN) [0000000fcbe6d1f6] ", "[2020-12-24 08:34:49] (XEN) ", ""] {
            let lines = [
                "Intel VT-d Posted Interrupt not enabled.",
                "VMX: Supported advanced features:",
                " - APIC MMIO access virtualisation",
                " - Virtual Interrupt Delivery",
                " - Posted Interrupt Processing",
                "HVM: VMX enabled",
                " - not one of them",
            ];
            let text: String = lines.iter().map(|line| format!("{before}{line}\n")).collect();
            let log = XenLog::parse(&text);
            assert_eq!(log.features.len(), 3, "{before}");
            assert!(log.has("Virtual Interrupt Delivery") && !log.has("APIC TPR shadow"));
            assert_eq!(log.posted_interrupts.as_deref(), Some("not enabled"));
            assert!(log.lines.contains(&"HVM: VMX enabled".to_owned()));
        }
        assert!(
            XenLog::parse("(XEN) SVM: Supported advanced features:\n(XEN)  - none\n").features.is_empty()
        );
    }

    #[test]
    fn domains_and_fields() {
        let list = "Name                ID   Mem VCPUs\tState\tTime(s)\n\
            Domain-0             0  4096     4     r-----      62.2\nmy vm                3   512     2     -b----       1.0\n";
        let found: Vec<_> = list.lines().filter_map(XenDomain::parse).collect();
        let told: Vec<_> =
            found.iter().map(|one| (one.name.as_str(), one.id, one.vcpus, one.state.as_str())).collect();
        assert_eq!(told, [("Domain-0", 0, 4, "r-----"), ("my vm", 3, 2, "-b----")]);
        let info =
            XenInfo::parse("xen_version : 4.17.5\nxen_commandline : placeholder apicv=0 iommu=no-intpost\n");
        assert_eq!(info.field("xen_version"), Some("4.17.5"));
        assert!(info.arguments().has_word("apicv", "0") && info.arguments().has_word("iommu", "no-intpost"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[A-Za-z:()\\[\\] \\-\n]{0,100}") {
            let _ = (XenLog::parse(&text), XenInfo::parse(&text), XenDomain::parse(&text));
        }
    }
}
