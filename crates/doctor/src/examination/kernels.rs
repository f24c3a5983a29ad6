//! The features and known faults of kernels: a table, and the judgement of a kernel by it.

use super::release::{Release, Tree};
use exits::Isa;
use host::inspection::{Kernel, OptionState, TypeQuestion};
use host::{Inspection, parameter_path, switch};
use std::cmp::Ordering;

/// A build of a vendor's tree: the version, and the numbers after the dash.
pub type Build = ((u16, u16), &'static [u32]);

/// The kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A feature that a release added. A host without it is worse off.
    Feature,
    /// A feature that a release added, but whose absence needs no fix.
    Extra,
    /// A fault that a release fixed.
    Bug,
}

/// A question to the running kernel. Its answer has precedence over the release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A question about its type information (BTF).
    Types(TypeQuestion),
    /// The presence of a module's parameter; no answer while the module is not loaded.
    Parameter(&'static str, &'static str),
    /// The state of an option of its configuration.
    Option(&'static str),
}

/// One row.
#[derive(Debug)]
pub struct Row {
    /// The rule's stable name.
    pub rule: &'static str,
    /// Its subject, in a few words.
    pub title: &'static str,
    /// The kind of the row.
    pub kind: Kind,
    /// The CPUs that it concerns; `None` for both vendors.
    pub isa: Option<Isa>,
    /// The first mainline release with the feature or with the fix.
    pub since: (u16, u16),
    /// The first mainline release with the fault; not used for features.
    pub from: (u16, u16),
    /// The last release candidate of [`Self::since`] that still has the fault; `None` if none has.
    pub last_bad_candidate: Option<u16>,
    /// The stable series with the feature or the fix: version, and first patch level that has it.
    pub stable: &'static [((u16, u16), u16)],
    /// The stable series that were searched for a backport; series that are neither here nor in [`Self::stable`] are
    /// unknown. Empty if all were searched.
    pub looked_in: &'static [(u16, u16)],
    /// The first builds of Oracle's tree that have it; later builds of the same version have it too.
    pub uek: &'static [Build],
    /// Questions to the running kernel; a single yes is sufficient.
    pub asked: &'static [Asked],
    /// The question whether a kernel has the feature that the fault is in, even if its release is older than
    /// that.
    pub of: Option<Asked>,
    /// The subject of the mainline commit, which vendors' change logs contain.
    pub subject: &'static str,
    /// The effect of its absence.
    pub without: &'static str,
    /// The effect of its presence.
    pub with: &'static str,
    /// The reason why it matters.
    pub why: &'static str,
    /// The source.
    pub source: &'static str,
}

/// The stable series that Debian builds. The backports in rows with these series are from Debian's change log, which lists
/// the changes of each stable release and was read up to 5.10.262, 6.1.192 and 6.12.118. (It also lists other series for as
/// long as Debian built them, and 7.2 up to 7.2.13 and 7.3 up to 7.3.4, but not series such as 6.6 and 6.18.)
const DEBIAN: &[(u16, u16)] = &[(5, 10), (6, 1), (6, 12)];

/// UEK 7 update 2, according to Oracle the first with AVIC, x2AVIC and IOMMU AVIC as its guide describes them.
const UEK7_U2: Build = ((5, 15), &[204, 146, 1]);

/// The build of UEK 6 to which several changes of AMD's IOMMU were ported (Oracle's advisory
/// ELSA-2023-12590).
const UEK6_321: Build = ((5, 4), &[2136, 321, 3]);

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
        looked_in: &[],
        uek: &[],
        asked: &[],
        of: None,
        subject: "",
        without: "",
        with: "",
        why: "",
        source: "",
    }
}

const fn fault(rule: &'static str, title: &'static str, from: (u16, u16), since: (u16, u16)) -> Row {
    Row { kind: Kind::Bug, from, looked_in: DEBIAN, ..feature(rule, title, since) }
}

