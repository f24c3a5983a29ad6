# The guest, part 3 of 3: everything that touches the APIC, once for each of its interfaces.

    .macro apic_code mode

entry_\mode:
    movl $APIC_BASE, %ebp
    movl $(0x100 | VECTOR_SPURIOUS), %eax
    apic_\mode APIC_SVR
    jmp next_command

on_ipi_\mode:
    incq BLOCK_ACK(%r15)
    end_of_interrupt \mode
    incq BLOCK_READY(%r15)
    iretq

on_wake_\mode:
    skip_halt target_halt
    incq BLOCK_ACK(%r15)
    end_of_interrupt \mode
    iretq

    # The EOI comes after the second TSC read. %r10 is 1, or 2 when the interrupt came before the HLT.
on_halt_\mode:
    skip_halt halt_now_\mode
    leaq 1(%rax), %r10
    iretq

on_self_\mode:
    tsc %r9
    end_of_interrupt \mode
    incq %r10
    iretq

on_timer_\mode:
    tsc %r9
    end_of_interrupt \mode
    incq %r10
    iretq

on_eoi_\mode:
    tsc %r8
    end_of_interrupt \mode
    tsc %r9
    incq %r10
    iretq

    # Each IPI waits until the target has left the handler of the one before, so that the samples are
    # independent and no IPI meets an interrupt in service.
    .balign 16
ipi_running_\mode:
    begin
    movq BLOCK_PEER(%r15), %rbx
    xorl %esi, %esi
2:  cmpq %rsi, BLOCK_READY(%rbx)
    ja 3f
    pause
    jmp 2b
3:  incq %rsi
    tsc %r8
    ipi_to_peer_\mode VECTOR_IPI
4:  cmpq %rsi, BLOCK_ACK(%rbx)
    jae 5f
    pause
    jmp 4b
5:  tsc %r9
    call record
    jnz 2b
6:  cmpq %rsi, BLOCK_READY(%rbx)
    ja 7f
    pause
    jmp 6b
7:  movq $1, BLOCK_STOP(%rbx)
    ret

    .balign 16
ipi_halted_\mode:
    begin
    movq BLOCK_PEER(%r15), %rbx
    xorl %esi, %esi
2:  call await_halt_\mode
    incq %rsi
    tsc %r8
    ipi_to_peer_\mode VECTOR_WAKE
4:  cmpq %rsi, BLOCK_ACK(%rbx)
    jae 5f
    pause
    jmp 4b
5:  tsc %r9
    call record
    jnz 2b
    # One more, which no sample is taken of, to let the target see that it is over.
    call await_halt_\mode
    movq $1, BLOCK_STOP(%rbx)
    mfence
    ipi_to_peer_\mode VECTOR_WAKE
    ret

await_halt_\mode:
    cmpq %rsi, BLOCK_READY(%rbx)
    ja await_delay
    pause
    jmp await_halt_\mode

    .balign 16
self_ipi_\mode:
    begin
    sti
2:  xorl %r10d, %r10d
    tsc %r8
    ipi_to_self_\mode VECTOR_SELF
3:  pause
    testq %r10, %r10
    jz 3b
    call record
    jnz 2b
    cli
    ret

    .balign 16
eoi_\mode:
    begin
    sti
2:  xorl %r10d, %r10d
    ipi_to_self_\mode VECTOR_EOI
3:  pause
    testq %r10, %r10
    jz 3b
    call record
    jnz 2b
    cli
    ret

    # Priority class 1 at most: it holds back no vector that is in use.
    .balign 16
tpr_write_\mode:
    begin
    xorl %r10d, %r10d
2:  xorl $0x10, %r10d
    tsc %r8
    movl %r10d, %eax
    apic_\mode APIC_TPR
    tsc %r9
    call record
    jnz 2b
    xorl %eax, %eax
    apic_\mode APIC_TPR
    ret

    # TSC-deadline mode (SDM vol. 3, "TSC-Deadline Mode"); the fence is the one it asks for in xAPIC mode.
deadline_mode_\mode:
    movl $(VECTOR_TIMER | 2 << 17), %eax
    apic_\mode APIC_LVT_TIMER
    mfence
    ret

    # The deadline is 2^38 cycles away: at 5 GHz most of a minute.
    .balign 16
timer_arm_\mode:
    begin
    call deadline_mode_\mode
2:  tsc %r8
    movl %r8d, %eax
    movq %r8, %rdx
    shrq $32, %rdx
    addl $64, %edx
    movl $0x6e0, %ecx
    wrmsr
    tsc %r9
    call record
    jnz 2b
    xorl %eax, %eax
    xorl %edx, %edx
    movl $0x6e0, %ecx
    wrmsr
    ret

    .balign 16
timer_fire_\mode:
    begin
    call deadline_mode_\mode
2:  xorl %r10d, %r10d
    tsc %r8
    addq BLOCK_DELAY(%r15), %r8
    movl %r8d, %eax
    movq %r8, %rdx
    shrq $32, %rdx
    movl $0x6e0, %ecx
    wrmsr
    sti
3:  pause
    testq %r10, %r10
    jz 3b
    cli
    cmpq %r8, %r9
    cmovbq %r8, %r9
    call record
    jnz 2b
    ret

    .balign 16
halt_\mode:
    begin
2:  ipi_to_self_\mode VECTOR_HALT
    tsc %r8
    sti
halt_now_\mode:
    hlt
    tsc %r9
    cli
    end_of_interrupt \mode
    cmpq $1, %r10
    jne 2b
    call record
    jnz 2b
    ret

    # Each sample is how many interrupts came before STI: none.
    .balign 16
masked_\mode:
    begin
2:  xorl %r10d, %r10d
    ipi_to_self_\mode VECTOR_SELF
    call await_delay
    movq %r10, %r8
    sti
3:  pause
    testq %r10, %r10
    jz 3b
    cli
    movq %r8, %r9
    xorl %r8d, %r8d
    call record
    jnz 2b
    ret

    # An interrupt whose frame is the first thing ever written to its page, so that its delivery leaves the guest. Its
    # handler counts where those of other self-IPIs do not: the sample is 1, or 0 if another vector came instead.
    .balign 16
untouched_stack_\mode:
    begin
    movq %rsp, %rbx
    movl $UNTOUCHED_STACK, %esp
    xorl %r10d, %r10d
    sti
    ipi_to_self_\mode VECTOR_IPI
2:  pause
    cmpq $0, BLOCK_ACK(%r15)
    jne 3f
    testq %r10, %r10
    jz 2b
3:  cli
    movq %rbx, %rsp
    movq BLOCK_ACK(%r15), %rax
    movq %rax, (%r14)
    ret

    .endm

    apic_code xapic
    apic_code x2apic

exitless_probe_payload_end:
    .popsection
