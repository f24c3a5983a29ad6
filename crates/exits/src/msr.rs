//! Names of the model-specific registers that guests access through exits.

use crate::apic_register;

/// The x2APIC registers: MSR 0x800 + n is the register at offset 16 n.
const X2APIC: std::ops::RangeInclusive<u32> = 0x800..=0x83f;

/// Number to name, ordered by number.
///
/// Sources: Intel SDM volume 4 chapter 2; AMD64 APM volume 2 appendix A; Linux
/// `arch/x86/include/asm/msr-index.h`, `arch/x86/include/uapi/asm/kvm_para.h`, `arch/x86/kvm/hyperv.h`;
/// Microsoft's Hypervisor Top-Level Functional Specification, appendix C. Names are those of Linux without
/// `MSR_` and `IA32_`.
const NAMES: &[(u32, &str)] = &[
    (0x010, "TSC"),
    (0x017, "PLATFORM_ID"),
    (0x01b, "APICBASE"),
    (0x034, "SMI_COUNT"),
    (0x03a, "FEAT_CTL"),
    (0x03b, "TSC_ADJUST"),
    (0x048, "SPEC_CTRL"),
    (0x049, "PRED_CMD"),
    (0x079, "UCODE_WRITE"),
    (0x08b, "UCODE_REV"),
    (0x0ce, "PLATFORM_INFO"),
    (0x0e1, "UMWAIT_CONTROL"),
    (0x0e7, "MPERF"),
    (0x0e8, "APERF"),
    (0x0fe, "MTRRcap"),
    (0x10a, "ARCH_CAPABILITIES"),
    (0x10b, "FLUSH_CMD"),
    (0x122, "TSX_CTRL"),
    (0x140, "MISC_FEATURES_ENABLES"),
    (0x174, "SYSENTER_CS"),
    (0x175, "SYSENTER_ESP"),
    (0x176, "SYSENTER_EIP"),
    (0x179, "MCG_CAP"),
    (0x17a, "MCG_STATUS"),
    (0x17b, "MCG_CTL"),
    (0x198, "PERF_STATUS"),
    (0x199, "PERF_CTL"),
    (0x19c, "THERM_STATUS"),
    (0x1a0, "MISC_ENABLE"),
    (0x1b0, "ENERGY_PERF_BIAS"),
    (0x1c4, "XFD"),
    (0x1c5, "XFD_ERR"),
    (0x1d9, "DEBUGCTL"),
    (0x277, "CR_PAT"),
    (0x2ff, "MTRRdefType"),
    (0x345, "PERF_CAPABILITIES"),
    (0x38d, "FIXED_CTR_CTRL"),
    (0x38e, "PERF_GLOBAL_STATUS"),
    (0x38f, "PERF_GLOBAL_CTRL"),
    (0x390, "PERF_GLOBAL_OVF_CTRL"),
    (0x3f1, "PEBS_ENABLE"),
    (0x480, "VMX_BASIC"),
    (0x491, "VMX_VMFUNC"),
    (0x600, "DS_AREA"),
    (0x606, "RAPL_POWER_UNIT"),
    (0x611, "PKG_ENERGY_STATUS"),
    (0x6e0, "TSC_DEADLINE"),
    (0xd90, "BNDCFGS"),
    (0xda0, "XSS"),
    (0x4000_0000, "HV_GUEST_OS_ID"),
    (0x4000_0001, "HV_HYPERCALL"),
    (0x4000_0002, "HV_VP_INDEX"),
    (0x4000_0003, "HV_RESET"),
    (0x4000_0010, "HV_VP_RUNTIME"),
    (0x4000_0020, "HV_TIME_REF_COUNT"),
    (0x4000_0021, "HV_REFERENCE_TSC"),
    (0x4000_0022, "HV_TSC_FREQUENCY"),
    (0x4000_0023, "HV_APIC_FREQUENCY"),
    (0x4000_0070, "HV_EOI"),
    (0x4000_0071, "HV_ICR"),
    (0x4000_0072, "HV_TPR"),
    (0x4000_0073, "HV_VP_ASSIST_PAGE"),
    (0x4000_0080, "HV_SCONTROL"),
    (0x4000_0081, "HV_SVERSION"),
    (0x4000_0082, "HV_SIEFP"),
    (0x4000_0083, "HV_SIMP"),
    (0x4000_0084, "HV_EOM"),
    (0x4000_0090, "HV_SINT0"),
    (0x4000_0091, "HV_SINT1"),
    (0x4000_0092, "HV_SINT2"),
    (0x4000_0093, "HV_SINT3"),
    (0x4000_0094, "HV_SINT4"),
    (0x4000_0095, "HV_SINT5"),
    (0x4000_0096, "HV_SINT6"),
    (0x4000_0097, "HV_SINT7"),
    (0x4000_0098, "HV_SINT8"),
    (0x4000_0099, "HV_SINT9"),
    (0x4000_009a, "HV_SINT10"),
    (0x4000_009b, "HV_SINT11"),
    (0x4000_009c, "HV_SINT12"),
    (0x4000_009d, "HV_SINT13"),
    (0x4000_009e, "HV_SINT14"),
    (0x4000_009f, "HV_SINT15"),
    (0x4000_00b0, "HV_STIMER0_CONFIG"),
    (0x4000_00b1, "HV_STIMER0_COUNT"),
    (0x4000_00b2, "HV_STIMER1_CONFIG"),
    (0x4000_00b3, "HV_STIMER1_COUNT"),
    (0x4000_00b4, "HV_STIMER2_CONFIG"),
    (0x4000_00b5, "HV_STIMER2_COUNT"),
    (0x4000_00b6, "HV_STIMER3_CONFIG"),
    (0x4000_00b7, "HV_STIMER3_COUNT"),
    (0x4000_00f0, "HV_GUEST_IDLE"),
    (0x4000_00f1, "HV_SYNDBG_CONTROL"),
    (0x4000_00f2, "HV_SYNDBG_STATUS"),
    (0x4000_00f3, "HV_SYNDBG_SEND_BUFFER"),
    (0x4000_00f4, "HV_SYNDBG_RECV_BUFFER"),
    (0x4000_00f5, "HV_SYNDBG_PENDING_BUFFER"),
    (0x4000_00ff, "HV_SYNDBG_OPTIONS"),
    (0x4000_0100, "HV_CRASH_P0"),
    (0x4000_0101, "HV_CRASH_P1"),
    (0x4000_0102, "HV_CRASH_P2"),
    (0x4000_0103, "HV_CRASH_P3"),
    (0x4000_0104, "HV_CRASH_P4"),
    (0x4000_0105, "HV_CRASH_CTL"),
    (0x4000_0106, "HV_REENLIGHTENMENT_CONTROL"),
    (0x4000_0107, "HV_TSC_EMULATION_CONTROL"),
    (0x4000_0108, "HV_TSC_EMULATION_STATUS"),
    (0x4000_0118, "HV_TSC_INVARIANT_CONTROL"),
    (0x4b56_4d00, "KVM_WALL_CLOCK_NEW"),
    (0x4b56_4d01, "KVM_SYSTEM_TIME_NEW"),
    (0x4b56_4d02, "KVM_ASYNC_PF_EN"),
    (0x4b56_4d03, "KVM_STEAL_TIME"),
    (0x4b56_4d04, "KVM_PV_EOI_EN"),
    (0x4b56_4d05, "KVM_POLL_CONTROL"),
    (0x4b56_4d06, "KVM_ASYNC_PF_INT"),
    (0x4b56_4d07, "KVM_ASYNC_PF_ACK"),
    (0x4b56_4d08, "KVM_MIGRATION_CONTROL"),
    (0xc000_0080, "EFER"),
    (0xc000_0081, "STAR"),
    (0xc000_0082, "LSTAR"),
    (0xc000_0083, "CSTAR"),
    (0xc000_0084, "SYSCALL_MASK"),
    (0xc000_0100, "FS_BASE"),
    (0xc000_0101, "GS_BASE"),
    (0xc000_0102, "KERNEL_GS_BASE"),
    (0xc000_0103, "TSC_AUX"),
    (0xc000_0104, "AMD64_TSC_RATIO"),
    (0xc001_0015, "K7_HWCR"),
    (0xc001_001f, "AMD64_NB_CFG"),
    (0xc001_0055, "K8_INT_PENDING_MSG"),
    (0xc001_0058, "FAM10H_MMIO_CONF_BASE"),
    (0xc001_0114, "VM_CR"),
    (0xc001_0117, "VM_HSAVE_PA"),
    (0xc001_011f, "VIRT_SPEC_CTRL"),
    (0xc001_0130, "AMD64_SEV_ES_GHCB"),
    (0xc001_0131, "AMD64_SEV"),
    (0xc001_0140, "AMD64_OSVW_ID_LENGTH"),
    (0xc001_0141, "AMD64_OSVW_STATUS"),
    (0xc001_1020, "AMD64_LS_CFG"),
    (0xc001_1022, "AMD64_DC_CFG"),
    (0xc001_1029, "AMD64_DE_CFG"),
];