/// All rows.
pub const ROWS: &[Row] = &[
    Row {
        without: "KVM uses no AVIC",
        with: "KVM can use AVIC",
        why: "without AVIC the host handles every interrupt of a guest",
        source: "Linux arch/x86/kvm/svm.c, 3bbf3565f48c (4.7)",
        subject: "svm: Do not intercept CR8 when enable AVIC",
        ..feature("kernel-avic", "AVIC in KVM", (4, 7))
    },
    Row {
        uek: &[UEK7_U2],
        without: "SynIC of Hyper-V inhibits interrupt virtualization, whether the guest uses AutoEOI or not",
        with: "SynIC inhibits only while the guest uses AutoEOI",
        why: "most Windows guests get SynIC for its timers",
        isa: None,
        source: "Linux arch/x86/kvm/hyperv.c, 0f250a646382 (5.15)",
        asked: &[Asked::Types(TypeQuestion::AUTO_EOI_COUNTED)],
        subject: "KVM: x86: hyper-v: Deactivate APICv only when AutoEOI feature is in use",
        ..feature("kernel-autoeoi", "SynIC with interrupt virtualization", (5, 15))
    },
    Row {
        uek: &[UEK7_U2],
        without: "AVIC is inhibited for every guest that is offered SVM",
        with: "AVIC is inhibited only while a nested guest runs",
        why: "KVM offers SVM to guests by default, and -cpu host passes it on",
        source: "Linux arch/x86/kvm/svm/svm.c, f44509f849fe, merged for 5.19 (a4cfff3f0f8c)",
        asked: &[Asked::Types(TypeQuestion::INHIBITS_OF_VCPU)],
        subject: "KVM: x86: SVM: allow AVIC to co-exist with a nested guest running",
        ..feature("kernel-avic-nested", "AVIC with nested guests", (5, 19))
    },
    Row {
        uek: &[UEK7_U2],
        without: "guests that are offered x2APIC get no AVIC",
        with: "guests with x2APIC get x2AVIC, or AVIC for delivery only",
        why: "current guests use x2APIC wherever it is offered",
        source: "KVM changes for Linux 6.0: \"x2AVIC support for AMD\"; arch/x86/kvm/svm/avic.c, 0e311d33bfbe",
        asked: &[Asked::Types(TypeQuestion::X2AVIC)],
        subject: "KVM: SVM: Introduce logic to (de)activate x2AVIC mode",
        ..feature("kernel-x2avic", "x2APIC guests on AVIC", (6, 0))
    },
    Row {
        uek: &[((5, 4), &[2136, 328, 1]), UEK7_U2],
        without: "each time a vCPU moves or halts, the IOMMU's interrupt table is flushed for its devices",
        with: "the fields that change when a vCPU is scheduled are not cached, and nothing is flushed",
        why: "if vCPUs halt often, flushing costs more than posting saves",
        source: "Linux drivers/iommu/amd/iommu.c, 57cdb720eaa5 (6.8); AMD I/O Virtualization Technology specification \
                 2.2.5.2",
        subject: "iommu/amd: Do not flush IRTE when only updating isRun and destination fields",
        ..feature(IRTE_CACHING, "IOMMU's cache of interrupt entries", (6, 8))
    },
    Row {
        kind: Kind::Extra,
        without: "a vCPU whose APIC ID is beyond the hardware's table cannot be created while AVIC is on",
        with: "a vCPU whose APIC ID is beyond the hardware's table inhibits AVIC for its VM",
        why: "APIC IDs have gaps if the number of cores or threads is not a power of two",
        source: "KVM IRQ changes for 6.17; Linux arch/x86/kvm/svm/avic.c, 1aa6e256e46f",
        asked: &[Asked::Types(TypeQuestion::ID_TOO_BIG)],
        subject: "KVM: SVM: Inhibit AVIC if ID is too big instead of rejecting vCPU creation",
        ..feature("kernel-avic-id", "APIC IDs beyond the hardware's table", (6, 17))
    },
    Row {
        kind: Kind::Extra,
        without: "AVIC is off unless kvm_amd is loaded with avic=1",
        with: "AVIC is on by itself on Zen 4 and later with x2AVIC",
        why: "hardware stays unused where nobody sets the parameter",
        source: "KVM SVM changes for 6.18; Linux arch/x86/kvm/svm/avic.c, ca2967de5a5b",
        subject: "KVM: SVM: Enable AVIC by default for Zen4+ if x2AVIC is support",
        ..feature("kernel-avic-default", "AVIC by default", (6, 18))
    },
    Row {
        kind: Kind::Extra,
        without: "x2AVIC takes APIC IDs up to 511",
        with: "x2AVIC takes APIC IDs up to 4095 on CPUs with the extension",
        why: "beyond the limit AVIC is inhibited for the whole VM",
        source: "KVM SVM changes for 6.19; Linux arch/x86/kvm/svm/avic.c, 940fc47cfb0d",
        subject: "KVM: SVM: Add AVIC support for 4k vCPUs in x2AVIC mode",
        ..feature("kernel-x2avic-4k", "x2AVIC for 4096 vCPUs", (6, 19))
    },
    Row {
        isa: Some(Isa::Vmx),
        without: "each IPI between vCPUs costs the sender an exit",
        with: "IPIs between vCPUs take no exit on CPUs with IPI virtualization",
        why: "an IPI that exits is the most expensive interrupt between vCPUs",
        source: "KVM changes for Linux 6.0: \"Intel IPI virtualization\"; arch/x86/kvm/vmx/vmx.c, d588bb9be1da",
        asked: &[Asked::Parameter("kvm_intel", "enable_ipiv"), Asked::Types(TypeQuestion::IPI_TABLE)],
        subject: "KVM: VMX: enable IPI virtualization",
        ..feature("kernel-ipi-virtualization", "IPI virtualization in KVM", (6, 0))
    },
    Row {
        kind: Kind::Extra,
        isa: None,
        without: "KVM has no parameter for posting device interrupts",
        with: "KVM tells by enable_device_posted_irqs whether it posts interrupts of devices",
        why: "without the parameter nothing shows whether posting is used",
        source: "KVM x86 misc changes for 6.16; Linux arch/x86/kvm/x86.c, enable_device_posted_irqs, 459074cff66f",
        asked: &[
            Asked::Parameter("kvm", "enable_device_posted_irqs"),
            Asked::Parameter("kvm_amd", "enable_device_posted_irqs"),
            Asked::Parameter("kvm_intel", "enable_device_posted_irqs"),
        ],
        subject: "KVM: x86: Add module param to control and enumerate device posted IRQs",
        ..feature("kernel-posting-parameter", "Parameter for posting", (6, 16))
    },
    Row {
        kind: Kind::Extra,
        asked: &[Asked::Parameter("kvm_amd", "enable_ipiv")],
        subject: "KVM: SVM: Disable (x2)AVIC IPI virtualization if CPU has erratum #1235",
        without: "AVIC cannot be used without its IPIs, which erratum 1235 loses",
        with: "KVM can leave IPIs out of AVIC (enable_ipiv)",
        why: "on CPUs with the erratum AVIC is then safe; before, guests could hang with it",
        source: "Linux arch/x86/kvm/svm/avic.c, d921665e01ba and 8de4a1c8164e (6.17)",
        ..feature(AVIC_IPIV, "AVIC without IPIs", (6, 17))
    },
    Row {
        kind: Kind::Extra,
        asked: &[Asked::Types(TypeQuestion::IRQ_WINDOWS)],
        subject: "KVM: SVM: Fix IRQ window inhibit handling across multiple vCPUs",
        without: "a vCPU that no longer waits for an interrupt window ends the wait of all vCPUs of its VM",
        with: "KVM counts the vCPUs that wait for an interrupt window",
        why: "AVIC is inhibited during the wait; before, each wait took a lock of the whole VM even where AVIC was inhibited \
              anyway, and a nested guest could keep it inhibited for too long",
        source: "Linux arch/x86/kvm/svm/svm.c, 7b402ec851cb, 6563ddadd169 and 5617dddcfa30 (7.1)",
        ..feature("kernel-avic-irq-windows", "Interrupt windows with AVIC", (7, 1))
    },
    Row {
        kind: Kind::Extra,
        isa: Some(Isa::Vmx),
        asked: &[Asked::Option("X86_POSTED_MSI")],
        subject: "iommu/vt-d: Enable posted mode for device MSIs",
        without: "the kernel cannot have its own device interrupts posted",
        with: "the kernel can have its own device interrupts posted (intremap=posted_msi)",
        why: "one notification then stands for many interrupts of the host's own devices; guests' are not concerned",
        source: "Linux drivers/iommu/intel/irq_remapping.c, be9be07b22c9 and ed1e48ea4370 (6.10)",
        ..feature("kernel-posted-msi", "Posting of the host's own interrupts", (6, 10))
    },
    Row {
        kind: Kind::Extra,
        stable: &[((6, 1), 47), ((6, 4), 12)],
        looked_in: DEBIAN,
        uek: &[UEK6_321],
        subject: "iommu/amd: Introduce Disable IRTE Caching Support",
        without: "the IOMMU's cache of interrupt entries cannot be switched off",
        with: "the IOMMU's cache of interrupt entries can be switched off (amd_iommu=irtcachedis)",
        why: "without the cache nothing is flushed when a vCPU is scheduled; kernels with kernel-irte-caching need it less",
        source: "Linux drivers/iommu/amd/init.c, 66419036f68a (6.5)",
        ..feature("kernel-irte-cache-argument", "Argument for the IOMMU's cache of interrupt entries", (6, 5))
    },
    Row {
        kind: Kind::Extra,
        subject: "KVM: SVM: Generate GA log IRQs only if the associated vCPUs is blocking",
        without: "each interrupt of a device for a vCPU that does not run makes the IOMMU interrupt the host",
        with: "the IOMMU interrupts the host only for vCPUs that halt",
        why: "a preempted vCPU runs again without a wake-up, so the host takes this interrupt for no purpose",
        source: "KVM IRQ changes for 6.17; Linux arch/x86/kvm/svm/avic.c, b03500f03ea0",
        ..feature("kernel-ga-log-blocking", "Interrupts of the GA log", (6, 17))
    },
    Row {
        kind: Kind::Extra,
        // Stable series took it as a prerequisite of 87d0f901a9bd; 6.1 has that commit without this one.
        stable: &[((6, 6), 130), ((6, 12), 78), ((6, 18), 19)],
        looked_in: &[(5, 10), (6, 1), (6, 6), (6, 12), (6, 18)],
        subject: "KVM: SVM: Limit AVIC physical max index based on configured max_vcpu_ids",
        without: "AVIC scans its whole table of APIC IDs for each IPI to all vCPUs",
        with: "AVIC scans as much of its table of APIC IDs as the VMM says that the VM needs",
        why: "IPIs to all vCPUs are faster in small VMs if the VMM sets KVM_CAP_MAX_VCPU_ID",
        source: "Linux arch/x86/kvm/svm/avic.c, 574ef752d4ae (6.19)",
        ..feature("kernel-avic-table-size", "Size of AVIC's table", (6, 19))
    },
    Row {
        kind: Kind::Extra,
        stable: &[((6, 18), 39), ((7, 1), 4)],
        // By kernel.org's lists of the commits of 6.18.39 and 7.1.4, and by Debian's change logs.
        looked_in: &[(6, 1), (6, 12), (6, 18), (7, 1)],
        subject: "KVM: SVM: Only disable x2AVIC WRMSR interception for MSRs that are accelerated",
        without: "with x2AVIC, KVM intercepts SELF_IPI and reads of most words of ISR, TMR and IRR",
        with: "with x2AVIC, KVM passes all MSRs of the x2APIC that the CPU serves",
        why: "a guest's IPIs to the vCPU itself need no exit then",
        source: "Linux arch/x86/kvm/svm/avic.c, 7f4b7092d9a1 and 8c63179d975f (7.2)",
        ..feature(X2AVIC_MSRS, "MSRs of x2APIC with x2AVIC", (7, 2))
    },
    Row {
        kind: Kind::Extra,
        isa: None,
        subject: "KVM: Enable halt polling shrink parameter by default",
        without: "the time for which KVM polls falls to zero at once when polling was in vain",
        with: "the time for which KVM polls is halved when polling was in vain (halt_poll_ns_shrink=2)",
        why: "wake-ups that come a little later are then caught by polling, which costs CPU time and saves latency",
        source: "KVM generic changes for 6.11; Linux virt/kvm/kvm_main.c, aeb1b22a3ac8",
        ..feature("kernel-halt-polling-shrink", "Shrinking of halt polling", (6, 11))
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
        stable: &[((5, 10), 245), ((5, 15), 194), ((6, 1), 154), ((6, 6), 108), ((6, 12), 49), ((6, 16), 9)],
        without: "a task priority that the VMM sets does not reach the hardware while AVIC is active",
        with: "the task priority reaches the hardware",
        why: "interrupts of a guest can be held back forever after a migration or a reset; Windows then hangs",
        source: "Linux arch/x86/kvm/svm/svm.c, sync_lapic_to_cr8, d02e48830e3f (6.17)",
        subject: "KVM: SVM: Sync TPR from LAPIC into VMCB::V_TPR even if AVIC is active",
        ..feature("kernel-bug-avic-tpr", "Task priority with AVIC", (6, 17))
    },
    Row {
        kind: Kind::Bug,
        from: (4, 7),
        last_bad_candidate: Some(3),
        // The announcements of 6.1.167, 6.6.130, 6.12.78 and 6.19.9 list the change, and the diff from 6.18.18 in that of
        // 6.18.19 (19 March 2026) contains it. It did not apply to 5.10, and no port to it was found.
        stable: &[((6, 1), 167), ((6, 6), 130), ((6, 12), 78), ((6, 18), 19), ((6, 19), 9)],
        without: "writes of CR8 can stay intercepted while AVIC is active; each is then a write_cr8 exit",
        with: "writes of CR8 are not intercepted while AVIC is active",
        why: "a guest that sets its task priority often, such as Windows, then exits more than without AVIC; if the kernel \
              has the fault of kernel-bug-avic-tpr too, Windows hangs",
        source: "Linux arch/x86/kvm/svm/avic.c, avic_activate_vmcb, 87d0f901a9bd (7.0-rc4)",
        subject: "KVM: SVM: Set/clear CR8 write interception when AVIC is (de)activated",
        ..feature(CR8_INTERCEPT, "Writes of CR8 with AVIC", (7, 0))
    },
    Row {
        last_bad_candidate: Some(3),
        stable: &[((5, 10), 253), ((6, 1), 167), ((6, 12), 78), ((6, 19), 9)],
        subject: "KVM: SVM: Initialize AVIC VMCB fields if AVIC is enabled with in-kernel APIC",
        without: "a vCPU that is created while AVIC is inhibited can come to use it with fields that nobody has set",
        with: "the fields for AVIC are set whenever a vCPU may come to use it",
        why: "the inhibit goes before the vCPU first runs, and the hardware then works with addresses of zero",
        source: "Linux arch/x86/kvm/svm/svm.c, init_vmcb, 3989a6d036c8 (7.0-rc4)",
        ..fault("kernel-bug-avic-vmcb", "Fields for AVIC of a new vCPU", (5, 6), (7, 0))
    },
    Row {
        stable: &[((6, 1), 175), ((6, 12), 86)],
        subject: "KVM: nSVM: Ensure AVIC is inhibited when restoring a vCPU to guest mode",
        without: "a nested guest that is restored runs with AVIC, which should be inhibited",
        with: "restoring a nested guest inhibits AVIC",
        why: "after a migration interrupts of the outer guest go astray",
        source: "Linux arch/x86/kvm/svm/nested.c, 24f7d36b824b, of f44509f849fe (5.19), fixed in 7.1",
        ..fault("kernel-bug-avic-nested-restore", "Nested guests restored with AVIC", (5, 19), (7, 1))
    },
    Row {
        // Debian's 6.5.8-1 has it too, as a patch of its own; the first stable release with it is 6.5.9.
        stable: &[((6, 1), 62), ((6, 5), 9)],
        subject: "KVM: SVM: always update the x2avic msr interception",
        without: "MSRs of x2APIC stay without interception after a guest resets its APIC",
        with: "resetting an APIC intercepts the MSRs of x2APIC",
        why: "the guest then reads and writes the host's own APIC (CVE-2023-5090)",
        source: "Linux arch/x86/kvm/svm/svm.c, b65235f6e102 (6.6); of x2AVIC, 4d1d7942e36a (6.0)",
        ..fault("kernel-bug-x2avic-msr", "MSRs of x2APIC after a reset", (6, 0), (6, 6))
    },
    Row {
        stable: &[((6, 1), 149)],
        asked: &[Asked::Types(TypeQuestion::SPLIT_ICR)],
        of: Some(Asked::Types(TypeQuestion::X2AVIC)),
        subject: "KVM: x86: Re-split x2APIC ICR into ICR+ICR2 for AMD (x2AVIC)",
        without: "KVM reads the ICR of x2AVIC in Intel's format",
        with: "KVM reads the ICR of x2AVIC in the format of AMD's CPUs",
        why: "KVM and the CPU disagree about the destination of an IPI, as when a guest is saved and restored",
        source: "Linux arch/x86/kvm/lapic.c, 73b42dc69be8, x2apic_icr_is_split (6.12); of x2AVIC, 4d1d7942e36a (6.0)",
        ..fault("kernel-bug-x2avic-icr", "ICR of x2AVIC", (6, 0), (6, 12))
    },
    Row {
        stable: &[((6, 1), 16)],
        subject: "KVM: SVM: Process ICR on AVIC IPI delivery failure due to invalid target",
        without: "an IPI to several vCPUs is dropped for all of them if one does not exist",
        with: "an IPI to several vCPUs reaches those that exist",
        why: "the guest waits for an answer that never comes",
        source: "Linux arch/x86/kvm/svm/avic.c, 5aede752a839 (6.3)",
        ..fault("kernel-bug-avic-ipi", "IPIs with an invalid target", (4, 7), (6, 3))
    },
    Row {
        stable: &[((6, 1), 54), ((6, 5), 4)],
        subject: "KVM: SVM: Set target pCPU during IRTE update if target vCPU is running",
        without: "an interrupt of a device that was given a new vCPU is not signalled to it until that vCPU is scheduled anew",
        with: "an interrupt of a device that is given a new vCPU is signalled to the CPU on which that runs",
        why: "on a pinned vCPU this may never happen: each interrupt of the device is late",
        source: "Linux arch/x86/kvm/svm/avic.c, f3cebc75e742 (6.6)",
        ..fault("kernel-bug-avic-device-target", "Target of posted interrupts", (4, 9), (6, 6))
    },
    Row {
        stable: &[((6, 1), 33)],
        uek: &[UEK6_321],
        subject: "iommu/amd: Handle GALog overflows",
        without: "an overflow of the IOMMU's log of interrupts for vCPUs that do not run stops the log",
        with: "the IOMMU's log is started anew after an overflow",
        why: "halted vCPUs are no longer woken by their devices",
        source: "Linux drivers/iommu/amd/init.c, af47b0a24058 (6.4)",
        ..fault("kernel-bug-avic-ga-log", "Overflow of the GA log", (4, 9), (6, 4))
    },
    Row {
        isa: None,
        stable: &[((6, 1), 4)],
        subject: "KVM: x86: fix APICv/x2AVIC disabled when vm reboot by itself",
        without: "a guest that used x2APIC loses interrupt virtualization when it reboots",
        with: "a guest keeps interrupt virtualization when it reboots",
        why: "it stays inhibited (APIC_ID_MODIFIED) until the VM is started anew",
        source: "Linux arch/x86/kvm/lapic.c, ef40757743b4 (6.2); of 3743c2f02517 (5.19)",
        ..fault("kernel-bug-apicv-reboot", "Reboots with x2APIC", (5, 19), (6, 2))
    },
    Row {
        isa: Some(Isa::Vmx),
        stable: &[((6, 12), 94)],
        // The backport was requested for 6.6 and later; older series were not searched.
        looked_in: &[(6, 12)],
        subject: "KVM: VMX: Update SVI during runtime APICv activation",
        without: "an interrupt in service is forgotten when an inhibit of APICv ends",
        with: "an interrupt in service stays known when an inhibit of APICv ends",
        why: "interrupts of lower priority are then blocked, and the guest hangs",
        source: "Linux arch/x86/kvm/vmx/vmx.c, b2849bec936b (6.19); of inhibits that end, 0f250a646382 (5.15)",
        ..fault("kernel-bug-apicv-svi", "End of an inhibit with APICv", (5, 15), (6, 19))
    },
    Row {
        isa: Some(Isa::Vmx),
        stable: &[((6, 1), 160), ((6, 12), 64)],
        subject: "KVM: nVMX: Immediately refresh APICv controls as needed on nested VM-Exit",
        without: "a change of APICv while a nested guest runs does not reach the outer guest",
        with: "a change of APICv while a nested guest runs reaches the outer guest",
        why: "KVM and the CPU then disagree about who delivers interrupts",
        source: "Linux arch/x86/kvm/vmx/nested.c, 297631388309 (6.19); of 7c69661e225c, which stable series took as well",
        ..fault("kernel-bug-apicv-nested", "APICv changed under a nested guest", (5, 15), (6, 19))
    },
    Row {
        isa: Some(Isa::Vmx),
        stable: &[((5, 10), 89), ((5, 15), 12)],
        subject: "KVM: VMX: Wake vCPU when delivering posted IRQ even if vCPU == this vCPU",
        without: "a posted interrupt can fail to wake the vCPU that was the last on its CPU",
        with: "a posted interrupt wakes its vCPU",
        why: "with an assigned device a halted vCPU sleeps on",
        source: "Linux arch/x86/kvm/vmx/vmx.c, fdba608f15e2 (5.16); of 379a3c8ee444 (5.8)",
        ..fault("kernel-bug-posted-wakeup", "Wake-up by posted interrupts", (5, 8), (5, 16))
    },
    Row {
        isa: Some(Isa::Vmx),
        stable: &[((6, 12), 24)],
        asked: &[Asked::Types(TypeQuestion::POSTED_TO_VCPU)],
        of: Some(Asked::Option("X86_POSTED_MSI")),
        subject: "iommu/vt-d: Don't clobber posted vCPU IRTE when host IRQ affinity changes",
        without: "with intremap=posted_msi, changing an interrupt's CPU on the host ends its posting to a vCPU",
        with: "changing an interrupt's CPU on the host leaves its posting to a vCPU alone",
        why: "the guest loses interrupts of the device",
        source: "Linux drivers/iommu/intel/irq_remapping.c, 688124cc541f, posted_vcpu (6.15); of ed1e48ea4370 (6.10)",
        ..fault("kernel-bug-posted-msi", "Posted MSIs beside posted interrupts", (6, 10), (6, 15))
    },
    Row {
        last_bad_candidate: Some(5),
        stable: &[((6, 1), 183), ((6, 6), 151), ((6, 12), 103), ((6, 18), 44), ((7, 1), 8)],
        // The record of the CVE names all series.
        looked_in: &[],
        subject: "KVM: SVM: Update x2APIC MSR intercepts if AVIC is inhibited while L2 is active",
        without: "MSRs of x2APIC stay without interception if AVIC is inhibited while a nested guest runs",
        with: "inhibiting AVIC intercepts the MSRs of x2APIC also while a nested guest runs",
        why: "the guest then reaches the host's own APIC and can stop the host (CVE-2026-74516)",
        source: "Linux arch/x86/kvm/svm/avic.c, avic_deactivate_vmcb, 7d3aae206663 (7.2-rc6); of 091abbf578f9 (6.0)",
        ..fault("kernel-bug-x2avic-msr-nested", "MSRs of x2APIC under a nested guest", (6, 0), (7, 2))
    },
    Row {
        last_bad_candidate: Some(5),
        stable: &[((6, 12), 93)],
        subject: "KVM: SVM: Flush the current TLB when transitioning from xAVIC => x2AVIC",
        without: "the TLB keeps the APIC's page when a guest goes from xAPIC to x2APIC",
        with: "the TLB is flushed when a guest goes from xAPIC to x2APIC",
        why: "a guest that then uses the memory at 0xfee00000 reaches its APIC's page instead",
        source: "Linux arch/x86/kvm/svm/avic.c, avic_activate_vmcb, a9e18aa3263f (7.1-rc6); of x2AVIC, 4d1d7942e36a (6.0)",
        ..fault("kernel-bug-x2avic-tlb", "TLB with x2AVIC", (6, 0), (7, 1))
    },
    Row {
        stable: &[((6, 1), 21)],
        subject: "KVM: SVM: Modify AVIC GATag to support max number of 512 vCPUs",
        without: "a device's interrupt for a halted vCPU with an APIC ID above 255 wakes another vCPU",
        with: "a device's interrupt wakes the vCPU that it is for",
        why: "the interrupt is late, or waits until the vCPU runs for another reason",
        source: "Linux arch/x86/kvm/svm/avic.c, 5999715922c5 (6.3); of x2AVIC, 4d1d7942e36a (6.0)",
        ..fault("kernel-bug-avic-ga-tag", "vCPUs above 255 in the GA log", (6, 0), (6, 3))
    },
    Row {
        stable: &[((6, 1), 60), ((6, 5), 9)],
        subject: "KVM: SVM: refresh AVIC inhibition in svm_leave_nested()",
        without: "a vCPU that is taken out of a nested guest, as by a reset, stays without AVIC",
        with: "a vCPU that is taken out of a nested guest gets AVIC back",
        why: "guests that ran nested guests can hang when they reboot",
        source: "Linux arch/x86/kvm/svm/nested.c, svm_leave_nested, 3fdc6087df3b (6.6); of f44509f849fe (5.19)",
        ..fault("kernel-bug-avic-leave-nested", "End of a nested guest with AVIC", (5, 19), (6, 6))
    },
    Row {
        stable: &[((6, 1), 60), ((6, 5), 9)],
        subject: "KVM: SVM: add support for Invalid IPI Vector interception",
        without: "a guest's IPI with a vector below 16 writes an error into the host's log, without a limit",
        with: "a guest's IPI with a vector below 16 is ignored",
        why: "a guest can fill the host's log on CPUs that report such IPIs",
        source: "Linux arch/x86/kvm/svm/avic.c, 2dcf37abf9d3 (6.6)",
        ..fault("kernel-bug-avic-ipi-vector", "IPIs with an invalid vector", (4, 7), (6, 6))
    },
    Row {
        last_bad_candidate: Some(3),
        stable: &[((6, 12), 26)],
        subject: "KVM: SVM: Disable AVIC on SNP-enabled system without HvInUseWrAllowed feature",
        without: "KVM uses AVIC on a host with SEV-SNP whose CPU forbids the host to write to a page of AVIC in use",
        with: "KVM leaves AVIC off on a host with SEV-SNP whose CPU has no HvInUseWrAllowed",
        why: "injecting an interrupt is then a page fault of the host (RMP violation), which stops the VM or the host",
        source: "Linux arch/x86/kvm/svm/avic.c, d81cadbe1642 (6.13-rc4); of SEV-SNP on hosts, 216d106c7ff7 (6.9)",
        ..fault(AVIC_SNP, "AVIC on a host with SEV-SNP", (6, 9), (6, 13))
    },
    Row {
        stable: &[((5, 10), 110), ((5, 15), 33), ((5, 16), 19), ((5, 17), 2)],
        // The record of the CVE names all series.
        looked_in: &[],
        subject: "KVM: SVM: fix panic on out-of-bounds guest IRQ",
        without: "an interrupt of a device that has no route crashes the host",
        with: "an interrupt of a device that has no route is ignored",
        why: "a VMM that sets up the interrupts of an assigned device in another order is enough (CVE-2022-49154)",
        source: "Linux arch/x86/kvm/svm/avic.c, a80ced6ea514 (5.18); of posting, 411b44ba80ab (4.9)",
        ..fault("kernel-bug-avic-guest-irq", "Routes of posted interrupts", (4, 9), (5, 18))
    },
    Row {
        // The announcements of 5.15.34, 5.16.20 and 5.17.2, and the reviews before them, list the change. It did not apply to
        // 5.10, and no port to it was found. The tree of UEK 7 contains 5.15.146.
        stable: &[((5, 15), 34), ((5, 16), 20), ((5, 17), 2)],
        uek: &[UEK7_U2],
        subject: "KVM: SVM: Allow AVIC support on system w/ physical APIC ID > 255",
        without: "a vCPU on a CPU with an APIC ID above 255 counts as one that does not run, and the kernel warns",
        with: "AVIC is told the CPU on which the vCPU is, whatever its APIC ID",
        why: "each IPI and each posted interrupt for such a vCPU takes the slow way through the host",
        source: "Linux arch/x86/kvm/svm/avic.c, avic_vcpu_load, 4a204f789587 (5.18); of 44a95dae1d22 (4.7)",
        ..fault("kernel-bug-avic-host-ids", "AVIC on CPUs with APIC IDs above 255", (4, 7), (5, 18))
    },
    Row {
        last_bad_candidate: Some(3),
        stable: &[((5, 15), 7)],
        subject: "KVM: fix avic_set_running for preemptable kernels",
        without: "AVIC can be told a CPU on which the vCPU no longer is, on a preemptible kernel",
        with: "AVIC is told the CPU on which the vCPU is",
        why: "interrupts for the vCPU are then signalled to the wrong CPU, and wait",
        source: "Linux arch/x86/kvm/svm/avic.c, avic_set_running, 7cfc5c653b07 (5.16-rc4); of 8221c1370056 (4.7)",
        ..fault("kernel-bug-avic-preemption", "AVIC on preemptible kernels", (4, 7), (5, 16))
    },
    Row {
        isa: None,
        stable: &[((5, 17), 5)],
        subject: "KVM: x86: Pend KVM_REQ_APICV_UPDATE during vCPU creation to fix a race",
        without: "a vCPU that is created while an inhibit begins does not hear of it",
        with: "a new vCPU looks at the inhibits before it first runs",
        why: "it runs with APICv or AVIC though the VM is inhibited, and the kernel warns",
        source: "Linux arch/x86/kvm/x86.c, kvm_arch_vcpu_create, 423ecfea77dd (5.18); of 8df14af42f00 (5.6)",
        ..fault("kernel-bug-apicv-new-vcpu", "Inhibits of a new vCPU", (5, 6), (5, 18))
    },
    Row {
        isa: None,
        stable: &[((6, 1), 119)],
        subject: "KVM: x86: Unconditionally set irr_pending when updating APICv state",
        without: "interrupts that a VMM restores while APICv or AVIC is inhibited stay pending until another one comes",
        with: "interrupts that a VMM restores are delivered, inhibited or not",
        why: "a guest can hang after a migration",
        source: "Linux arch/x86/kvm/lapic.c, d3ddef46f22e (6.12); of 755c2bf87860 (5.17)",
        ..fault("kernel-bug-apicv-restored-irr", "Pending interrupts after a migration", (5, 17), (6, 12))
    },
    Row {
        isa: None,
        stable: &[((6, 1), 16)],
        subject: "KVM: x86: Don't inhibit APICv/AVIC if xAPIC ID mismatch is due to 32-bit ID",
        without: "a VM with APIC IDs above 255 loses interrupt virtualization",
        with: "a VM with APIC IDs above 255 keeps interrupt virtualization",
        why: "KVM takes the shortened ID for a changed one and inhibits it (APIC_ID_MODIFIED)",
        source: "Linux arch/x86/kvm/lapic.c, f651a0089548 (6.3); of 3743c2f02517 (5.19)",
        ..fault("kernel-bug-apicv-wide-ids", "VMs with APIC IDs above 255", (5, 19), (6, 3))
    },
    Row {
        isa: None,
        last_bad_candidate: Some(3),
        stable: &[((5, 10), 237), ((5, 15), 181), ((6, 1), 136), ((6, 6), 89), ((6, 12), 26), ((6, 14), 5)],
        // The record of the CVE names all series.
        looked_in: &[],
        subject: "KVM: x86: Reset IRTE to host control if *new* route isn't postable",
        without: "an interrupt stays posted to a vCPU after its route has become one that cannot be posted",
        with: "an interrupt goes back to the host when its route cannot be posted",
        why: "a guest gets interrupts that are no longer its own; after the VM's end freed memory is written (CVE-2025-37885)",
        source: "Linux arch/x86/kvm/svm/avic.c and vmx/posted_intr.c, 9bcac97dc42d (6.15-rc4); of efc644048ecd (4.4)",
        ..fault("kernel-bug-posting-stale", "Interrupts that are no longer posted", (4, 4), (6, 15))
    },
    Row {
        stable: &[((5, 10), 180), ((6, 1), 28)],
        uek: &[UEK6_321],
        subject: "iommu/amd: Fix \"Guest Virtual APIC Table Root Pointer\" configuration in IRTE",
        without: "the IOMMU gets a wrong address of a vCPU's APIC when memory of the host is encrypted (SME)",
        with: "the IOMMU gets the address of a vCPU's APIC with all its bits",
        why: "interrupts of assigned devices do not reach the guest",
        source: "Linux drivers/iommu/amd/amd_iommu_types.h, ccc62b827775 (6.4); of b9c6ff94e43a (5.4)",
        ..fault("kernel-bug-avic-ga-root", "Posting with encrypted memory of the host", (5, 4), (6, 4))
    },
    Row {
        stable: &[((5, 10), 183), ((6, 1), 33)],
        subject: "iommu/amd: Don't block updates to GATag if guest mode is on",
        without: "an interrupt of a device that a guest moves to another vCPU still wakes the old one",
        with: "an interrupt of a device wakes the vCPU to which the guest moved it",
        why: "the new vCPU is not woken when it halts, and the interrupt is late",
        source: "Linux drivers/iommu/amd/iommu.c, ed8a2f4ddef2 (6.4); of b9c6ff94e43a (5.4)",
        ..fault("kernel-bug-avic-ga-tag-update", "vCPUs of moved interrupts in the GA log", (5, 4), (6, 4))
    },
    Row {
        stable: &[((5, 10), 121), ((5, 18), 3)],
        subject: "iommu/amd: Increase timeout waiting for GA log enablement",
        without: "the kernel waits 0.1 ms for the GA log to start, which can take 14 ms",
        with: "the kernel waits long enough for the GA log to start",
        why: "the kernel then warns at boot or on resume, and takes the log for one that does not run",
        source: "Linux drivers/iommu/amd/init.c, iommu_ga_log_enable, 42bb5aa04338 (5.19); of 8bda0cfbdc1a (4.9)",
        ..fault("kernel-bug-avic-ga-log-start", "Start of the GA log", (4, 9), (5, 19))
    },
    Row {
        last_bad_candidate: Some(2),
        stable: &[((6, 12), 114), ((6, 18), 53), ((7, 2), 7)],
        // By the record of the CVE of September 2026, and Debian's list.
        looked_in: &[(5, 10), (6, 1), (6, 12), (6, 18), (7, 2)],
        subject: "iommu/amd: Do not reallocate GA log buffers on resume",
        without: "each resume of the host takes new memory for the GA log, and loses the old",
        with: "a resume of the host keeps the GA log's memory",
        why: "memory is lost, and taken at a time when the kernel must not wait for it (CVE-2026-98003)",
        source: "Linux drivers/iommu/amd/init.c, iommu_init_ga_log, 00a7dd64888d (7.3-rc3); of c5e1a1eb9279 (6.0)",
        ..fault("kernel-bug-avic-ga-log-resume", "The GA log after a resume", (6, 0), (7, 3))
    },
    Row {
        isa: Some(Isa::Vmx),
        stable: &[((6, 1), 96)],
        // The first release with the fault was not determined; 4.4 is older than all kernels that the table
        // judges.
        subject: "KVM: x86: Always sync PIR to IRR prior to scanning I/O APIC routes",
        without: "KVM overlooks posted interrupts when the VMM changes the I/O APIC's routes (kernel-irqchip=split)",
        with: "KVM sees posted interrupts when the I/O APIC's routes change",
        why: "the end of a level-triggered interrupt is lost; Windows 11 hangs if it keeps its time by the RTC",
        source: "Linux arch/x86/kvm/x86.c, vcpu_scan_ioapic, f3ced000a2df (6.10)",
        ..fault("kernel-bug-posted-ioapic", "Posted interrupts and the I/O APIC", (4, 4), (6, 10))
    },
    Row {
        isa: Some(Isa::Vmx),
        stable: &[((6, 1), 64), ((6, 5), 13)],
        subject: "KVM: x86: Clear bit12 of ICR after APIC-write VM-exit",
        without: "a guest that sets the busy bit of its ICR makes the kernel warn, with IPI virtualization",
        with: "the busy bit of a guest's ICR is cleared, with IPI virtualization too",
        why: "a guest can write into the host's log",
        source: "Linux arch/x86/kvm/lapic.c, 629d3698f695 (6.7); of IPI virtualization (6.0)",
        ..fault("kernel-bug-ipi-virtualization-busy", "Busy bit with IPI virtualization", (6, 0), (6, 7))
    },
    Row {
        isa: Some(Isa::Vmx),
        stable: &[((6, 1), 177)],
        subject: "KVM: nVMX: Check for pending posted interrupts when looking for nested events",
        without: "a posted interrupt does not wake a nested guest that halted",
        with: "a posted interrupt wakes a nested guest that halted",
        why: "the nested guest sleeps on until another event",
        source: "Linux arch/x86/kvm/vmx/nested.c, 27c4fa42b11a (6.11); of 26844fee6ade (6.1)",
        ..fault("kernel-bug-posted-nested-wakeup", "Wake-up of nested guests", (6, 1), (6, 11))
    },
    Row {
        isa: Some(Isa::Vmx),
        stable: &[((6, 12), 114), ((6, 18), 39), ((7, 1), 4)],
        // By the record of the CVE of July 2026, and Debian's list.
        looked_in: &[(5, 10), (6, 1), (6, 12), (6, 18), (7, 1)],
        subject: "KVM: x86: Unconditionally recompute CR8 intercept on PPR update",
        without: "without APICv, KVM can enter a guest with a threshold of the task priority that the CPU refuses",
        with: "the threshold of the task priority follows the guest's",
        why: "the entry fails and the VM stops; seen in VMs of a hypervisor without APICv that checks it, such as Hyper-V \
              (CVE-2026-64513)",
        source: "Linux arch/x86/kvm/lapic.c, bb365a506b1e (7.2); of eb90f3417a0c (4.11)",
        ..fault(TPR_THRESHOLD, "Threshold of the task priority without APICv", (4, 11), (7, 2))
    },
    Row {
        isa: Some(Isa::Vmx),
        stable: &[((6, 12), 24)],
        of: Some(Asked::Option("X86_POSTED_MSI")),
        subject: "iommu/vt-d: Wire up irq_ack() to irq_move_irq() for posted MSIs",
        without: "with intremap=posted_msi, a change of an interrupt's CPU on the host can have no effect",
        with: "changing an interrupt's CPU on the host has an effect with intremap=posted_msi too",
        why: "interrupts of the host's devices stay on the CPU from which they were to be kept",
        source: "Linux drivers/iommu/intel/irq_remapping.c, 548183ea388c (6.15); of ed1e48ea4370 (6.10)",
        ..fault("kernel-bug-posted-msi-affinity", "CPUs of posted MSIs", (6, 10), (6, 15))
    },
    Row {
        isa: Some(Isa::Vmx),
        stable: &[((6, 12), 64)],
        of: Some(Asked::Option("X86_POSTED_MSI")),
        subject: "x86/msi: Make irq_retrigger() functional for posted MSI",
        without: "with intremap=posted_msi, an interrupt that is sent again is never ended",
        with: "an interrupt that is sent again is ended with intremap=posted_msi too",
        why: "that interrupt and all of lower priority are then lost on this CPU of the host",
        source: "Linux arch/x86/kernel/irq.c, intel_ack_posted_msi_irq, 0edc78b82bea (6.19); of ed1e48ea4370 (6.10)",
        ..fault("kernel-bug-posted-msi-retrigger", "Posted MSIs that are sent again", (6, 10), (6, 19))
    },
];

