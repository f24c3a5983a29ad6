//! The features and known faults of kernels: data, and how a release is judged by it.

use super::release::{Release, Tree};
use exits::Isa;
use std::cmp::Ordering;

/// One build of a vendor's tree: version and numbers after the dash.
pub type Build = ((u16, u16), &'static [u32]);

/// The kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Something that came with a release. Without it a host is worse off.
    Feature,
    /// Something that came with a release, which nothing has to be fixed for.
    Extra,
    /// A fault that went with a release.
    Bug,
}

/// One row.
#[derive(Debug)]
pub struct Row {
    /// The rule's stable name.
    pub rule: &'static str,
    /// Its subject, in a few words.
    pub title: &'static str,
    /// Feature or fault.
    pub kind: Kind,
    /// Whose CPUs it concerns; `None` for both.
    pub isa: Option<Isa>,
    /// The first mainline release with the feature, or without the fault.
    pub since: (u16, u16),
    /// A fault's first mainline release; of features nothing.
    pub from: (u16, u16),
    /// The last release candidate of [`Self::since`]'s version that still has a fault; `None` where none has.
    pub last_bad_candidate: Option<u16>,
    /// Stable releases that have the feature, or are without the fault: version and first patch level.
    pub stable: &'static [((u16, u16), u16)],
    /// Builds of Oracle's tree that have it; each counts for all later ones of the same version.
    pub uek: &'static [Build],
    /// The state without it.
    pub without: &'static str,
    /// The state with it.
    pub with: &'static str,
    /// Why it matters.
    pub why: &'static str,
    /// The source.
    pub source: &'static str,
}

/// UEK 7 update 2, which Oracle names as the first that has all of AVIC, x2AVIC and IOMMU AVIC as its guide describes.
const UEK7_U2: Build = ((5, 15), &[204, 146, 1]);

const fn feature(rule: &'static str, title: &'static str, since: (u16, u16)) -> Row {
    Row {
        rule,
        title,
        kind: Kind::Feature,
        isa: Some(Isa::Svm),
        since,
        from: (0, 0),
        last_bad_candidate: None,
        stable: &[],
        uek: &[],
        without: "",
        with: "",
        why: "",
        source: "",
    }
}

