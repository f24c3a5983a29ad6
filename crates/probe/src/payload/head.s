# The guest, part 1 of 3: conventions, table and macros. Every vCPU runs this code in 64-bit mode, identity mapped, at the same address.
#
# Registers that keep their meaning everywhere:
#   %r15  this vCPU's block (layout.rs)        %rbp  the xAPIC page
#   %r12  warm-up iterations still to do       %r13  samples still to take
#   %r14  where the next sample goes           %r8   TSC before, %r9 TSC after
#   %r10  set by a handler that has run
# %rax, %rcx and %rdx belong to whoever runs, handlers included: a routine never keeps a value in them
# where an interrupt can come in between.
#
# `lfence; rdtsc; lfence` orders the read after all earlier instructions and before all later ones
# (Intel SDM vol. 2, RDTSC; AMD64 APM vol. 3 with LFENCE dispatch-serializing, which Linux switches on), and
# needs no RDTSCP, which KVM may intercept.

    .pushsection .rodata.exitless_probe_payload, "a", @progbits
    .balign 64
    .globl exitless_probe_payload_start
    .hidden exitless_probe_payload_start
    .globl exitless_probe_payload_end
    .hidden exitless_probe_payload_end

# ---- the table that payload.rs reads: offsets from the start --------------------------------------------

    .macro offset_of symbol
    .long \symbol - exitless_probe_payload_start
    .endm

    .macro table mode
    offset_of entry_\mode
    offset_of on_ipi_\mode
    offset_of on_wake_\mode
    offset_of on_self_\mode
    offset_of on_eoi_\mode
    offset_of on_halt_\mode
    offset_of on_timer_\mode
    offset_of prepare
    offset_of target_running
    offset_of target_halted
    offset_of spin_for_ever
    offset_of undefined_opcode
    offset_of target_exiting
    offset_of masked_\mode
    offset_of untouched_stack_\mode
    offset_of on_divide
    offset_of faulting
    # The measures, in the order of Measure::ALL.
    offset_of floor
    offset_of ipi_running_\mode
    offset_of ipi_halted_\mode
    offset_of self_ipi_\mode
    offset_of eoi_\mode
    offset_of tpr_write_\mode
    offset_of timer_arm_\mode
    offset_of timer_fire_\mode
    offset_of cpuid_leaf
    offset_of halt_\mode
    offset_of pio_kernel
    offset_of pio_user
    offset_of mmio_user
    offset_of mmio_eventfd
    offset_of msr_read
    offset_of msr_write
    .endm

exitless_probe_payload_start:
    offset_of vectors
    offset_of on_spurious
    table xapic
    table x2apic

# ---- common parts ---------------------------------------------------------------------------------------

    .macro tsc into
    lfence
    rdtsc
    lfence
    shlq $32, %rdx
    orq %rax, %rdx
    movq %rdx, \into
    .endm

    .macro begin
    movq BLOCK_WARM_UP(%r15), %r12
    movq BLOCK_SAMPLES(%r15), %r13
    movq BLOCK_BUFFER(%r15), %r14
    .endm

    # Writes %eax to an APIC register. SDM vol. 3, "x2APIC Register Address Space": MSR = 0x800 + offset / 16.
    .macro apic_xapic register
    movl %eax, \register(%rbp)
    .endm
    .macro apic_x2apic register
    movl $(0x800 + \register / 16), %ecx
    xorl %edx, %edx
    wrmsr
    .endm

    # The whole of what an operating system does for one IPI: in xAPIC mode two writes, in x2APIC mode one.
    .macro ipi_to_peer_xapic vector
    movl BLOCK_PEER_APIC_ID(%r15), %eax
    shll $24, %eax
    movl %eax, APIC_ICR2(%rbp)
    movl $\vector, APIC_ICR(%rbp)
    .endm
    .macro ipi_to_peer_x2apic vector
    movl $(0x800 + APIC_ICR / 16), %ecx
    movl BLOCK_PEER_APIC_ID(%r15), %edx
    movl $\vector, %eax
    wrmsr
    .endm

    # The forms which the processors virtualize: the ICR with the "self" shorthand, fixed and edge, and in x2APIC mode
    # Intel's self-IPI register (SDM vol. 3, "Self-IPI Virtualization"; APM vol. 2, "AVIC"). AMD has that one too, but
    # KVM before Linux 7.2 intercepts it with x2AVIC (arch/x86/kvm/svm/avic.c, x2avic_passthrough_msrs).
    .macro ipi_to_self_xapic vector
    movl $(\vector | 0x40000), APIC_ICR(%rbp)
    .endm
    .macro ipi_to_self_x2apic vector
    movl BLOCK_SELF_IPI_MSR(%r15), %ecx
    movl BLOCK_SELF_IPI_BITS(%r15), %eax
    orl $\vector, %eax
    xorl %edx, %edx
    wrmsr
    .endm

    .macro end_of_interrupt mode
    xorl %eax, %eax
    apic_\mode APIC_EOI
    .endm