/// The rule about the fault that shows only with interrupt virtualization off.
pub(super) const TPR_THRESHOLD: &str = "kernel-bug-tpr-threshold";

/// The rule about the fault that leaves writes of CR8 intercepted.
const CR8_INTERCEPT: &str = "kernel-bug-avic-cr8";

/// The rule of the change by which a guest with x2AVIC reaches all MSRs that the CPU serves.
const X2AVIC_MSRS: &str = "kernel-x2avic-msrs";

/// The rule of the change by which the IOMMU posts without flushing its table.
pub(super) const IRTE_CACHING: &str = "kernel-irte-caching";

/// The rule of the change by which KVM can use AVIC without its IPIs.
pub(super) const AVIC_IPIV: &str = "kernel-avic-ipiv";

/// The rule about AVIC on hosts with SEV-SNP.
pub(super) const AVIC_SNP: &str = "kernel-bug-avic-snp";

/// Tests a kernel, by its release and its build (`uname -r` and `-v`, the latter if known), for the fault that leaves
/// writes of CR8 intercepted while AVIC is active. `None` if they do not show it.
#[must_use]
pub fn keeps_cr8_intercept(release: &str, build: Option<&str>) -> Option<bool> {
    has(CR8_INTERCEPT, release, build).map(|fixed| !fixed)
}

