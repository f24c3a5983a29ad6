//! What the processors are, and what they offer to hypervisors.

use super::vmx::VmxFeatures;
use crate::{Cpu, CpuSet, Fact};
use std::collections::{BTreeMap, BTreeSet};

/// The processors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Processor {
    /// The first one, by `/proc/cpuinfo`.
    pub first: Fact<Cpu>,
    /// All words of its `flags` line.
    pub flags: Fact<BTreeSet<String>>,
    /// How many processors run which microcode; more than one revision is a fault of the firmware or of an update that
    /// went halfway.
    pub microcode: Fact<BTreeMap<String, u32>>,
    /// Those that are switched on (`/sys/devices/system/cpu/online`).
    pub online: Fact<CpuSet>,
    /// Those that the kernel has room for (`possible`).
    pub possible: Fact<CpuSet>,
    /// The greatest `apicid` of `/proc/cpuinfo`.
    pub largest_apic_id: Fact<u32>,
    /// Leaves of CPUID as the first processor gives them: 0, 1h, 40000000h, 80000000h, 80000001h, 8000000Ah.
    pub cpuid: Fact<Vec<CpuidLeaf>>,
    /// Whether CPUID says that there is a hypervisor below, and its signature (`KVMKVMKVM`, `XenVMMXenVMM`,
    /// `Microsoft Hv`); the inner `None` on bare metal, an empty text when there is one that is not named.
    pub hypervisor: Fact<Option<String>>,
    /// What SVM offers, by CPUID 8000000Ah; where that was not read, by the flags of `/proc/cpuinfo`, which lack what
    /// the kernel hides.
    pub svm: Fact<SvmFeatures>,
    /// What VMX offers, by its capability MSRs; where they cannot be read, by the `vmx flags` line.
    pub vmx: Fact<VmxFeatures>,
    /// VM_CR of AMD: whether the firmware locked SVM.
    pub vm_cr: Fact<VmCr>,
    /// IA32_FEATURE_CONTROL of Intel: whether the firmware lets VMX be used.
    pub feature_control: Fact<FeatureControl>,
    /// Whether erratum 1235 concerns it: AMD family 17h (Zen 1 and 2) and Hygon family 18h may miss that a vCPU
    /// stopped running, so Linux takes their IPIs itself (`arch/x86/kvm/svm/avic.c`, `avic_hardware_setup`; since 6.17,
    /// and in stable kernels that took it).
    pub erratum_1235: Fact<bool>,
}

/// What one leaf of CPUID said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuidLeaf {
    /// EAX as asked.
    pub leaf: u32,
    /// ECX as asked.
    pub subleaf: u32,
    /// EAX, EBX, ECX, EDX as answered.
    pub registers: [u32; 4],
}

/// What SVM offers: CPUID Fn8000_000A (AMD64 Architecture Programmer's Manual, volume 3, E.4.9).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SvmFeatures {
    /// EDX as read; `None` when only flags are known.
    pub edx: Option<u32>,
    /// Address space identifiers (EBX); `None` when only flags are known.
    pub asids: Option<u32>,
    /// Nested paging, bit 0.
    pub npt: bool,
    /// AVIC, bit 13.
    pub avic: bool,
    /// Virtual global interrupt flag, bit 16.
    pub vgif: bool,
    /// x2AVIC, bit 18.
    pub x2avic: bool,
    /// Virtual NMI, bit 25.
    pub vnmi: bool,
    /// x2AVIC for up to 4096 vCPUs, bit 28 of ECX where the processor has it (`x2AVIC_EXT`; Zen 6).
    pub x2avic_extended: bool,
}

/// VM_CR, MSR C0010114h (AMD64 Architecture Programmer's Manual, volume 2, 15.30.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmCr {
    /// The register.
    pub value: u64,
    /// SVMDIS, bit 4: SVM cannot be switched on.
    pub disabled: bool,
    /// LOCK, bit 3: and that cannot be changed before the next reset.
    pub locked: bool,
}

/// IA32_FEATURE_CONTROL, MSR 3Ah (Intel SDM volume 4, table 2-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureControl {
    /// The register.
    pub value: u64,
    /// Bit 0: it cannot be written before the next reset.
    pub locked: bool,
    /// Bit 2: VMX may be used outside SMX.
    pub vmx: bool,
}
