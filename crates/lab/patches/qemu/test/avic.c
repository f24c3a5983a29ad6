/*
 * AVIC and x2AVIC, on the bare machine; part of svm.c, whose head says how it is run.
 *
 * Sources: AMD64 Architecture Programmer's Manual, volume 2, section 15.29 (AVIC), table 15-22 (what an access does), and
 * appendix B (VMCB); Linux arch/x86/kvm/svm/avic.c for who clears ISR when an EOI exits.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#define AVIC (1u << 31)
#define X2AVIC (AVIC | 1u << 30)
#define FIELD(offset) (*(u64 *)(vmcb_page.page + (offset)))
#define APIC_BAR 0x98
#define BACKING_PAGE 0xe0
#define LOGICAL_TABLE 0xf0
#define PHYSICAL_TABLE 0xf8
#define EXIT_DB 0x41
#define EXIT_GP 0x4d
#define EXIT_INCOMPLETE_IPI 0x401
#define EXIT_NOACCEL 0x402
#define EXIT_INVALID (~0ul)
#define ENTRY_VALID (1ul << 63)
#define ENTRY_RUNNING (1ul << 62)
#define DOORBELL 0xc001011b
enum { INVALID_TYPE, NOT_RUNNING, INVALID_TARGET, INVALID_PAGE, INVALID_VECTOR };
enum { ID = 0x20, LDR = 0xd0, TPR = 0x80, EOI = 0xb0, DFR = 0xe0, ISR = 0x100, TMR = 0x180, IRR = 0x200, ICR = 0x300, ICRH = 0x310, LVT_TIMER = 0x320, SELF_IPI = 0x3f0 };
#define LOW 0x40
#define HIGH 0x60
#define OWN 0x50
#define SELF 0x40000
#define LOGICAL 0x800

static u8 backing[3][4096] PAGE, other_vmcb[4096] PAGE, other_save[4096] PAGE, other_stack[4096] PAGE;
static u64 physical[512] PAGE;
static u32 logical[1024] PAGE;
/* The access of the guest */
u64 access_address, access_value;
u32 access_msr;
volatile u64 taken; /* the vectors of LOW and HIGH, a byte each */
u32 x2;

HANDLER(on_low, "shlq $8, taken\naddq $0x40, taken\n");
HANDLER(on_high, "shlq $8, taken\naddq $0x60, taken\n");
/* #DB of a step, which is the last one */
volatile u64 steps;
HANDLER(on_step, "incq steps\nandl $~0x100, 16(%rsp)\n");