/// Tests a kernel in the same way for passing all MSRs that x2AVIC serves.
#[must_use]
pub fn passes_served_msrs(release: &str, build: Option<&str>) -> Option<bool> {
    has(X2AVIC_MSRS, release, build)
}

/// Tests whether a kernel has the feature of a row, or the fix.
fn has(rule: &str, release: &str, build: Option<&str>) -> Option<bool> {
    let release = Release::parse(release, build)?;
    // Debian before 13 has its stable release only in the build; its release is, for instance, 6.1.0-28.
    if build.is_none() && release.patch == Some(0) && release.candidate.is_none() {
        return None;
    }
    row_of(rule)?.judge(&release).known()
}

/// The kernels without the fault that leaves writes of CR8 intercepted, for people.
#[must_use]
pub fn without_cr8_intercept() -> String {
    row_of(CR8_INTERCEPT).map(Row::newer).unwrap_or_default()
}

/// The kernels that leave IPIs out of AVIC on CPUs with erratum 1235, for people.
pub(crate) const WITHOUT_ERRATUM_1235: &str = "Linux 6.17 or later, which leaves IPIs to KVM on this CPU (on Hygon CPUs: 7.1, \
     7.0.11 or 6.18.34)";

/// Tests whether AVIC could hang guests on this host: the CPU has erratum 1235, and nothing shows that the kernel can leave IPIs
/// out of AVIC.
pub(crate) fn is_hit_by_erratum_1235(host: &Inspection) -> bool {
    host.processor.erratum_1235.get() == Some(&true) && !is_there(AVIC_IPIV, host)
}