/// All rows.
pub const ROWS: &[Row] = &[
    Row {
        without: "KVM uses no AVIC",
        with: "KVM can use AVIC",
        why: "without AVIC the host handles every interrupt of a guest",
        source: "Linux arch/x86/kvm/svm.c, 3bbf3565f48c (4.7)",
        ..feature("kernel-avic", "AVIC in KVM", (4, 7))
    },
    Row {
        uek: &[UEK7_U2],
        without: "SynIC of Hyper-V inhibits interrupt virtualization, whether the guest uses AutoEOI or not",
        with: "SynIC inhibits only while the guest uses AutoEOI",
        why: "most Windows guests get SynIC for its timers",
        isa: None,
        source: "Linux arch/x86/kvm/hyperv.c, 0f250a646382 (5.15)",
        ..feature("kernel-autoeoi", "SynIC with interrupt virtualization", (5, 15))
    },
    Row {
        uek: &[UEK7_U2],
        without: "AVIC is inhibited for every guest that is offered SVM",
        with: "AVIC is inhibited only while a nested guest runs",
        why: "KVM offers SVM to guests by default, and -cpu host passes it on",
        source: "Linux arch/x86/kvm/svm/svm.c, f44509f849fe, merged for 5.19 (a4cfff3f0f8c)",
        ..feature("kernel-avic-nested", "AVIC with nested guests", (5, 19))
    },
    Row {
        uek: &[UEK7_U2],
        without: "guests that are offered x2APIC get no AVIC",
        with: "guests with x2APIC get x2AVIC, or AVIC for delivery only",
        why: "current guests use x2APIC wherever it is offered",
        source: "KVM changes for Linux 6.0: \"x2AVIC support for AMD\"; arch/x86/kvm/svm/avic.c, 0e311d33bfbe",
        ..feature("kernel-x2avic", "x2APIC guests on AVIC", (6, 0))
    },
    Row {
        uek: &[((5, 4), &[2136, 328, 1]), UEK7_U2],
        without: "each time a vCPU moves or halts, the IOMMU's interrupt table is flushed for its devices",
        with: "the fields that change when a vCPU is scheduled are not cached, and nothing is flushed",
        why: "if vCPUs halt often, flushing costs more than posting saves",
        source: "Linux drivers/iommu/amd/iommu.c, 57cdb720eaa5 (6.8); AMD I/O Virtualization Technology specification \
                 2.2.5.2",
        ..feature("kernel-irte-caching", "IOMMU's cache of interrupt entries", (6, 8))
    },
    Row {
        kind: Kind::Extra,
        without: "a vCPU whose APIC ID is beyond the hardware's table cannot be created while AVIC is on",
        with: "a vCPU whose APIC ID is beyond the hardware's table inhibits AVIC for its VM",
        why: "APIC IDs have gaps if the number of cores or threads is not a power of two",
        source: "KVM IRQ changes for 6.17; Linux arch/x86/kvm/svm/avic.c",
        ..feature("kernel-avic-id", "APIC IDs beyond the hardware's table", (6, 17))
    },
    Row {
        kind: Kind::Extra,
        without: "AVIC is off unless kvm_amd is loaded with avic=1",
        with: "AVIC is on by itself on Zen 4 and later with x2AVIC",
        why: "hardware stays unused where nobody sets the parameter",
        source: "KVM SVM changes for 6.18; Linux arch/x86/kvm/svm/avic.c, ca2967de5a5b",
        ..feature("kernel-avic-default", "AVIC by default", (6, 18))
    },
    Row {
        kind: Kind::Extra,
        without: "x2AVIC takes APIC IDs up to 511",
        with: "x2AVIC takes APIC IDs up to 4095 on CPUs with the extension",
        why: "beyond the limit AVIC is inhibited for the whole VM",
        source: "KVM SVM changes for 6.19; Linux arch/x86/kvm/svm/avic.c, 940fc47cfb0d",
        ..feature("kernel-x2avic-4k", "x2AVIC for 4096 vCPUs", (6, 19))
    },
    Row {
        isa: Some(Isa::Vmx),
        without: "each IPI between vCPUs costs the sender an exit",
        with: "IPIs between vCPUs take no exit on CPUs with IPI virtualization",
        why: "an IPI that exits is the most expensive interrupt between vCPUs",
        source: "KVM changes for Linux 6.0: \"Intel IPI virtualization\"; arch/x86/kvm/vmx/vmx.c, enable_ipiv",
        ..feature("kernel-ipi-virtualization", "IPI virtualization in KVM", (6, 0))
    },
    Row {
        kind: Kind::Extra,
        isa: None,
        without: "KVM has no parameter for posting device interrupts",
        with: "KVM tells by enable_device_posted_irqs whether it posts interrupts of devices",
        why: "without the parameter nothing shows whether posting is used",
        source: "KVM x86 misc changes for 6.16; Linux arch/x86/kvm/x86.c, enable_device_posted_irqs",
        ..feature("kernel-posting-parameter", "Parameter for posting", (6, 16))
    },
    Row {
        kind: Kind::Bug,
        from: (5, 6),
        last_bad_candidate: Some(3),
        without: "devices cannot be passed through while AVIC is on",
        with: "not one of the release candidates in which AVIC broke passthrough",
        why: "a guest with an assigned device does not start, or hangs",
        source: "bugzilla.kernel.org 206579 (5.6-rc1 to 5.6-rc3)",
        ..feature("kernel-bug-avic-passthrough", "Passthrough with AVIC", (5, 6))
    },
    Row {
        kind: Kind::Bug,
        from: (4, 7),
        stable: &[((5, 15), 194), ((6, 1), 154), ((6, 6), 108), ((6, 12), 49), ((6, 16), 9)],
        without: "a task priority that the VMM sets does not reach the hardware while AVIC is active",
        with: "the task priority reaches the hardware",
        why: "interrupts of a guest can be held back forever after a migration or a reset; Windows then hangs",
        source: "Linux arch/x86/kvm/svm/svm.c, sync_lapic_to_cr8, d02e48830e3f (6.17)",
        ..feature("kernel-bug-avic-tpr", "Task priority with AVIC", (6, 17))
    },
    Row {
        kind: Kind::Bug,
        from: (4, 7),
        last_bad_candidate: Some(3),
        // The announcements of 6.1.167, 6.6.130, 6.12.78 and 6.19.9 list the change, and the difference to 6.18.18 in that of
        // 6.18.19 (19 March 2026) has it. It did not apply to 5.10, and no port of it was seen.
        stable: &[((6, 1), 167), ((6, 6), 130), ((6, 12), 78), ((6, 18), 19), ((6, 19), 9)],
        without: "writes of CR8 can stay intercepted while AVIC is active; each is then a write_cr8 exit",
        with: "writes of CR8 are not intercepted while AVIC is active",
        why: "a guest that sets its task priority often, such as Windows, then exits more than without AVIC",
        source: "Linux arch/x86/kvm/svm/avic.c, avic_activate_vmcb, 87d0f901a9bd (7.0-rc4)",
        ..feature(CR8_INTERCEPT, "Writes of CR8 with AVIC", (7, 0))
    },
];

