# The guest, part 2 of 3: what does not touch the APIC, and what to do with interrupts nobody asked for.

    # Puts %r9 - %r8 away; zero flag when that was the last sample.
record:
    subq %r8, %r9
    incq BLOCK_PROGRESS(%r15)
    testq %r12, %r12
    jz 2f
    decq %r12
    testq %rsp, %rsp
    ret
2:  movq %r9, (%r14)
    addq $8, %r14
    decq %r13
    ret

next_command:
    call *BLOCK_ROUTINE(%r15)
    movl $PORT_DONE, %edx
    outb %al, %dx
    jmp next_command

    # The first touch of a page costs a fault of the host's: taken here, so that no sample and no count has it.
prepare:
    movq BLOCK_BUFFER(%r15), %rdi
    movq BLOCK_SAMPLES(%r15), %rsi
    leaq (%rdi, %rsi, 8), %rsi
2:  movb $0, (%rdi)
    addq $4096, %rdi
    cmpq %rsi, %rdi
    jb 2b
    ret

    # Returns after BLOCK_DELAY cycles.
await_delay:
    tsc %r11
    addq BLOCK_DELAY(%r15), %r11
2:  pause
    rdtsc
    shlq $32, %rdx
    orq %rdx, %rax
    cmpq %r11, %rax
    jb 2b
    ret

    # Two ways to go wrong, for the tests of what the host does then.
spin_for_ever:
    pause
    jmp spin_for_ever
undefined_opcode:
    ud2

    # Divides by zero for BLOCK_DELAY cycles. Each fault has to find the stack where the routine has it: the sample is
    # how many did not, because the processor had gone back to the division with the handler's stack.
faulting:
    begin
    movq %rsp, %rbx
    xorl %r11d, %r11d
    tsc %rsi
    addq BLOCK_DELAY(%r15), %rsi
2:  xorl %ecx, %ecx
    divl %ecx
divided:
    rdtsc
    shlq $32, %rdx
    orq %rdx, %rax
    cmpq %rsi, %rax
    jb 2b
    movq %r11, (%r14)
    ret

on_divide:
    cmpq %rbx, 24(%rsp)
    je 2f
    incq %r11
    movq %rbx, 24(%rsp)
2:  leaq divided(%rip), %rax
    movq %rax, (%rsp)
    iretq

# ---- interrupts that nobody asked for -------------------------------------------------------------------

on_spurious:
    iretq

    # One stub a vector, eight bytes apart: the return address tells the vector.
    .balign 8
vectors:
    .rept 256
    call unexpected
    .balign 8
    .endr

unexpected:
    popq %rax
    leaq vectors(%rip), %rcx
    subq %rcx, %rax
    shrq $3, %rax
    movq %rax, BLOCK_FAULT_VECTOR(%r15)
    xorl %edx, %edx
    cmpq $32, %rax
    jae 2f
    # The exceptions that push an error code: 8, 10 to 14, 17, 21, 29, 30 (SDM vol. 3, table 6-1; APM vol. 2).
    movl $0x60227d00, %ecx
    btl %eax, %ecx
    jnc 2f
    popq %rdx
2:  movq %rdx, BLOCK_FAULT_CODE(%r15)
    popq %rdx
    movq %rdx, BLOCK_FAULT_RIP(%r15)
    movl $PORT_FAULT, %edx
    outb %al, %dx
3:  hlt
    jmp 3b

# ---- measures that do not touch the APIC ----------------------------------------------------------------

    .macro measure name
    .balign 16
\name:
    begin
2:  tsc %r8
    .endm
    .macro measured
    tsc %r9
    call record
    jnz 2b
    ret
    .endm

    measure floor
    measured

    measure cpuid_leaf
    xorl %eax, %eax
    cpuid
    measured

    measure pio_kernel
    movl $PORT_EVENTFD, %edx
    outb %al, %dx
    measured

    measure pio_user
    movl $PORT_USER, %edx
    outb %al, %dx
    measured

    measure mmio_user
    movl $MMIO_USER, %ecx
    movl %eax, (%rcx)
    measured

    measure mmio_eventfd
    movl $MMIO_EVENTFD, %ecx
    movl %eax, (%rcx)
    measured

    # IA32_APIC_BASE
    measure msr_read
    movl $0x1b, %ecx
    rdmsr
    measured

    # IA32_BIOS_SIGN_ID (AMD: PATCH_LEVEL): KVM ignores what a guest writes.
    measure msr_write
    movl $0x8b, %ecx
    xorl %eax, %eax
    xorl %edx, %edx
    wrmsr
    measured

# ---- the receiving side of an IPI -----------------------------------------------------------------------

    # BLOCK_READY is n + 1 when the target can take IPI number n + 1.
target_running:
    movq $1, BLOCK_READY(%r15)
    sti
2:  pause
    cmpq $0, BLOCK_STOP(%r15)
    je 2b
    cli
    ret

    # The same, but out of the guest again and again, so that IPIs meet every moment of leaving and entering it.
target_exiting:
    movq $1, BLOCK_READY(%r15)
    sti
2:  xorl %eax, %eax
    cpuid
    cmpq $0, BLOCK_STOP(%r15)
    je 2b
    cli
    ret

    # No interrupt can come between the announcement and HLT: STI holds it back for one instruction. A
    # hypervisor that loses this when it re-enters the guest (QEMU's emulation of VMRUN does) would have the
    # interrupt taken before HLT, which then never ends: skip_halt fixes that.
target_halted:
    cmpq $0, BLOCK_STOP(%r15)
    jne 2f
    incq BLOCK_READY(%r15)
    sti
target_halt:
    hlt
    cli
    jmp target_halted
2:  ret

    # In a handler, before anything is pushed: if the interrupted instruction is the HLT at \halt, which is one
    # byte long, continue after it; not zero in %rax then.
    .macro skip_halt halt
    leaq \halt(%rip), %rcx
    xorl %eax, %eax
    cmpq %rcx, (%rsp)
    sete %al
    addq %rax, (%rsp)
    .endm