/// The reason why AVIC has to stay off on a host that [`is_barred_by_snp`], for people.
pub(crate) const BARRED_BY_SNP: &str = "SEV-SNP is on, and nothing shows that this CPU then lets the host write to the pages of \
     AVIC in use (HvInUseWrAllowed)";

/// The next step on such a host.
pub(crate) const WITHOUT_SNP: &str = "if no guest needs SEV-SNP: sev=nosnp among the kernel's arguments (Linux 6.13 or later), or \
     SNP off in the firmware setup";

/// The words of KVM's message that it leaves AVIC off because of SEV-SNP.
pub(super) const AVIC_LEFT_OFF: &str = "missing HvInUseWrAllowed";

/// Tests whether the host enforces SEV-SNP, for which KVM need not offer SEV-SNP guests: without SEV-ES, for instance, it
/// clears its parameter.
pub(super) fn enforces_snp(host: &Inspection) -> bool {
    let offered = host.kernel.parameters.get("kvm_amd").and_then(|all| all.get("sev_snp"));
    // The kernel clears the flag if it leaves SNP off, except if that is because of the IOMMU.
    let has_flag = host.processor.flags.get().is_some_and(|flags| flags.contains("sev_snp"));
    // The log says so at boot only, and loses its first lines.
    let iommu_forbids =
        || host.log.line_with("SNP cannot be supported").is_some() || iommu_passes_through(&host.kernel);
    offered.and_then(Option::as_deref).and_then(switch) == Some(true) || (has_flag && !iommu_forbids())
}