/// The rule of the fault by which writes of CR8 stay intercepted.
const CR8_INTERCEPT: &str = "kernel-bug-avic-cr8";

/// Tests a kernel for the fault by which writes of CR8 stay intercepted while AVIC is active, by its release and, where
/// it is known, its build (`uname -r` and `-v`). `None` where they do not tell.
#[must_use]
pub fn keeps_cr8_intercept(release: &str, build: Option<&str>) -> Option<bool> {
    let release = Release::parse(release, build)?;
    // Debian before 13 tells its stable release in the build alone, and calls itself 6.1.0-28.
    if build.is_none() && release.patch == Some(0) && release.candidate.is_none() {
        return None;
    }
    match cr8_row()?.judge(&release) {
        Has::Yes => Some(false),
        Has::No => Some(true),
        Has::Unknown => None,
    }
}

/// The kernels that do not have that fault.
#[must_use]
pub fn without_cr8_intercept() -> String {
    cr8_row().map(Row::newer).unwrap_or_default()
}

fn cr8_row() -> Option<&'static Row> {
    ROWS.iter().find(|row| row.rule == CR8_INTERCEPT)
}

/// The presence of a row's feature in a release (for a bug: of its fix).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Has {
    /// Present.
    Yes,
    /// Absent.
    No,
    /// A vendor's tree, older by its number than the release that brought it: the vendor may have taken it.
    Unknown,
}

impl Row {
    /// Judges a release.
    #[must_use]
    pub fn judge(&self, release: &Release) -> Has {
        let bug = self.kind == Kind::Bug;
        if bug && release.version < self.from {
            return Has::Yes;
        }
        if release.version == self.since {
            if let (Some(bad), Some(candidate)) = (self.last_bad_candidate, release.candidate) {
                return if candidate <= bad { Has::No } else { Has::Yes };
            }
        }
        if release.reaches(self.since.0, self.since.1) {
            return Has::Yes;
        }
        let stable = self.stable.iter().find(|(version, _)| *version == release.version);
        match (release.tree, stable, release.patch) {
            (Tree::Stable, Some(&(_, first)), Some(patch)) if patch >= first => Has::Yes,
            (Tree::Stable, Some(_), None) => Has::Unknown,
            (Tree::Stable, ..) => Has::No,
            (Tree::Uek, ..) => {
                let at_least = |build: &Build| {
                    release.compare_build(build.0, build.1).is_some_and(|order| order != Ordering::Less)
                };
                if self.uek.iter().any(at_least) { Has::Yes } else { Has::Unknown }
            }
            (Tree::Vendor, ..) => Has::Unknown,
        }
    }

    /// The first release that has it, as people write it: `6.8`, `5.6-rc4`.
    #[must_use]
    pub fn first(&self) -> String {
        let (major, minor) = self.since;
        match self.last_bad_candidate {
            Some(bad) => format!("{major}.{minor}-rc{}", bad + 1),
            None => format!("{major}.{minor}"),
        }
    }

