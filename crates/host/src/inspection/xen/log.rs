//! Xen's own log, which `xl dmesg` prints.

/// Messages of Xen's own log on virtualization.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XenLog {
    /// Features that Xen lists under "VMX: Supported advanced features" or "SVM: Supported advanced
    /// features", without the dash (`xen/arch/x86/hvm/vmx/vmcs.c`, `vmx_display_features`;
    /// `xen/arch/x86/hvm/svm/svm.c`, `start_svm`).
    pub features: Vec<String>,
    /// Lines about HVM, IOMMUs, APICs and interrupts, oldest first.
    pub lines: Vec<String>,
    /// The rest of the last line that begins with "Intel VT-d Posted Interrupt": "enabled", "not enabled"
    /// (`xen/drivers/passthrough/vtd/iommu.c`, `vtd_setup`) or, later, "is disabled for ..."
    /// (`xen/arch/x86/hvm/vmx/vmcs.c`, `vmx_init_vmcs_config`).
    pub posted_interrupts: Option<String>,
    /// An IOMMU is used: "I/O virtualisation enabled" (`xen/drivers/passthrough/iommu.c`, `iommu_setup`).
    pub iommu: Option<bool>,
    /// The IOMMU remaps interrupts: "Interrupt remapping enabled", printed if there is an IOMMU.
    pub interrupt_remapping: Option<bool>,
}

/// Lines that contain one of these, in lower case, are kept.
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
/// The largest number of lines to keep.
const MOST_LINES: usize = 1000;

impl XenLog {
    pub(super) fn parse(text: &str) -> Self {
        let mut found = Self::default();
        let mut in_features = false;
        for line in text.lines() {
            // Times may be before or after the mark.
            let line = without_time(line);
            // A guest's own text (`guest_printk` of xen/drivers/char/console.c).
            if line.starts_with("(d") {
                continue;
            }
            let line = without_time(line.strip_prefix("(XEN)").unwrap_or(line)).trim_end();
            if let Some(feature) = line.strip_prefix("- ").filter(|_| in_features) {
                if feature != "none" {
                    found.features.push(feature.to_owned());
                }
                continue;
            }
            in_features = line.ends_with("Supported advanced features:");
            match line {
                "I/O virtualisation enabled" => found.iommu = Some(true),
                "I/O virtualisation disabled" => found.iommu = Some(false),
                "Interrupt remapping enabled" => found.interrupt_remapping = Some(true),
                "Interrupt remapping disabled" => found.interrupt_remapping = Some(false),
                _ => {}
            }
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

    /// Tests whether Xen lists a feature whose name starts with this text: `Virtual Interrupt Delivery`.
    #[must_use]
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|one| one.starts_with(feature))
    }
}

/// A line without blanks and a time in brackets at its start.
fn without_time(line: &str) -> &str {
    let line = line.trim_start();
    let behind = line.strip_prefix('[').and_then(|line| line.split_once(']'));
    behind.map_or(line, |(_, line)| line.trim_start())
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
            // A guest can print anything.
            for guest in [
                "(d12) ",
                "(d12) (XEN) ",
                "(d12) [0000000fcbe6d1f6] (XEN) ",
                "[2020-12-24 08:34:49] (d1) (XEN) ",
            ] {
                let said = [
                    "Intel VT-d Posted Interrupt enabled.",
                    "Interrupt remapping enabled",
                    "SVM: Supported advanced features:",
                    " - AVIC",
                ];
                let said: String = said.iter().map(|line| format!("{guest}{line}\n")).collect();
                assert_eq!(XenLog::parse(&said), XenLog::default(), "{guest}");
                assert_eq!(XenLog::parse(&format!("{text}{said}")), log, "{before}{guest}");
            }
            assert_eq!(log.features.len(), 3, "{before}");
            assert!(log.has("Virtual Interrupt Delivery") && !log.has("APIC TPR shadow"));
            assert_eq!(log.posted_interrupts.as_deref(), Some("not enabled"));
            assert!(log.lines.contains(&"HVM: VMX enabled".to_owned()));
        }
        assert!(
            XenLog::parse("(XEN) SVM: Supported advanced features:\n(XEN)  - none\n").features.is_empty()
        );
    }

    // The texts are those of RELEASE-4.20.0: xen/drivers/passthrough/iommu.c, iommu_setup, and vtd/iommu.c, vtd_setup.
    #[test]
    fn iommus_of_both_vendors_say_whether_they_remap() {
        let log = |text: &str| {
            let log = XenLog::parse(text);
            (log.iommu, log.interrupt_remapping)
        };
        let amd = "(XEN) AMD-Vi: IOMMU 0 Enabled.\n(XEN) I/O virtualisation enabled\n(XEN)  - Dom0 mode: Relaxed\n\
            (XEN) Interrupt remapping enabled\n";
        assert_eq!(log(amd), (Some(true), Some(true)));
        let intel = "(XEN) Intel VT-d Interrupt Remapping not enabled.\n(XEN) I/O virtualisation enabled\n\
            (XEN) Interrupt remapping disabled\n";
        assert_eq!(log(intel), (Some(true), Some(false)));
        assert_eq!(log("(XEN) I/O virtualisation disabled\n"), (Some(false), None));
        assert_eq!(log("(XEN) Brought up 2 CPUs\n"), (None, None));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[A-Za-z:()\\[\\] \\-\n]{0,100}") {
            let _ = XenLog::parse(&text);
        }
    }
}