/// Tests whether the IOMMU is off or passes devices through by default, with either of which the kernel leaves SEV-SNP off
/// (`iommu_snp_enable` of drivers/iommu/amd/init.c, `iommu_setup` of arch/x86/kernel/pci-dma.c, Linux 6.12).
fn iommu_passes_through(kernel: &Kernel) -> bool {
    let by_default = kernel
        .config
        .get()
        .is_some_and(|config| config.option("IOMMU_DEFAULT_PASSTHROUGH") == OptionState::BuiltIn);
    let arguments = kernel.arguments.get().map_or(&[][..], |arguments| arguments.0.as_slice());
    let (mut off, mut passes) = (false, by_default);
    for argument in arguments {
        let words = argument.value.as_deref().unwrap_or_default().split(',');
        match argument.name.as_str() {
            "iommu" => words.for_each(|word| match word {
                "off" => off = true,
                "pt" => passes = true,
                "nopt" => passes = false,
                _ => {}
            }),
            "iommu.passthrough" => words.for_each(|word| passes = switch(word).unwrap_or(passes)),
            _ => {}
        }
    }
    off || passes
}

/// Tests whether SEV-SNP rules AVIC out on this host. KVM then leaves AVIC off by itself, or does not yet know that it must
/// ([`AVIC_SNP`]). If CPUID was not read, a KVM that knows it decides.
pub(crate) fn is_barred_by_snp(host: &Inspection) -> bool {
    let may_write = || host.processor.may_write_pages_in_use().unwrap_or_else(|| is_there(AVIC_SNP, host));
    host.log.line_with(AVIC_LEFT_OFF).is_some() || (enforces_snp(host) && !may_write())
}