#define STUB(name, load, what) \
    void name(void), name##_at(void), name##_behind(void); \
    asm(#name ":\n" load #name "_at: " what "\n" #name "_behind: jmp guest_call\n")
STUB(mmio_write, "mov access_address, %rdi\nmov access_value, %eax\n", "mov %eax, (%rdi)");
STUB(mmio_read, "mov access_address, %rdi\n", "mov (%rdi), %eax");
STUB(msr_write, "mov access_msr, %ecx\nmov access_value, %eax\nmov access_value + 4, %edx\n", "wrmsr");
STUB(msr_read, "mov access_msr, %ecx\n", "rdmsr");
/* TF counts from the instruction behind POPF. */
#define STEP "pushf\norl $0x100, (%rsp)\npopf\n"
STUB(mmio_step, "mov access_address, %rdi\nmov access_value, %eax\n" STEP, "mov %eax, (%rdi)");
STUB(msr_step, "mov access_msr, %ecx\nmov access_value, %eax\nmov access_value + 4, %edx\n" STEP, "wrmsr");
STUB(cr8_write, "mov access_value, %rax\n", "mov %rax, %cr8");

static void zero(void *at, u64 size) { asm volatile("rep stosb" : "+D"(at), "+c"(size) : "a"(0) : "memory"); }
static volatile u32 *at(u32 cpu, u32 base, u32 vector) { return (volatile u32 *)(backing[cpu] + base + (vector >> 5) * 16); }
static void set(u32 cpu, u32 base, u32 vector) { *at(cpu, base, vector) |= 1u << (vector & 31); }
static u32 is_set(u32 cpu, u32 base, u32 vector) { return *at(cpu, base, vector) >> (vector & 31) & 1; }

/* vCPU 0 is the one that runs; 1 and 2 are valid and not running; the logical IDs are bits of the flat model. */
static void avic_guest(void (*rip)(void))
{
    guest(rip, guest_stack + 4096 - 8);
    zero(backing, sizeof(backing));
    zero(physical, sizeof(physical));
    zero(logical, sizeof(logical));
    for (u32 cpu = 0; cpu < 3; cpu++) {
        physical[cpu] = ENTRY_VALID | (u64)backing[cpu] | cpu;
        logical[cpu] = 1u << 31 | cpu;
        *(u32 *)(backing[cpu] + DFR) = ~0u;
    }
    physical[0] |= ENTRY_RUNNING;
    vmcb->int_ctl |= x2 ? X2AVIC : AVIC;
    vmcb->intercepts[2] = 1 << 13; /* #GP */
    FIELD(APIC_BAR) = 0xfee00000;
    FIELD(BACKING_PAGE) = (u64)backing[0];
    FIELD(LOGICAL_TABLE) = (u64)logical;
    FIELD(PHYSICAL_TABLE) = (u64)physical | 15;
    taken = 0;
}

static void prepare_access(u32 offset, u64 value)
{
    access_address = 0xfee00000 + offset;
    access_msr = 0x800 + offset / 16;
    access_value = value;
}

/* One access in a fresh guest; whether it exited at the access (1), behind it (2) or not at all (0). */
static u32 how_exited(int write)
{
    u64 at = (u64)(write ? x2 ? msr_write_at : mmio_write_at : x2 ? msr_read_at : mmio_read_at);
    u64 behind = (u64)(write ? x2 ? msr_write_behind : mmio_write_behind : x2 ? msr_read_behind : mmio_read_behind);
    return vmcb->exit_code == EXIT_VMMCALL ? 0 : vmcb->rip == at ? 1 : vmcb->rip == behind ? 2 : 3;
}
static void prepare_write(u32 offset, u64 value)
{
    avic_guest(x2 ? msr_write : mmio_write);
    prepare_access(offset, value);
}
/* The ICR: its upper half is a register of its own in an xAPIC, and has the destination in its upper byte. */
static void ipi(u32 destination, u32 command)
{
    u32 upper = x2 ? destination : destination << 24;
    prepare_write(ICR, (u64)upper << 32 | command);
    *(u32 *)(backing[0] + ICRH) = upper;
}

static void checked(const char *name, u64 found, u64 wanted)
{
    check(name, found == wanted, "found", found, wanted);
}
/* All that an exit says, in one number. */
static u64 said(void) { return vmcb->exit_code << 48 ^ vmcb->exit_info_1 << 8 ^ vmcb->exit_info_2 ^ (u64)how_exited(1) << 44; }
static u64 says(u64 code, u64 info_1, u64 info_2) { return code << 48 ^ info_1 << 8 ^ info_2 ^ 2ul << 44; }
static u64 incomplete(u32 destination, u32 command, u64 id, u64 index)
{
    u64 upper = x2 ? destination : destination << 24;
    return says(EXIT_INCOMPLETE_IPI, upper << 32 | command, id << 32 | index);
}

/* An x2APIC has no DFR and no upper half of the ICR, and its ID and LDR are read-only (16.11). */
static u32 refused_msr(u32 offset, int write)
{
    return x2 && (offset == DFR || offset == ICRH || (write && (offset == ID || offset == LDR)));
}

/* Table 15-22: 0 carried out, 1 fault, 2 trap */
static u32 table(u32 offset, int write)
{
    static const u16 traps[] = { 0x20, 0xc0, 0xd0, 0xe0, 0xf0, 0x280, 0x320, 0x330, 0x340, 0x350, 0x360, 0x370, 0x380, 0x3e0 };
    if (refused_msr(offset, write)) return 1; /* #GP */
    if (offset == 0x90 || offset == 0x390 || offset >= 0x400) return 1;
    if (!write) return 0;
    if (offset == 0x30 || offset == 0xa0 || (offset >= 0x100 && offset <= 0x270)) return 1;
    for (u32 i = 0; i < sizeof(traps) / sizeof(*traps); i++) if (traps[i] == offset) return 2;
    return 0;
}
static void test_table(void)
{
    u64 wrong = 0;
    for (u32 offset = 0; offset < 0x1000 && !wrong; offset += 16) {
        for (int write = 0; write <= 1 && !wrong; write++) {
            u32 wanted = table(offset, write), value = offset == ICR ? SELF | LOW : offset == SELF_IPI ? LOW : 0x10;
            avic_guest(write ? x2 ? msr_write : mmio_write : x2 ? msr_read : mmio_read);
            prepare_access(offset, value);
            *(u32 *)(backing[0] + offset) = offset == DFR ? ~0u : 0;
            enter();
            int gp = refused_msr(offset, write);
            u64 code = gp ? EXIT_GP : wanted ? EXIT_NOACCEL : EXIT_VMMCALL;
            u64 info = gp || !wanted ? 0 : offset | (u64)write << 32;
            u32 stored = *(u32 *)(backing[0] + offset) == value;
            int right = how_exited(write) == wanted && vmcb->exit_code == code && (!info || vmcb->exit_info_1 == info)
                        && (!write || wanted != 2 || stored) && (!write || wanted != 1 || gp || !stored);
            if (!right) wrong = vmcb->exit_code << 32 | (u64)how_exited(write) << 28 | (u64)write << 24 | offset | 1;
        }
    }
    checked("avic: each register is read and written as table 15-22 says", wrong, 0);
}

static void test_eoi(void)
{
    prepare_write(EOI, 0);
    set(0, ISR, HIGH);
    set(0, TMR, HIGH);
    enter();
    checked("avic: EOI of a level-triggered interrupt exits with its vector", said(), says(EXIT_NOACCEL, EOI | 1ul << 32, HIGH));
    checked("avic: and leaves it in service", is_set(0, ISR, HIGH), 1);
    *at(0, ISR, HIGH) = 0; /* as the hypervisor does */
    enter();
    checked("avic: once", vmcb->exit_code, EXIT_VMMCALL);
    prepare_write(EOI, 0);
    set(0, ISR, HIGH);
    set(0, ISR, LOW);
    enter();
    checked("avic: EOI of another one takes the highest out of service, without an exit",
            vmcb->exit_code << 8 | is_set(0, ISR, HIGH) << 4 | is_set(0, ISR, LOW), EXIT_VMMCALL << 8 | 1);
}

static void test_ipi(void)
{
    ipi(1, LOW);
    enter();
    checked("avic: an IPI to a vCPU that does not run exits", said(), incomplete(1, LOW, NOT_RUNNING, 1));
    checked("avic: and is requested", is_set(1, IRR, LOW), 1);
    ipi(5, LOW);
    enter();
    checked("avic: an IPI to nobody exits", said(), incomplete(5, LOW, INVALID_TARGET, 5));
    ipi(16, LOW);
    physical[16] = physical[1];
    enter();
    checked("avic: and one beyond the table's last index", said(), incomplete(16, LOW, INVALID_TARGET, 16));
    ipi(1, 15);
    enter();
    checked("avic: an IPI of a vector below 16 exits", said(), incomplete(1, 15, INVALID_VECTOR, 0));
    ipi(1, NMI);
    enter();
    checked("avic: an NMI by IPI exits", said(), incomplete(1, NMI, INVALID_TYPE, 0));
    ipi(1, LOW);
    physical[1] = ENTRY_VALID | ENTRY_RUNNING | 1ul << 40;
    enter();
    checked("avic: an IPI to a vCPU without memory exits", said(), incomplete(1, LOW, INVALID_PAGE, 1));
    ipi(0, 0xc0000 | LOW);
    enter();
    checked("avic: an IPI to all but itself is requested of all, and exits for those that do not run",
            said() ^ is_set(0, IRR, LOW) << 4 ^ is_set(1, IRR, LOW) << 5 ^ is_set(2, IRR, LOW) << 6,
            incomplete(0, 0xc0000 | LOW, NOT_RUNNING, 2) ^ 3 << 5);
    ipi(6, LOGICAL | LOW);
    enter();
    checked("avic: a logical IPI to two is requested of both", is_set(1, IRR, LOW) + is_set(2, IRR, LOW), 2);
    ipi(2 | 16, LOGICAL | LOW);
    enter();
    checked("avic: one of whose targets is nobody exits", said(), incomplete(2 | 16, LOGICAL | LOW, INVALID_TARGET, 4));
    checked("avic: and is requested of none", is_set(1, IRR, LOW), 0);
    if (!x2) {
        ipi(0x12, LOGICAL | LOW);
        *(u32 *)(backing[0] + DFR) = 0x0fffffff;
        logical[5] = 1u << 31 | 2;
        enter();
        checked("avic: in the cluster model entry 4 * cluster + bit counts", said(), incomplete(0x12, LOGICAL | LOW, NOT_RUNNING, 5));
        checked("avic: and the vCPU that it names", is_set(2, IRR, LOW), 1);
    }
}

/*
 * One instruction both traps and is a step. The manual does not say which comes first, but neither may be lost: the guest
 * gets its #DB, or the hypervisor the exit of it, and the hypervisor the exit of the trap.
 */
static void test_step(void)
{
    static const char *const names[2][2] = {
        { "avic: a write that is a step and traps: the guest gets its #DB, the hypervisor the exit", "avic: so with an IPI that is not complete" },
        { "avic: the same with #DB intercepted: the hypervisor gets two exits", "avic: and so with an IPI" },
    };
    for (u32 intercepted = 0; intercepted <= 1; intercepted++) {
        for (u32 is_ipi = 0; is_ipi <= 1; is_ipi++) {
            u32 traps = 0, stops = 0, others = 0;
            ipi(1, LOW);
            if (!is_ipi) prepare_access(LVT_TIMER, 1 << 16 | LOW);
            vmcb->rip = (u64)(x2 ? msr_step : mmio_step);
            vmcb->intercepts[2] |= intercepted << 1;
            steps = 0;
            for (u32 turn = 0; turn < 4; turn++) {
                enter();
                if (vmcb->exit_code == EXIT_VMMCALL) break;
                if (vmcb->exit_code == (is_ipi ? EXIT_INCOMPLETE_IPI : EXIT_NOACCEL)) traps++;
                else if (vmcb->exit_code == EXIT_DB && (vmcb->dr6 & 1 << 14)) stops++, vmcb->rflags &= ~0x100ul;
                else others++;
            }
            checked(names[intercepted][is_ipi], traps << 16 | stops << 12 | (u32)steps << 8 | others << 4 | (vmcb->exit_code == EXIT_VMMCALL),
                    1 << 16 | (intercepted ? 1 << 12 : 1 << 8) | 1);
        }
    }
}

static void test_delivery(void)
{
    prepare_write(ICR, SELF | LOW);
    enter();
    checked("avic: an IPI to itself is delivered without an exit", taken << 16 | vmcb->exit_code, LOW << 16 | EXIT_VMMCALL);
    checked("avic: and is in service", is_set(0, ISR, LOW) << 1 | is_set(0, IRR, LOW), 2);
    if (x2) {
        prepare_write(SELF_IPI, LOW);
        enter();
        checked("avic: and so is one by the register for them", taken << 16 | vmcb->exit_code, LOW << 16 | EXIT_VMMCALL);
    }
    prepare_write(EOI, 0);
    set(0, IRR, LOW);
    set(0, IRR, HIGH);
    enter();
    checked("avic: the highest of two is delivered, the other at its EOI", taken, HIGH << 8 | LOW);

    for (u32 by_cr8 = 0; by_cr8 <= 1; by_cr8++) {
        prepare_write(TPR, 0x30);
        if (by_cr8) {
            vmcb->rip = (u64)cr8_write;
            access_value = 3;
        }
        vmcb->int_ctl |= 4; /* V_TPR */
        set(0, IRR, LOW);
        u64 early = vmcb->rip;
        vmcb->rip = (u64)guest_call;
        enter();
        checked("avic: V_TPR holds an interrupt back", taken << 1 | is_set(0, IRR, LOW), 1);
        vmcb->rip = early;
        enter();
        checked(by_cr8 ? "avic: CR8 lets it through" : "avic: a lower TPR lets it through", taken, LOW);
        checked("avic: and is the other's value", *(u32 *)(backing[0] + TPR) << 8 | (vmcb->int_ctl & 15), 0x3003);
    }

    avic_guest(guest_call);
    set(0, IRR, LOW);
    vmcb->rflags = 2;
    enter();
    checked("avic: a guest that masks interrupts gets none", taken << 1 | is_set(0, IRR, LOW), 1);

    avic_guest(guest_spin);
    set(0, IRR, LOW);
    vmcb->rsp = (u64)absent + 4096;
    npt2[(u64)absent >> 21] = 0;
    enter();
    checked("avic: an interrupt whose delivery faults is in EXITINTINFO, and in service",
            (u64)vmcb->exit_int_info << 16 | vmcb->exit_code << 2 | is_set(0, ISR, LOW) << 1 | is_set(0, IRR, LOW),
            (u64)(VALID | LOW) << 16 | EXIT_NPF << 2 | 2);
}

static void refused(const char *name, u32 offset, u64 value)
{
    avic_guest(guest_call);
    FIELD(offset) = value;
    enter();
    checked(name, vmcb->exit_code, EXIT_INVALID);
}
static void test_refusal(void)
{
    refused("avic: VMRUN refuses an index beyond the mode's", PHYSICAL_TABLE, (u64)physical | (x2 ? 512 : 256));
    refused("avic: and a backing page beyond the address space", BACKING_PAGE, 1ul << 51);
    refused("avic: a logical table", LOGICAL_TABLE, 1ul << 51);
    refused("avic: a physical table", PHYSICAL_TABLE, 1ul << 51);
    refused("avic: AVIC without nested paging", 0x90, 0);
    if (x2) {
        avic_guest(guest_call);
        vmcb->int_ctl &= ~AVIC;
        enter();
        checked("avic: and x2AVIC without AVIC", vmcb->exit_code, EXIT_INVALID);
    }
}

/* A second processor, whose guest waits for an interrupt and does not exit before. */
asm("guest_wait: incq other_turns\ncmpq $0, taken\nje guest_wait\njmp guest_call\n");
void guest_wait(void);
volatile u64 other_turns, other_left;
static void other_guest(void)
{
    wrmsr(0xc0010117, (u64)other_save);
    asm volatile("push %%rbp\nvmrun %%rax\nstgi\npop %%rbp" :: "a"(other_vmcb)
                 : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory");
    other_left = *(u64 *)(other_vmcb + 0x70);
}
/* vCPU 1, on the other processor */
static void start_other_guest(void)
{
    avic_guest(guest_wait);
    vmcb->rsp = (u64)other_stack + 4096 - 8;
    FIELD(BACKING_PAGE) = (u64)backing[1];
    for (u32 i = 0; i < 512; i++) ((volatile u64 *)other_vmcb)[i] = ((u64 *)vmcb_page.page)[i];
    other_turns = other_left = 0;
    give(GUEST);
    while (!other_turns) asm volatile("pause");
}
/* Its exit, when there is one */
static u64 wait_for_other_guest(void)
{
    for (u64 end = rdtsc() + 1000000000; !other_left && rdtsc() < end;) asm volatile("pause");
    give(IDLE);
    return other_left;
}
static void test_running(void)
{
    start_other_guest();
    /* As ipi(1, LOW), and avic_guest() again, but for what the other one uses. */
    vmcb->rip = (u64)(x2 ? msr_write : mmio_write);
    vmcb->rsp = (u64)guest_stack + 4096 - 8;
    FIELD(BACKING_PAGE) = (u64)backing[0];
    prepare_access(ICR, (x2 ? 1ul << 32 : 1ul << 56) | LOW);
    *(u32 *)(backing[0] + ICRH) = x2 ? 1 : 1 << 24;
    physical[1] |= ENTRY_RUNNING;
    enter();
    u64 sender = vmcb->exit_code, other = wait_for_other_guest();
    checked("avic: an IPI to a vCPU that runs exits on neither side", sender << 32 | other << 16 | taken,
            (u64)EXIT_VMMCALL << 32 | EXIT_VMMCALL << 16 | LOW);
}

/* Both processors are in guests when the machine is migrated: one whose interrupt is masked, and one that waits. */
asm("guest_moved: mov $0x3fd, %edx\n1: in %dx, %al\ntest $1, %al\njz 1b\nmov $0x3f8, %edx\nin %dx, %al\n"
    "sti\nnop\ncmpl $0, x2\njne msr_write\njmp mmio_write\n");
void guest_moved(void);
static void test_moved(u32 wanted)
{
    gate(&guest_idt[LOW], on_low, INTERRUPT_GATE);
    x2 = wanted;
    mode = x2 ? " (x2APIC)" : " (xAPIC)";
    start_other_guest();
    vmcb->rip = (u64)guest_moved;
    vmcb->rsp = (u64)guest_stack + 4096 - 8;
    vmcb->rflags = 2;
    FIELD(BACKING_PAGE) = (u64)backing[0];
    prepare_access(ICR, (x2 ? 1ul << 32 : 1ul << 56) | LOW);
    *(u32 *)(backing[0] + ICRH) = x2 ? 1 : 1 << 24;
    physical[1] |= ENTRY_RUNNING;
    set(0, IRR, OWN);
    put("migrate\n");
    enter();
    u64 sender = vmcb->exit_code, other = wait_for_other_guest();
    checked("moved: guests with AVIC get their interrupts, and send them, on another machine",
            sender << 32 | other << 16 | guest_interrupts << 8 | taken, (u64)EXIT_VMMCALL << 32 | EXIT_VMMCALL << 16 | 1 << 8 | LOW);
    mode = "";
}

static void test_avic(u32 cpus)
{
    gate(&guest_idt[LOW], on_low, INTERRUPT_GATE);
    gate(&guest_idt[HIGH], on_high, INTERRUPT_GATE);
    gate(&guest_idt[1], on_step, INTERRUPT_GATE);
    for (x2 = 0; x2 <= 1; x2++) {
        mode = x2 ? " (x2APIC)" : " (xAPIC)";
        test_table();
        test_eoi();
        test_ipi();
        test_step();
        test_delivery();
        test_refusal();
        if (cpus > 1) test_running();
    }
    mode = "";
    wrmsr(DOORBELL, 0);
    check("avic: a doorbell outside of a guest is forgotten", 1, "", 0, 0);
}