    /// The releases that have it, for people.
    #[must_use]
    pub fn newer(&self) -> String {
        let stable: Vec<String> =
            self.stable.iter().map(|((major, minor), patch)| format!("{major}.{minor}.{patch}")).collect();
        if stable.is_empty() {
            format!("Linux {} or later", self.first())
        } else {
            format!("Linux {} or later, or {} of its series", self.first(), stable.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(rule: &str, release: &str) -> Has {
        let row = ROWS.iter().find(|row| row.rule == rule).unwrap();
        row.judge(&Release::parse(release, None).unwrap())
    }

    #[test]
    fn each_row_has_a_release_with_and_one_without_and_says_both() {
        for row in ROWS {
            let (major, minor) = row.since;
            assert_eq!(judged(row.rule, &format!("{major}.{minor}.0")), Has::Yes, "{}", row.rule);
            let before = match row.last_bad_candidate {
                Some(bad) => format!("{major}.{minor}.0-rc{bad}"),
                None if minor == 0 => format!("{}.19.0", major - 1),
                None => format!("{major}.{}.0", minor - 1),
            };
            assert_eq!(judged(row.rule, &before), Has::No, "{}", row.rule);
            for text in [row.without, row.with, row.why, row.source, row.title] {
                assert!(text.len() > 8 && !text.ends_with('.'), "{}: {text:?}", row.rule);
            }
            assert_eq!(row.kind == Kind::Bug, row.from != (0, 0), "{}", row.rule);
            assert!(row.rule.starts_with("kernel-"));
        }
    }

    #[test]
    fn vendors_take_changes_under_their_own_numbers() {
        assert_eq!(judged("kernel-x2avic", "5.14.0-427.13.1.el9_4.x86_64"), Has::Unknown);
        assert_eq!(judged("kernel-x2avic", "5.15.0-204.146.1.el8uek.x86_64"), Has::Yes);
        assert_eq!(judged("kernel-x2avic", "5.15.0-205.149.5.1.el9uek.x86_64"), Has::Yes);
        assert_eq!(judged("kernel-x2avic", "5.15.0-105.125.6.2.1.el8uek.x86_64"), Has::Unknown);
        assert_eq!(judged("kernel-irte-caching", "5.4.17-2136.328.3.el8uek.x86_64"), Has::Yes);
        assert_eq!(judged("kernel-x2avic", "5.15.167"), Has::No);
    }

    #[test]
    fn faults_have_a_beginning_and_stable_releases_without_them() {
        assert_eq!(judged("kernel-bug-avic-passthrough", "5.5.19"), Has::Yes);
        assert_eq!(judged("kernel-bug-avic-passthrough", "5.6.0-rc2"), Has::No);
        assert_eq!(judged("kernel-bug-avic-passthrough", "5.6.0-rc4"), Has::Yes);
        for (release, expected) in [
            ("4.4.302", Has::Yes),
            ("6.12.48", Has::No),
            ("6.12.49", Has::Yes),
            ("6.13.12", Has::No),
            ("6.16.9-arch1-1", Has::Yes),
            ("6.8.0-45-generic", Has::Unknown),
            ("7.0.0", Has::Yes),
        ] {
            assert_eq!(judged("kernel-bug-avic-tpr", release), expected, "{release}");
        }
    }

    #[test]
    fn writes_of_cr8_stay_intercepted_in_kernels_before_the_fix() {
        for (release, expected) in [
            ("4.4.302", Some(false)),
            ("5.15.194", Some(true)),
            ("6.1.166", Some(true)),
            ("6.1.167", Some(false)),
            ("6.6.129", Some(true)),
            ("6.6.130", Some(false)),
            ("6.12.77+deb13-amd64", Some(true)),
            ("6.12.78+deb13-amd64", Some(false)),
            ("6.17.13", Some(true)),
            ("6.18.18", Some(true)),
            ("6.18.19", Some(false)),
            ("6.19.8-arch1-1", Some(true)),
            ("6.19.9-arch1-1", Some(false)),
            ("7.0.0-rc3", Some(true)),
            ("7.0.0-rc4", Some(false)),
            ("7.1.2", Some(false)),
            ("5.14.0-427.13.1.el9_4.x86_64", None),
            ("6.1.0-28-amd64", None),
            ("linux", None),
        ] {
            assert_eq!(keeps_cr8_intercept(release, None), expected, "{release}");
        }
        let debian = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.119-1 (2024-11-22)";
        assert_eq!(keeps_cr8_intercept("6.1.0-28-amd64", Some(debian)), Some(true));
        assert!(without_cr8_intercept().contains("6.12.78"));
    }
}