/// Tests whether the running kernel is known to have the feature of a row, or the fix.
fn is_there(rule: &str, host: &Inspection) -> bool {
    let judged = |release: Release| Some(row_of(rule)?.judge_running(&release, &host.kernel).has);
    Release::of(&host.kernel).and_then(judged) == Some(Has::Yes)
}

fn row_of(rule: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.rule == rule)
}

/// The presence of a row's feature in a release (for a bug: of its fix).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Has {
    /// Present.
    Yes,
    /// Absent.
    No,
    /// Unknown. The tree is a vendor's and older, by its release, than the mainline release that added it:
    /// the vendor may have ported it. Or the stable series was not searched, or the patch level is not known.
    Unknown,
}

impl Has {
    pub(super) const fn known(self) -> Option<bool> {
        match self {
            Self::Yes => Some(true),
            Self::No => Some(false),
            Self::Unknown => None,
        }
    }
}

impl Asked {
    fn answer(self, kernel: &Kernel) -> Option<bool> {
        match self {
            Self::Types(question) => kernel.types.get()?.answer(question),
            Self::Parameter(module, name) => Some(kernel.parameters.get(module)?.contains_key(name)),
            Self::Option(name) => Some(kernel.config.get()?.option(name) != OptionState::Off),
        }
    }

    /// The place of the answer, and the answer in words.
    fn seen(self, kernel: &Kernel, there: bool) -> (String, String) {
        let found = if there { "there" } else { "not there" };
        match self {
            Self::Types(question) => ("/sys/kernel/btf".to_owned(), format!("{question}: {found}")),
            Self::Parameter(module, name) => (parameter_path(module, name), found.to_owned()),
            Self::Option(name) => {
                let file = kernel.config.get().map(|config| config.file.clone()).unwrap_or_default();
                (file, format!("CONFIG_{name}: {}", if there { "set" } else { "not set" }))
            }
        }
    }
}

/// The judgement of a running kernel by a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The presence of the feature, or of the fix.
    pub has: Has,
    /// The kernel's own answer, as a place and its text; `None` if the release decided.
    pub answer: Option<(String, String)>,
}

impl Row {
    /// Judges a running kernel by its own answers, or by its release if it has none.
    ///
    /// From [`Self::since`] on, a "no" does not count and the release decides: later kernels may have renamed the type or
    /// parameter. Only an unset option counts in any release.
    #[must_use]
    pub fn judge_running(&self, release: &Release, kernel: &Kernel) -> Judgement {
        let answers = self.asked.iter().filter_map(|asked| Some((asked, asked.answer(kernel)?)));
        let answers: Vec<(&Asked, bool)> = answers.collect();
        let by_answer = |has, &(asked, there): &(&Asked, bool)| Judgement {
            has,
            answer: Some(asked.seen(kernel, there)),
        };
        let by_number = || Judgement { has: self.judge(release), answer: None };
        if let Some(found) = answers.iter().find(|(_, there)| *there) {
            return by_answer(Has::Yes, found);
        }
        let has_its_cause = self.of.and_then(|of| of.answer(kernel)) == Some(true);
        let too_old = self.kind == Kind::Bug && release.version < self.from && !has_its_cause;
        let by_then = release.reaches(self.since.0, self.since.1);
        match answers.first() {
            Some(missing) if !too_old && (!by_then || matches!(missing.0, Asked::Option(_))) => {
                by_answer(Has::No, missing)
            }
            _ => by_number(),
        }
    }

