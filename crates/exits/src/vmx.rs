//! VMX basic exit reasons and the names Linux prints for them.

/// Basic exit reason to name, ordered by number.
///
/// Numbers: Intel SDM volume 3, appendix C. Names: `VMX_EXIT_REASONS` in `arch/x86/include/uapi/asm/vmx.h` up
/// to Linux 6.12, checked against the print format of a 6.12 `kvm_exit` event. `SEAMCALL`, `TDCALL`,
/// `MSR_READ_IMM` and `MSR_WRITE_IMM` are later additions of the same header.
///
/// The last one has no name in the kernel: what KVM reports if the TDX module did not enter a trust domain, most often
/// because it was busy, so that KVM enters it again (-1 of `tdx_to_vmx_exit_reason` in `arch/x86/kvm/vmx/tdx.c`, 6.16).
pub(crate) const NAMES: &[(u32, &str)] = &[
    (0, "EXCEPTION_NMI"),
    (1, "EXTERNAL_INTERRUPT"),
    (2, "TRIPLE_FAULT"),
    (3, "INIT_SIGNAL"),
    (4, "SIPI_SIGNAL"),
    (7, "INTERRUPT_WINDOW"),
    (8, "NMI_WINDOW"),
    (9, "TASK_SWITCH"),
    (10, "CPUID"),
    (12, "HLT"),
    (13, "INVD"),
    (14, "INVLPG"),
    (15, "RDPMC"),
    (16, "RDTSC"),
    (18, "VMCALL"),
    (19, "VMCLEAR"),
    (20, "VMLAUNCH"),
    (21, "VMPTRLD"),
    (22, "VMPTRST"),
    (23, "VMREAD"),
    (24, "VMRESUME"),
    (25, "VMWRITE"),
    (26, "VMOFF"),
    (27, "VMON"),
    (28, "CR_ACCESS"),
    (29, "DR_ACCESS"),
    (30, "IO_INSTRUCTION"),
    (31, "MSR_READ"),
    (32, "MSR_WRITE"),
    (33, "INVALID_STATE"),
    (34, "MSR_LOAD_FAIL"),
    (36, "MWAIT_INSTRUCTION"),
    (37, "MONITOR_TRAP_FLAG"),
    (39, "MONITOR_INSTRUCTION"),
    (40, "PAUSE_INSTRUCTION"),
    (41, "MCE_DURING_VMENTRY"),
    (43, "TPR_BELOW_THRESHOLD"),
    (44, "APIC_ACCESS"),
    (45, "EOI_INDUCED"),
    (46, "GDTR_IDTR"),
    (47, "LDTR_TR"),
    (48, "EPT_VIOLATION"),
    (49, "EPT_MISCONFIG"),
    (50, "INVEPT"),
    (51, "RDTSCP"),
    (52, "PREEMPTION_TIMER"),
    (53, "INVVPID"),
    (54, "WBINVD"),
    (55, "XSETBV"),
    (56, "APIC_WRITE"),
    (57, "RDRAND"),
    (58, "INVPCID"),
    (59, "VMFUNC"),
    (60, "ENCLS"),
    (61, "RDSEED"),
    (62, "PML_FULL"),
    (63, "XSAVES"),
    (64, "XRSTORS"),
    (67, "UMWAIT"),
    (68, "TPAUSE"),
    (74, "BUS_LOCK"),
    (75, "NOTIFY"),
    (76, "SEAMCALL"),
    (77, "TDCALL"),
    (84, "MSR_READ_IMM"),
    (85, "MSR_WRITE_IMM"),
    (u32::MAX, "SEAMCALL_BUSY"),
];

/// Former names of these numbers, which are only parsed.
///
/// `PENDING_INTERRUPT` was renamed in Linux 5.7.
pub(crate) const FORMER_NAMES: &[(u32, &str)] = &[(7, "PENDING_INTERRUPT")];
