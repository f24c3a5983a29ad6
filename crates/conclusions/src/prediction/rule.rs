//! The rules by which exits are avoided or remain, with their sources.

use exits::Hypervisor;
use serde::Serialize;

/// The rule of a row. Sections are of the Intel SDM, volume 3 (an edition in which "APIC Virtualization and Virtual
/// Interrupts" is chapter 30), and of the AMD64 APM, volume 2. Kernel files are of Linux 6.12 or later, Xen's of 4.20 or
/// later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Rule {
    /// An EOI.
    Eoi,
    /// An access to the task priority (TPR).
    TaskPriority,
    /// A write to the task priority through CR8, whose intercept KVM may keep.
    Cr8Intercept,
    /// A write to the x2APIC's SELF IPI register.
    SelfIpi,
    /// An IPI that the host has to send.
    IpiBySoftware,
    /// An IPI that the host has to send, unless the processor sends it to itself.
    IpiUnlessToOneself,
    /// An IPI that an Intel processor sends.
    IpiByProcessor,
    /// An IPI that an AMD processor sends to running vCPUs.
    IpiToRunning,
    /// A read that is satisfied from the virtual-APIC page.
    RegisterRead,
    /// The upper half of the xAPIC's ICR.
    IcrHigh,
    /// A register access that the host must emulate.
    RegisterOfTheHost,
    /// Arming the guest's timer.
    TimerArm,
    /// A synthetic MSR of Hyper-V for an APIC register.
    HyperVRegister,
    /// An MSR of the x2APIC that KVM may intercept although x2AVIC serves it.
    X2avicIntercept,
    /// An x2APIC register under AVIC without x2AVIC.
    X2apicUnderAvic,
    /// Register accesses that cannot be split by register, because events are missing.
    NotSplit,
    /// MSRs other than the APIC's.
    OtherRegister,
    /// An interrupt window: the guest became ready to take an interrupt.
    InterruptWindow,
    /// Interrupts of the host, including kicks.
    Kick,
    /// Interrupts of the host without avoidable kicks: posted interrupts are not assumed, or already active.
    HostInterrupt,
    /// Accesses to memory and devices other than the APIC page.
    NotTheApicPage,
    /// The guest goes to sleep.
    Idle,
    /// The guest's timer expired.
    TimerFires,
    /// The guest's timer expired, and KVM may post its interrupt.
    TimerMayBePosted,
    /// Exits of nested guests.
    Nested,
    /// Exits that only occur with interrupt virtualization.
    LeftByHardware,
    /// Exits on an AMD host of Xen, which does not support AVIC.
    NoAvicInXen,
    /// Exits of a VM with SEV-ES or SEV-SNP, for which KVM inhibits AVIC.
    InhibitedBySev,
    /// The end of an NMI, or of what keeps it from being delivered.
    NmiWindow,
    /// Exits that are unrelated to interrupts.
    Unrelated,
}