    /// Judges a release.
    #[must_use]
    pub fn judge(&self, release: &Release) -> Has {
        let bug = self.kind == Kind::Bug;
        if bug && release.version < self.from {
            // A vendor may have ported the faulty feature, and the fault with it.
            return if release.tree == Tree::Stable { Has::Yes } else { Has::Unknown };
        }
        if release.version == self.since
            && let (Some(bad), Some(candidate)) = (self.last_bad_candidate, release.candidate)
        {
            return if candidate <= bad { Has::No } else { Has::Yes };
        }
        if release.reaches(self.since.0, self.since.1) {
            return Has::Yes;
        }
        let stable = self.stable.iter().find(|(version, _)| *version == release.version);
        match (release.tree, stable, release.patch) {
            (Tree::Stable, Some(&(_, first)), Some(patch)) if patch >= first => Has::Yes,
            (Tree::Stable, Some(_), None) => Has::Unknown,
            (Tree::Stable, None, _) if !self.is_looked_in(release.version) => Has::Unknown,
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

    /// Tests whether a stable series was searched for a backport.
    fn is_looked_in(&self, series: (u16, u16)) -> bool {
        self.looked_in.is_empty() || self.looked_in.contains(&series)
    }

    /// The reason why the release does not show whether the kernel has it, and the place to look.
    #[must_use]
    pub fn doubt(&self, release: &Release) -> String {
        let what = if self.kind == Kind::Bug { "fixed" } else { "there" };
        let (major, minor) = release.version;
        let (doubt, place) = match release.vendor {
            Some(vendor) => (
                format!("the number of {}'s kernel does not tell", vendor.name()),
                vendor.changes().to_owned(),
            ),
            None => (
                format!("ports to {major}.{minor} are not in the table"),
                format!("ChangeLog-{major}.{minor}.* of kernel.org"),
            ),
        };
        let look = match self.subject {
            "" => String::new(),
            subject => format!(": look for \"{subject}\" in {place}"),
        };
        format!("{what} in Linux {}; {doubt}{look}", self.first())
    }

    /// The first mainline release that has it, as text: `6.8`, `5.6-rc4`.
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
impl Row {
    /// A release without it, of a series whose backports are known.
    pub(super) fn last_without(&self) -> String {
        let (major, minor) = self.since;
        let looked_in =
            self.looked_in.iter().rev().find(|&&series| series < self.since && series >= self.from);
        match (self.last_bad_candidate, looked_in) {
            (Some(bad), _) => format!("{major}.{minor}.0-rc{bad}"),
            (None, Some((major, minor))) => format!("{major}.{minor}.0"),
            (None, None) if minor == 0 => format!("{}.19.0", major - 1),
            (None, None) => format!("{major}.{}.0", minor - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::fake;

    fn running(rule: &str, release: &str, host: &str) -> Judgement {
        let row = ROWS.iter().find(|row| row.rule == rule).unwrap();
        let kernel = host::Inspection::read(&fake::root(host)).unwrap().kernel;
        row.judge_running(&Release::parse(release, None).unwrap(), &kernel)
    }

    #[test]
    fn the_running_kernel_is_asked_before_its_number() {
        let types =
            |answer: &str| format!("== /exitless/types\nkvm_arch.apicv_nr_irq_window_req: {answer}\n");
        let rule = "kernel-avic-irq-windows";
        let red_hat = "5.14.0-700.1.1.el9_8.x86_64";
        let found = running(rule, red_hat, &types("yes"));
        assert_eq!(found.has, Has::Yes);
        let answer = found.answer.unwrap();
        assert_eq!(answer.0, "/sys/kernel/btf");
        assert_eq!(answer.1, "kvm_arch.apicv_nr_irq_window_req: there");
        assert_eq!(running(rule, red_hat, &types("no")).has, Has::No);
        assert_eq!(running(rule, red_hat, "== /proc/version\nx\n").has, Has::Unknown);
        // A later kernel that has renamed the member still has the feature.
        assert_eq!(running(rule, "7.9.1", &types("no")).has, Has::Yes);
        // Kernels older than the fault do not have it.
        let icr = "== /exitless/types\nkvm_x86_ops.x2apic_icr_is_split: no\n";
        assert_eq!(running("kernel-bug-x2avic-icr", "5.14.21", icr).has, Has::Yes);
        assert_eq!(running("kernel-bug-x2avic-icr", "6.6.140", icr).has, Has::No);
        assert_eq!(running("kernel-bug-x2avic-icr", "6.6.140", "").has, Has::Unknown);
    }

    #[test]
    fn parameters_and_options_answer_as_well() {
        let loaded = "== /sys/module/kvm_amd/parameters/avic\nY\n";
        let with = format!("{loaded}== /sys/module/kvm_amd/parameters/enable_ipiv\nN\n");
        let ubuntu = "6.8.0-90-generic";
        assert_eq!(running("kernel-avic-ipiv", ubuntu, loaded).has, Has::No);
        assert_eq!(running("kernel-avic-ipiv", ubuntu, &with).has, Has::Yes);
        assert_eq!(running("kernel-avic-ipiv", ubuntu, "").has, Has::Unknown);
        let config = "== /proc/sys/kernel/osrelease\n6.12.118\n== /boot/config-6.12.118\nCONFIG_KVM=m\n# CONFIG_X86_POSTED_MSI is not set\n";
        assert_eq!(running("kernel-posted-msi", "6.12.118", config).has, Has::No);
        let set = config.replace("# CONFIG_X86_POSTED_MSI is not set", "CONFIG_X86_POSTED_MSI=y");
        assert_eq!(running("kernel-posted-msi", "6.12.118", &set).has, Has::Yes);
    }

    #[test]
    fn a_kernel_that_does_not_tell_is_named_with_the_place_to_look() {
        let row = ROWS.iter().find(|row| row.rule == CR8_INTERCEPT).unwrap();
        let doubt = |release: &str| row.doubt(&Release::parse(release, None).unwrap());
        let suse = doubt("6.4.0-150700.53.3-default");
        assert!(
            suse.contains("SUSE's kernel") && suse.contains("`rpm -q --changelog kernel-default`"),
            "{suse}"
        );
        assert!(suse.contains("Set/clear CR8 write interception"), "{suse}");
        let row = ROWS.iter().find(|row| row.rule == "kernel-bug-avic-vmcb").unwrap();
        let stable = row.doubt(&Release::parse("6.6.100", None).unwrap());
        assert!(stable.contains("ChangeLog-6.6.*"), "{stable}");
    }

    #[test]
    fn rows_with_a_fault_name_the_change_that_mended_it() {
        let mut subjects: Vec<&str> =
            ROWS.iter().map(|row| row.subject).filter(|one| !one.is_empty()).collect();
        let all = subjects.len();
        subjects.sort_unstable();
        subjects.dedup();
        assert_eq!(subjects.len(), all, "two rows name one change");
        for row in ROWS.iter().filter(|row| !row.looked_in.is_empty() || !row.asked.is_empty()) {
            assert!(!row.subject.is_empty(), "{}", row.rule);
            assert!(
                row.stable.iter().all(|&(series, _)| series >= row.from && series < row.since),
                "{}",
                row.rule
            );
        }
    }

    fn judged(rule: &str, release: &str) -> Has {
        let row = ROWS.iter().find(|row| row.rule == rule).unwrap();
        row.judge(&Release::parse(release, None).unwrap())
    }

    #[test]
    fn each_row_has_a_release_with_and_one_without_and_says_both() {
        for row in ROWS {
            let (major, minor) = row.since;
            assert_eq!(judged(row.rule, &format!("{major}.{minor}.0")), Has::Yes, "{}", row.rule);
            assert_eq!(judged(row.rule, &row.last_without()), Has::No, "{}", row.rule);
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
            ("5.10.244", Has::No),
            ("5.10.245", Has::Yes),
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
    fn apic_ids_above_255_came_to_the_series_of_their_day() {
        for (release, expected) in [
            ("5.10.262", Has::No),
            ("5.15.33", Has::No),
            ("5.15.34", Has::Yes),
            ("5.16.19", Has::No),
            ("5.16.20", Has::Yes),
            ("5.17.1", Has::No),
            ("5.17.2", Has::Yes),
            ("5.14.0-78.el9.x86_64", Has::Unknown),
        ] {
            assert_eq!(judged("kernel-bug-avic-host-ids", release), expected, "{release}");
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

    #[test]
    fn kernels_before_the_fix_intercept_msrs_that_x2avic_serves() {
        for (release, expected) in [
            ("6.1.190", Some(false)),
            ("6.12.118+deb13-amd64", Some(false)),
            ("6.18.38", Some(false)),
            ("6.18.39", Some(true)),
            ("7.1.3-arch1-1", Some(false)),
            ("7.1.4-arch1-1", Some(true)),
            ("7.2.0-rc1", Some(true)),
            ("7.3.4", Some(true)),
            // Not looked in.
            ("6.6.150", None),
            ("5.14.0-427.13.1.el9_4.x86_64", None),
        ] {
            assert_eq!(passes_served_msrs(release, None), expected, "{release}");
        }
    }
}