/// The name of an MSR. Those of the x2APIC (Intel SDM volume 3, table 11-6) have the names of the corresponding
/// registers in the APIC page.
pub(crate) fn name(number: u32) -> Option<&'static str> {
    if X2APIC.contains(&number) {
        return apic_register::name((number - X2APIC.start()) << 4);
    }
    NAMES.binary_search_by_key(&number, |entry| entry.0).ok().map(|at| NAMES[at].1)
}

/// The number of the register with this name.
pub(crate) fn number(name: &str) -> Option<u32> {
    let x2apic = || {
        let number = X2APIC.start() + (apic_register::offset(name)? >> 4);
        X2APIC.contains(&number).then_some(number)
    };
    NAMES.iter().find(|entry| entry.1 == name).map(|entry| entry.0).or_else(x2apic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_both_ways() {
        assert!(NAMES.is_sorted_by(|a, b| a.0 < b.0));
        for number in NAMES.iter().map(|entry| entry.0).chain(X2APIC) {
            if let Some(text) = name(number) {
                assert_eq!(super::number(text), Some(number), "{text}");
            }
        }
        assert_eq!(name(0x808), Some("TPR"));
        assert_eq!(name(0x80b), Some("EOI"));
        assert_eq!(name(0x830), Some("ICR"));
        assert_eq!(name(0x832), Some("LVT_TIMER"));
        assert_eq!(name(0x83f), Some("SELF_IPI"));
        assert_eq!(name(0x4000_0104), Some("HV_CRASH_P4"));
        assert_eq!(name(0x4000_00f5), Some("HV_SYNDBG_PENDING_BUFFER"));
        assert_eq!(name(0x4000_0118), Some("HV_TSC_INVARIANT_CONTROL"));
        assert_eq!(name(0x801), None);
    }
}