impl Rule {
    /// The explanation in one line.
    #[must_use]
    pub fn why(self, hypervisor: Hypervisor) -> &'static str {
        self.words_on(hypervisor).0
    }

    /// The source.
    #[must_use]
    pub fn source(self, hypervisor: Hypervisor) -> &'static str {
        self.words_on(hypervisor).1
    }

    fn words_on(self, hypervisor: Hypervisor) -> (&'static str, &'static str) {
        match hypervisor {
            Hypervisor::Kvm => self.words(),
            Hypervisor::Xen => self.words_of_xen().unwrap_or_else(|| self.words()),
        }
    }

    /// The texts of rules that differ on Xen, because Xen behaves differently or has other sources.
    const fn words_of_xen(self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            Self::Eoi => (
                "the processor ends the interrupt; Xen asks for the end of each emulated timer's and each level-triggered one",
                "SDM 30.1.4; pt_update_irq in xen/arch/x86/hvm/vpt.c, vmx_intr_assist in vmx/intr.c",
            ),
            Self::IpiBySoftware => (
                "Xen has no IPI virtualization and intercepts the register, so it sends every IPI",
                "vmx_vlapic_msr_changed in xen/arch/x86/hvm/vmx/vmx.c",
            ),
            Self::IpiUnlessToOneself => (
                "Xen has no IPI virtualization, so it sends every IPI to another vCPU; those to oneself go",
                "SDM 30.1.5, 30.4.3.2",
            ),
            Self::RegisterRead => (
                "the processor answers from the virtual APIC page",
                "SDM 30.4.2, 30.5; vmx_vlapic_msr_changed in xen/arch/x86/hvm/vmx/vmx.c",
            ),
            Self::RegisterOfTheHost => (
                "Xen has to act on this register",
                "SDM 30.4.3, 30.5; vmx_vlapic_msr_changed in xen/arch/x86/hvm/vmx/vmx.c",
            ),
            Self::TimerArm => {
                ("the guest's timer is Xen's to run", "SDM 30.4.3.2; xen/arch/x86/hvm/vlapic.c")
            }
            Self::HyperVRegister => (
                "with APICv Xen no longer recommends these registers, so Windows uses its APIC; a domain that was saved \
                 before does so from its next start",
                "cpuid_viridian_leaves in xen/arch/x86/hvm/viridian/viridian.c",
            ),
            Self::InterruptWindow => (
                "the processor waits until the guest can take the interrupt; not for guests with one callback vector for \
                 all vCPUs",
                "SDM 30.2; vmx_intr_assist in xen/arch/x86/hvm/vmx/intr.c",
            ),
            Self::Kick => (
                "kicks that make a vCPU take an interrupt go; Xen's own timers and devices stay",
                "SDM 30.6; vcpu_kick in xen/arch/x86/domain.c",
            ),
            Self::NmiWindow => (
                "the end of an NMI, of which APICv takes no care",
                "SDM 25.2; vmx_enable_intr_window in xen/arch/x86/hvm/vmx/intr.c",
            ),
            Self::Idle => (
                "the vCPU sleeps until Xen wakes it; that time is no cost",
                "SDM 25.1.3; hvm_hlt in xen/arch/x86/hvm/hvm.c",
            ),
            _ => return None,
        })
    }

    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Eoi => (
                "the processor ends the interrupt; the host must see only EOIs of level-triggered ones",
                "SDM 30.1.4; APM 15.29.3.1",
            ),
            Self::TaskPriority => (
                "the virtual APIC page holds the task priority, and the processor acts on it",
                "SDM 30.1.2, 30.3; APM 15.29.3.1",
            ),
            Self::Cr8Intercept => (
                "the processor needs no exit, but Linux before 7.0-rc4 and without its fix can go on to intercept \
                 writes of CR8 with AVIC active; then each of them is an exit, also those that are none today",
                "APM 15.29.3.1; avic_activate_vmcb in arch/x86/kvm/svm/avic.c, 87d0f901a9bd",
            ),
            Self::SelfIpi => ("the processor delivers an IPI to oneself", "SDM 30.1.5, 30.5; APM 15.29.3.1"),
            Self::IpiBySoftware => (
                "without IPI virtualization KVM intercepts the register, so the host sends every IPI",
                "SDM 30.1.6; vmx_update_msr_bitmap_x2apic in arch/x86/kvm/vmx/vmx.c",
            ),
            Self::IpiUnlessToOneself => (
                "without IPI virtualization the host sends every IPI to another vCPU; those to oneself go",
                "SDM 30.1.5, 30.4.3.2; APM 15.29.9.1; svm/avic.c in arch/x86/kvm (erratum 1235)",
            ),
            Self::IpiByProcessor => (
                "the processor posts fixed IPIs to one physical APIC ID; the others stay",
                "SDM 30.1.6; vmx_update_msr_bitmap_x2apic in arch/x86/kvm/vmx/vmx.c",
            ),
            Self::IpiToRunning => (
                "the processor sends IPIs to vCPUs that run; those to halted ones stay",
                "APM 15.29.9.1; arch/x86/kvm/svm/avic.c",
            ),
            Self::RegisterRead => {
                ("the processor answers from the virtual APIC page", "SDM 30.4.2, 30.5; APM 15.29.3.1")
            }
            Self::IcrHigh => {
                ("the write goes into the virtual APIC page alone", "SDM 30.4.3.2; APM 15.29.3.1")
            }
            Self::RegisterOfTheHost => (
                "the host has to act on this register",
                "SDM 30.4.3, 30.5; APM 15.29.3.1; vmx/vmx.c, svm/avic.c in arch/x86/kvm",
            ),
            Self::TimerArm => {
                ("the guest's timer is the host's to run", "SDM 30.4.3.2; arch/x86/kvm/lapic.c")
            }
            Self::HyperVRegister => (
                "Hyper-V's registers are emulated; the guest uses the APIC's if told (QEMU: hv-avic)",
                "arch/x86/kvm/hyperv.c",
            ),
            Self::X2avicIntercept => (
                "the processor serves the register, but Linux before 7.2 and without its fix intercepts it with x2AVIC",
                "APM 15.29.3.1; x2avic_passthrough_msrs in arch/x86/kvm/svm/avic.c, 7f4b7092d9a1 and 8c63179d975f",
            ),
            Self::X2apicUnderAvic => (
                "AVIC without x2AVIC leaves x2APIC registers to the host",
                "avic_activate_vmcb in arch/x86/kvm/svm/avic.c",
            ),
            Self::NotSplit => (
                "which registers these were is not in the recording",
                "exits of this reason without an event that names the register",
            ),
            Self::OtherRegister => ("no register of the APIC", "SDM 30.5; APM 15.29.3.1"),
            Self::InterruptWindow => {
                ("the processor itself waits until the guest can take the interrupt", "SDM 30.2; APM 15.29.4")
            }
            Self::Kick => (
                "kicks that make a vCPU take an interrupt go; the host's own timer and devices stay",
                "SDM 30.6; APM 15.29.6; kvm_vcpu_kick in virt/kvm/kvm_main.c",
            ),
            Self::HostInterrupt => {
                ("interrupts of the host, which its own work causes", "SDM 25.2; APM 15.21.2")
            }
            Self::NotTheApicPage => ("memory or a device, not the APIC's page", "SDM 30.4; APM 15.29.3.1"),
            Self::Idle => (
                "the vCPU sleeps until the host wakes it; that time is no cost",
                "SDM 25.1.3; arch/x86/kvm/x86.c",
            ),
            Self::TimerFires => ("the guest's timer is the host's to run", "SDM 25.5.1"),
            Self::TimerMayBePosted => (
                "the guest's timer is the host's to run; KVM posts its interrupt if the guest halts without exits and \
                 pi_inject_timer is on",
                "kvm_can_use_hv_timer and kvm_can_post_timer_interrupt in arch/x86/kvm/lapic.c",
            ),
            Self::Nested => (
                "AVIC is inhibited for a vCPU that runs a nested guest; APICv is the guest's own hypervisor's to use",
                "avic_vcpu_get_apicv_inhibit_reasons in arch/x86/kvm/svm/avic.c; arch/x86/kvm/vmx/nested.c",
            ),
            Self::LeftByHardware => (
                "what the processor leaves to the host with interrupt virtualization",
                "SDM 30.1.4, 30.4.3.3; APM 15.29.9",
            ),
            Self::NoAvicInXen => (
                "Xen uses no AVIC, in no release up to 4.22, so the exit stays",
                "start_svm in xen/arch/x86/hvm/svm/svm.c",
            ),
            Self::InhibitedBySev => (
                "KVM uses no AVIC for a guest whose memory SEV encrypts, so the exit stays",
                "sev_guest_init in arch/x86/kvm/svm/sev.c (APICV_INHIBIT_REASON_SEV)",
            ),
            Self::NmiWindow => (
                "the end of an NMI, of which neither APICv nor AVIC takes care",
                "SDM 25.2; APM 15.21.10; svm_inject_nmi in arch/x86/kvm/svm/svm.c",
            ),
            Self::Unrelated => ("nothing to do with interrupts", "SDM appendix C; APM volume 2, appendix C"),
        }
    }
}
