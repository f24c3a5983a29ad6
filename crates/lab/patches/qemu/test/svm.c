/*
 * Provokes the faults that the patches in the folder above fix, on the bare machine.
 *
 *   cc -O2 -static -nostdlib -ffreestanding -fno-pic -no-pie -fno-stack-protector -fcf-protection=none
 *      -fno-asynchronous-unwind-tables -mno-red-zone -mgeneral-regs-only -Wl,-Ttext-segment=0x100000
 *      -Wl,--build-id=none -Wl,-estart32 -o svm svm.c
 *   qemu-system-x86_64 ... -kernel svm -append "TEST..." -chardev stdio,id=out
 *      -device isa-debugcon,iobase=0x403,chardev=out -device isa-debug-exit
 *
 * Prints a line for each test of the command line: `ok NAME`, `FAIL NAME: ...` or figures. Ends by isa-debug-exit: QEMU's
 * status is 1 if all passed, else 3. Entered by PVH (the note below), switches to long mode, and maps the first 4 GiB.
 *
 * `moved`, `started` and `migrated` print `migrate`, and go on when a byte comes in at the first serial port (0x3f8). `resumed`
 * prints it too, and then stops at -device virtio-serial-pci,ioeventfd=off -device virtconsole,chardev=...,expected-input=1 until
 * it goes on in a machine without that input. `jump` and `resumed` want -icount sleep=off,quantum=512 and two processors.
 *
 * `current` wants -icount and a CPU with x2APIC, and leaves the APIC in that mode.
 *
 * `disk` reads from -blockdev null-co,node-name=disk,latency-ns=100000000 -device virtio-blk-pci,drive=disk,disable-legacy=off.
 *
 * Sources: AMD64 Architecture Programmer's Manual, volume 2, appendix B (layout of the VMCB) and chapter 15; chapter 16
 * (local APIC); Xen's docs/misc/pvh.pandoc (entry); Virtual I/O Device, version 1.2, sections 2.7 and 4.1.4.10 (the legacy
 * interface's registers and virtqueue).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;

#define PAGE __attribute__((aligned(4096)))
#define STACK 16384
#define CPUS 8

asm(".pushsection .note.pvh, \"a\", @note\n"
    ".long 4, 4, 18\n.asciz \"Xen\"\n.long start32\n.popsection\n");

u64 pml4[512] PAGE, pdpt[512] PAGE, pds[4][512] PAGE;
u8 stacks[CPUS][STACK] PAGE;
u64 gdt[] = { 0, 0x00209b0000000000, 0x0000930000000000, 0x00cf9b000000ffff, 0x00cf93000000ffff };
struct { u16 limit; u64 base; } __attribute__((packed)) gdtr = { sizeof(gdt) - 1, (u64)gdt };
u32 next_cpu, start_info;

asm(".code32\n.globl start32\nstart32:\n"
    "cli\ncld\nmov %ebx, start_info\n"
    /* Identity mapping by 2 MiB pages. */
    "mov $pds, %edi\nmov $0x87, %eax\nmov $2048, %ecx\n"
    "1: mov %eax, (%edi)\nmovl $0, 4(%edi)\nadd $8, %edi\nadd $0x200000, %eax\nloop 1b\n"
    "mov $pds, %eax\nor $7, %eax\nmov $pdpt, %edi\nmov $4, %ecx\n"
    "2: mov %eax, (%edi)\nadd $8, %edi\nadd $4096, %eax\nloop 2b\n"
    "movl $pdpt + 7, pml4\n"
    "lgdt gdtr\n"
    ".globl ap32\nap32:\n"
    "mov $0x10, %eax\nmov %eax, %ds\nmov %eax, %es\nmov %eax, %ss\n"
    "mov $0x20, %eax\nmov %eax, %cr4\n" /* PAE */
    "mov $pml4, %eax\nmov %eax, %cr3\n"
    "mov $0xc0000080, %ecx\nxor %edx, %edx\nmov $0x1100, %eax\nwrmsr\n" /* LME, SVME */
    "mov $0x80000011, %eax\nmov %eax, %cr0\n"
    "ljmp $8, $start64\n"
    ".code64\nstart64:\n"
    "mov $1, %edi\nlock xadd %edi, next_cpu\n"
    "mov %edi, %eax\ninc %eax\nimul $16384, %eax\nlea stacks(%eax), %esp\n"
    "call entered\n1: hlt\njmp 1b\n"
    /* An application processor: copied to 0x8000, where real mode begins. */
    ".globl trampoline, trampoline_end\n.code16\ntrampoline:\n"
    "cli\nxor %ax, %ax\nmov %ax, %ds\nlgdtl 0x8000 + tramp_gdtr - trampoline\n"
    "mov $0x11, %eax\nmov %eax, %cr0\nljmpl $0x18, $ap32\n"
    "tramp_gdtr: .word 39\n.long gdt\n"
    "trampoline_end:\n.code64\n");

static inline void out8(u16 port, u8 value) { asm volatile("outb %0, %1" :: "a"(value), "Nd"(port)); }
static inline u8 in8(u16 port) { u8 value; asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port)); return value; }
static inline void out32(u16 port, u32 value) { asm volatile("outl %0, %1" :: "a"(value), "Nd"(port)); }
static inline u32 in32(u16 port) { u32 value; asm volatile("inl %1, %0" : "=a"(value) : "Nd"(port)); return value; }
static inline void out16(u16 port, u16 value) { asm volatile("outw %0, %1" :: "a"(value), "Nd"(port) : "memory"); }
static inline u16 in16(u16 port) { u16 value; asm volatile("inw %1, %0" : "=a"(value) : "Nd"(port)); return value; }
static inline u64 rdtsc(void) { u32 a, d; asm volatile("lfence\nrdtsc" : "=a"(a), "=d"(d) :: "memory"); return a | (u64)d << 32; }
static inline void wrmsr(u32 msr, u64 value) { asm volatile("wrmsr" :: "c"(msr), "a"((u32)value), "d"((u32)(value >> 32))); }

static void put(const char *s) { for (; *s; s++) out8(0x403, *s); }
static void number(u64 value, u32 base)
{
    char buffer[24], *p = buffer + 23;
    for (*p = 0; *--p = "0123456789abcdef"[value % base], value /= base;) ;
    put(p);
}

static int failed;
static const char *mode = ""; /* behind the name of each test */
static void check(const char *name, int good, const char *what, u64 found, u64 wanted)
{
    if (good) {
        put("ok "); put(name); put(mode); put("\n");
        return;
    }
    failed = 1;
    put("FAIL "); put(name); put(mode); put(": "); put(what); put(" 0x"); number(found, 16); put(", not 0x"); number(wanted, 16); put("\n");
}

/* Local APIC */
#define APIC(offset) (*(volatile u32 *)(0xfee00000UL + (offset)))
#define NMI 0x400
static void apic_on(void) { APIC(0xf0) = 0x1ff; APIC(0x80) = 0; }
static void ipi_self(u32 command) { APIC(0x300) = 0x44000 | command; }
static void timer(u32 vector, u32 count) { APIC(0x3e0) = 0xb; APIC(0x320) = 0x20000 | vector; APIC(0x380) = count; }
static void timer_off(void) { APIC(0x320) = 0x10000; APIC(0x380) = 0; }

/* Interrupts: each vector counts; the local APIC's are acknowledged in the host only. */
struct gate { u16 low; u16 selector; u8 ist, type; u16 middle; u32 high, zero; };
static struct gate idt[256] PAGE, guest_idt[256] PAGE;
static struct { u16 limit; u64 base; } __attribute__((packed)) idtr = { sizeof(idt) - 1, (u64)idt };
volatile u64 nmis, interrupts, guest_interrupts, limit;

#define HANDLER(name, body) void name(void); asm(#name ":\n" body "iretq\n")
HANDLER(on_interrupt, "push %rax\nlock incq interrupts\nmov $0xfee000b0, %eax\nmovl $0, (%rax)\npop %rax\n");
HANDLER(on_guest_interrupt, "lock incq guest_interrupts\n");
HANDLER(on_nmi, "incq nmis\n");
/* Waits for an interrupt, which its trap gate leaves enabled; gives up in the end. */
HANDLER(on_nmi_wait, "push %rax\n1: incq nmis\ncmpq $0, interrupts\njne 2f\nmov limit, %rax\ncmp %rax, nmis\njb 1b\n2: pop %rax\n");
void fault_c(u64 *stack)
{
    put("FAIL exception at 0x"); number(stack[1], 16); put(" (or error code, then 0x"); number(stack[0], 16); put(")\n");
    out8(0x501, 1);
    for (;;) asm volatile("cli\nhlt");
}
HANDLER(on_fault, "mov %rsp, %rdi\ncall fault_c\n");

static void gate(struct gate *g, void (*handler)(void), u8 type)
{
    u64 a = (u64)handler;
    *g = (struct gate){ a, 8, 0, type, a >> 16, a >> 32, 0 };
}
#define INTERRUPT_GATE 0x8e
#define TRAP_GATE 0x8f
#define VECTOR 0x40
#define TICK 0x41

/* Opens a window for interrupts: the emulator looks for them between blocks of code, which a jump ends. */
static void take(void) { asm volatile("sti\nnop\njmp 1f\n1: jmp 2f\n2: cli" ::: "memory"); }

/* SVM */
struct segment { u16 selector, attributes; u32 limit; u64 base; };
struct vmcb {
    u32 intercepts[5]; u8 _0[0x58 - 20];
    u32 asid, tlb; u32 int_ctl, int_vector; u64 int_state, exit_code, exit_info_1, exit_info_2;
    u32 exit_int_info, exit_int_error; u64 nested_ctl; u8 _1[0x10];
    u32 event_inj, event_inj_error; u64 nested_cr3; u8 _2[0x400 - 0xb8];
    struct segment es, cs, ss, ds, fs, gs, gdtr, ldtr, idtr, tr; u8 _3[0x2b];
    u8 cpl; u32 _4; u64 efer; u8 _5[0x70];
    u64 cr4, cr3, cr0, dr7, dr6, rflags, rip; u8 _6[0x58]; u64 rsp; u8 _7[0x18]; u64 rax;
    u8 _8[0x40]; u64 cr2; u8 _9[0x20]; u64 pat;
} __attribute__((packed));
_Static_assert(__builtin_offsetof(struct vmcb, nested_cr3) == 0xb0, "");
_Static_assert(__builtin_offsetof(struct vmcb, efer) == 0x4d0, "");
_Static_assert(__builtin_offsetof(struct vmcb, rflags) == 0x570, "");
_Static_assert(__builtin_offsetof(struct vmcb, rax) == 0x5f8, "");
_Static_assert(__builtin_offsetof(struct vmcb, pat) == 0x668, "");

static union { struct vmcb v; u8 page[4096]; } vmcb_page PAGE;
static u8 host_save[4096] PAGE, guest_stack[4096] PAGE, absent[1 << 21] __attribute__((aligned(1 << 21)));
static u64 npt4[512] PAGE, npt3[512] PAGE, npt2[2048] PAGE;
#define vmcb (&vmcb_page.v)
#define EXIT_VMMCALL 0x81
#define EXIT_NPF 0x400
#define V_IRQ (1 << 8)
#define V_INTR_PRIO(priority) ((priority) << 16)
#define V_IGN_TPR (1 << 20)
#define V_INTR_MASKING (1 << 24)
#define VALID (1u << 31)

/* Two million turns, then VMMCALL. */
asm("guest_spin: mov $2000000, %ecx\n1: dec %ecx\njnz 1b\nguest_call: vmmcall\njmp guest_call\n");
void guest_spin(void), guest_call(void);

static void guest(void (*rip)(void), u8 *stack_top)
{
    for (u32 i = 0; i < 4096; i++) vmcb_page.page[i] = 0;
    for (u32 i = 0; i < 2048; i++) npt2[i] = (u64)i << 21 | 0x87;
    for (u32 i = 0; i < 4; i++) npt3[i] = (u64)&npt2[512 * i] | 7;
    npt4[0] = (u64)npt3 | 7;
    vmcb->intercepts[3] = 1 << 31; /* shutdown */
    vmcb->intercepts[4] = 3; /* VMRUN, VMMCALL */
    vmcb->asid = 1;
    vmcb->tlb = 1;
    vmcb->int_ctl = V_INTR_MASKING;
    vmcb->nested_ctl = 1;
    vmcb->nested_cr3 = (u64)npt4;
    vmcb->cs = (struct segment){ 8, 0x29b, 0xffffffff, 0 };
    vmcb->ss = vmcb->ds = vmcb->es = (struct segment){ 16, 0xc93, 0xffffffff, 0 };
    vmcb->gdtr = (struct segment){ 0, 0, gdtr.limit, gdtr.base };
    vmcb->idtr = (struct segment){ 0, 0, sizeof(guest_idt) - 1, (u64)guest_idt };
    vmcb->tr = (struct segment){ 0, 0x8b, 0xffff, 0 };
    vmcb->efer = 0x1500; /* SVME, LMA, LME */
    vmcb->cr0 = 0x80000011;
    vmcb->cr3 = (u64)pml4;
    vmcb->cr4 = 0x20;
    vmcb->dr6 = 0xffff0ff0;
    vmcb->dr7 = 0x400;
    vmcb->rflags = 0x202;
    vmcb->rip = (u64)rip;
    vmcb->rsp = (u64)stack_top;
    vmcb->pat = 0x0007040600070406;
    guest_interrupts = 0;
}

static void enter(void)
{
    asm volatile("push %%rbp\nvmrun %%rax\nstgi\npop %%rbp" :: "a"(vmcb)
                 : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory");
}

/* Patch 02. The timer's interrupts stay pending, but end the budget of instructions. */
static void test_once(void)
{
    guest(guest_spin, guest_stack + 4096);
    vmcb->event_inj = VALID | VECTOR;
    timer(TICK, 100000);
    enter();
    timer_off();
    check("once: an injected interrupt is delivered once", guest_interrupts == 1 && vmcb->exit_code == EXIT_VMMCALL,
          "deliveries", guest_interrupts, 1);
}

/* Patch 04. The interrupt's priority is below V_TPR until the guest writes CR8. */
asm("guest_cr8: mov %rax, %cr8\nvmmcall\n");
void guest_cr8(void);
static void test_cr8(void)
{
    guest(guest_cr8, guest_stack + 4096);
    vmcb->int_ctl |= V_IRQ | V_INTR_PRIO(5) | 7;
    vmcb->int_vector = VECTOR;
    vmcb->rax = 2;
    enter();
    check("cr8: a virtual interrupt is delivered once CR8 no longer masks it", guest_interrupts == 1 && vmcb->exit_code == EXIT_VMMCALL,
          "deliveries", guest_interrupts, 1);
}

/* Patch 05. Both become deliverable at the end of one instruction: the one behind STI. */
static void test_next(void)
{
    gate(&idt[2], on_nmi_wait, TRAP_GATE);
    /* Its code must be translated and chained: nothing waits the first time. */
    take();
    interrupts = nmis = 0;
    limit = 1000;
    ipi_self(NMI);
    take();
    interrupts = nmis = 0;
    limit = 100000000;
    ipi_self(VECTOR);
    asm volatile("sti\nmov %0, (%1)\njmp 1f\n1: jmp 2f\n2: cli" :: "r"(0x44000 | NMI), "r"(0xfee00300UL) : "rax", "memory");
    gate(&idt[2], on_nmi, INTERRUPT_GATE);
    check("next: the second of two pending interrupts is taken at once", interrupts == 1 && nmis < 100,
          "turns of the first one's handler", nmis, 1);
}

/* Patch 06. The guest's stack is absent. */
static void faulting(const char *name, u32 wanted, int nmi)
{
    guest(guest_spin, absent + 4096);
    npt2[(u64)absent >> 21] = 0;
    vmcb->int_ctl |= nmi ? 0 : V_IRQ | V_IGN_TPR;
    vmcb->int_vector = VECTOR;
    if (nmi) {
        asm volatile("clgi");
        ipi_self(NMI);
    }
    enter();
    check(name, vmcb->exit_code == EXIT_NPF && vmcb->exit_int_info == wanted, "EXITINTINFO", vmcb->exit_int_info, wanted);
}
static void test_type(void)
{
    faulting("type: EXITINTINFO names an interrupt", VALID | VECTOR, 0);
    faulting("type: EXITINTINFO names an NMI", VALID | 2 << 8 | 2, 1);
}

/* Patch 10: what the hypervisor changed and had flushed is what the guest sees, and the host's mappings are its own. */
asm("guest_load: mov absent, %rbx\nvmmcall\nmov absent, %rbx\nvmmcall\n");
void guest_load(void);
static u64 loaded(void)
{
    u64 value;
    asm volatile("push %%rbp\nvmrun %%rax\nstgi\npop %%rbp" : "=b"(value) : "a"(vmcb)
                 : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory");
    return value;
}
static void test_tlb(void)
{
    static u8 other[1 << 21] __attribute__((aligned(1 << 21)));
    u64 *here = (u64 *)absent, *there = (u64 *)other, own = npt2[(u64)absent >> 21];
    *here = 1;
    *there = 2;
    guest(guest_load, guest_stack + 4096);
    check("tlb: a guest sees its page", loaded() == 1, "value", *here, 1);
    u64 next = vmcb->rip + 3;
    own = npt2[(u64)absent >> 21];
    npt2[(u64)absent >> 21] = (u64)other | 0x87;
    vmcb->tlb = 3;
    vmcb->rip = next;
    u64 value = loaded();
    check("tlb: a page that was moved, and flushed by tlb_ctl, is seen", value == 2 && *here == 1, "value", value, 2);
    npt2[(u64)absent >> 21] = own;
    vmcb->tlb = 0;
    vmcb->asid = 2;
    vmcb->rip = (u64)guest_load;
    value = loaded();
    check("tlb: another ASID does not see what was the first one's", value == 1, "value", value, 1);
    npt2[(u64)absent >> 21] = 0;
    vmcb->tlb = 1;
    vmcb->rip = (u64)guest_load;
    loaded();
    check("tlb: a page that was taken away faults", vmcb->exit_code == EXIT_NPF && *here == 1, "exit", vmcb->exit_code, EXIT_NPF);
}

/* Patch 37. RDMSR must not be the last instruction of its block. */
static void test_current(void)
{
    const u32 start = 1 << 30;
    u32 count, high;
    timer(TICK, start);
    wrmsr(0x1b, 0xfee00d00); /* APIC_BASE: enabled, x2APIC, of the first processor */
    asm volatile("rdmsr\nnop\nnop" : "=a"(count), "=d"(high) : "c"(0x839));
    check("current: RDMSR reads the count of the APIC's timer", count && count < start, "count", count, start);
}

/* Other processors */
static volatile u32 running, order;
enum { IDLE, BUSY, GUEST, JUMP, WATCH };
static void other_guest(void);
static void other_jumps(void);

/* The TSC as this processor read it last, and how far behind that it has been since. */
static volatile u64 latest, back;
static void watch(void)
{
    u64 now = rdtsc();
    if (now < latest && latest - now > back) back = latest - now;
    latest = now;
}

static void copy_trampoline(void)
{
    extern u8 trampoline[], trampoline_end[];
    for (u8 *from = trampoline, *to = (u8 *)0x8000; from < trampoline_end;) *to++ = *from++;
}

static void start_others(u32 wanted)
{
    copy_trampoline();
    APIC(0x300) = 0xc4500;
    for (u64 end = rdtsc() + 20000000; rdtsc() < end;) asm volatile("pause");
    APIC(0x300) = 0xc4608;
    for (u64 end = rdtsc() + 2000000000; running < wanted && rdtsc() < end;) asm volatile("pause");
}

static void other(void)
{
    asm volatile("lidt %0" :: "m"(idtr));
    apic_on();
    __sync_fetch_and_add(&running, 1);
    for (;;) {
        /* Woken by an IPI; a look at the order and the halt must not be parted. */
        asm volatile("cli");
        if (order == IDLE) {
            asm volatile("sti\nhlt\ncli");
            continue;
        }
        asm volatile("sti");
        if (order == GUEST) {
            other_guest();
            while (order == GUEST) asm volatile("pause");
        }
        if (order == JUMP) other_jumps();
        while (order == WATCH) watch();
        while (order == BUSY) for (volatile u32 i = 0; i < 1000; i++) ;
    }
}

static void give(u32 what)
{
    order = what;
    if (what != IDLE) APIC(0x300) = 0xc4000 | TICK; /* all but self */
    for (volatile u32 i = 0; i < 10000; i++) ;
}

/* Patch 07 */
static u64 round_trip(void)
{
    u64 start = rdtsc();
    for (u32 i = 0; i < 100; i++) {
        vmcb->rip = (u64)guest_call;
        enter();
    }
    return rdtsc() - start;
}
static void test_cost(void)
{
    u32 was = in32(0xe8);
    guest(guest_call, guest_stack + 4096);
    out32(0xe8, 0);
    u64 free = round_trip();
    out32(0xe8, 1000);
    u32 read = in32(0xe8);
    u64 dear = round_trip();
    out32(0xe8, 0xffffffff);
    check("cost: a value out of range is not taken", in32(0xe8) == 1000, "value", in32(0xe8), 1000);
    out32(0xe8, was);
    check("cost: port 0xe8 reads what was written", was != 0xffffffff && read == 1000, "value", read, 1000);
    check("cost: 100 exits take 100 times 1000 instructions of 8 ns more", dear - free == 800000, "ticks", dear - free, 800000);
    put("# a round trip without a cost: "); number(free / 100, 10); put(" ticks\n");
}

/* Ticks of 1000 instructions, in loops of 2 and 26, while the others halt and while they are busy. */
#define NOPS8 "nop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\n"
static u64 loop_of(u32 length)
{
    u64 start = rdtsc();
    u32 turns = 10000000 / length;
    if (length == 2) asm volatile("1: dec %0\njnz 1b" : "+r"(turns));
    else asm volatile("1:" NOPS8 NOPS8 NOPS8 "dec %0\njnz 1b" : "+r"(turns));
    return (rdtsc() - start) / 10000;
}
static void test_clock(u32 cpus)
{
    for (u32 busy = 0; busy <= (cpus > 1); busy++) {
        give(busy ? BUSY : IDLE);
        for (u32 length = 2; length <= 26; length += 24) {
            put("clock: "); number(cpus, 10); put(" CPUs, others "); put(busy ? "busy" : "idle"); put(", loop of ");
            number(length, 10); put(": "); number(loop_of(length), 10); put(" ticks for 1000 instructions\n");
        }
    }
    give(IDLE);
}

/* PAUSE, as fast as the clock of the user can tell: patch 03 */
static void test_pause(void)
{
    u64 start = rdtsc();
    for (u32 i = 0; i < 10000000; i++) asm volatile("pause");
    put("pause: 10 million in "); number(rdtsc() - start, 10); put(" ticks\n");
}

/*
 * Patch 08: both processors wait, and the time goes to the timer of the one that may have been ahead. By how much it was depends
 * on when in its turn it began to wait, which each round does some 50 instructions later.
 */
#define ROUNDS 64
#define AHEAD 800000 /* ns, 100,000 instructions */
static volatile u32 turn, waiting;
static volatile u64 most_late;
static void other_jumps(void)
{
    for (u32 at = 1; at <= ROUNDS; at++) {
        while (turn != at) asm volatile("pause");
        for (volatile u32 i = 0; i < 8 * at; i++) ;
        u64 due = rdtsc() + AHEAD;
        timer(TICK, AHEAD);
        waiting = at;
        asm volatile("sti\nhlt\ncli" ::: "memory");
        u64 late = rdtsc() - due;
        timer_off();
        if (late > most_late) most_late = late;
        APIC(0x300) = 0xc4000 | TICK; /* all but self */
    }
    while (order == JUMP) asm volatile("sti\npause");
}
static void test_jump(void)
{
    give(JUMP);
    for (u32 at = 1; at <= ROUNDS; at++) {
        turn = at;
        while (waiting != at) asm volatile("pause");
        asm volatile("sti\nhlt\ncli" ::: "memory");
    }
    give(IDLE);
    check("jump: a timer is not late by what its processor was ahead when all began to wait", most_late < 300 * 8,
          "ns late", most_late, 300 * 8);
}

/* Patch 09: a disk that takes 100 ms of the host, read while the CPU halts and a timer ticks. */
static struct descriptor { u64 address; u32 length; u16 flags, next; } queue[4096] PAGE;
static volatile u16 *available, *used;
static u32 config_read(u32 at) { out32(0xcf8, VALID | at); return in32(0xcfc); }
/* Starts the device with its first queue. Returns its ports, or 0 if there is none. */
static u32 virtio(u32 identity)
{
    u32 slot = 0;
    while (slot < 32 && config_read(slot << 11) != identity) slot++;
    if (slot == 32) return 0;
    u32 port = config_read(slot << 11 | 0x10) & ~3u;
    out8(port + 18, 0);
    out32(0xcf8, VALID | slot << 11 | 4);
    out32(0xcfc, 5); /* I/O space, bus master: behind the reset, which takes it */
    out8(port + 18, 3); /* ACKNOWLEDGE, DRIVER */
    out32(port + 4, 0);
    out16(port + 14, 0);
    u64 size = in16(port + 12);
    available = (u16 *)(queue + size);
    used = (u16 *)(((u64)(available + size + 3) + 4095) & ~4095ul);
    out32(port + 8, (u64)queue >> 12);
    out8(port + 18, 7); /* DRIVER_OK */
    return port;
}
static void test_disk(void)
{
    static struct { u32 type, reserved; u64 sector; } header;
    static u8 data[512], status;
    u32 port = virtio(0x10011af4);
    if (!port) {
        check("disk: there is one", 0, "ports", port, 0);
        return;
    }
    queue[0] = (struct descriptor){ (u64)&header, 16, 1, 1 };
    queue[1] = (struct descriptor){ (u64)data, 512, 3, 2 };
    queue[2] = (struct descriptor){ (u64)&status, 1, 2, 0 };
    available[1] = 1;
    timer(TICK, 1000000);
    u64 start = rdtsc();
    out16(port + 16, 0);
    while (!used[1] && rdtsc() - start < 2000000000) asm volatile("sti\nhlt\ncli" ::: "memory");
    u64 taken = rdtsc() - start;
    timer_off();
    check("disk: a read takes no longer than three ticks of a timer of 1 ms", used[1] && taken < 3500000, "ns", taken, 3000000);
}

/* Patch 08: a machine that is saved in the middle of a turn, as by patch 27, while its other processor is ahead. */
static void test_resumed(void)
{
    static u8 data;
    u32 port = virtio(0x10031af4);
    if (!port) {
        check("resumed: there is a port", 0, "ports", port, 0);
        return;
    }
    queue[0] = (struct descriptor){ (u64)&data, 1, 2, 0 };
    available[1] = 1;
    give(WATCH);
    put("migrate\n");
    u64 before = rdtsc();
    out16(port + 16, 0);
    u64 after = rdtsc();
    give(IDLE);
    check("resumed: the TSC of the processor that ran goes on", after > before, "TSC", after, before);
    check("resumed: the TSC of the processor that was ahead goes on", latest && !back, "ns back", back, 0);
}
#include "avic.c"
#include "iommu.c"

/* Patch 20: INIT and the start-up IPI are both pending at a processor that has had no turn yet. */
static void test_started(void)
{
    copy_trampoline();
    APIC(0x300) = 0xc4500;
    APIC(0x300) = 0xc4608;
    put("migrate\n");
    while (!(in8(0x3fd) & 1)) ;
    in8(0x3f8);
    for (u64 end = rdtsc() + 2000000000; !running && rdtsc() < end;) asm volatile("pause");
    check("started: a processor begins where it was told to before the machine was migrated", running == 1, "running", running, 1);
}

static int asked(const char *line, const char *word)
{
    for (; *line; line++) {
        const char *l = line, *w = word;
        while (*w && *l == *w) l++, w++;
        if (!*w) return 1;
    }
    return 0;
}

void entered(u32 cpu)
{
    if (cpu) other();
    const char *line = (const char *)*(u64 *)((u64)start_info + 24);
    for (u32 i = 0; i < 256; i++) gate(&idt[i], i < 32 ? on_fault : on_interrupt, INTERRUPT_GATE);
    for (u32 i = 0; i < 256; i++) gate(&guest_idt[i], on_guest_interrupt, INTERRUPT_GATE);
    gate(&idt[2], on_nmi, INTERRUPT_GATE);
    asm volatile("lidt %0" :: "m"(idtr));
    out8(0x21, 0xff);
    out8(0xa1, 0xff);
    apic_on();
    wrmsr(0xc0010117, (u64)host_save);
    u32 cpus = asked(line, "cpus=4") ? 4 : asked(line, "cpus=3") ? 3 : asked(line, "cpus=2") ? 2 : 1;
    if (cpus > 1) start_others(cpus - 1);
    if (asked(line, "once")) test_once();
    if (asked(line, "cr8")) test_cr8();
    if (asked(line, "next")) test_next();
    if (asked(line, "type")) test_type();
    if (asked(line, "cost")) test_cost();
    if (asked(line, "tlb")) test_tlb();
    if (asked(line, "pause")) test_pause();
    if (asked(line, "clock")) test_clock(cpus);
    if (asked(line, "jump")) test_jump();
    if (asked(line, "disk")) test_disk();
    if (asked(line, "resumed")) test_resumed();
    if (asked(line, "avic")) test_avic(cpus);
    if (asked(line, "moved")) test_moved(asked(line, "moved=x2apic"));
    if (asked(line, "started")) test_started();
    if (asked(line, "iommu") && prepare_iommu()) test_iommu(cpus);
    if (asked(line, "locked") && prepare_iommu()) test_locked();
    if (asked(line, "migrated") && prepare_iommu()) test_migrated();
    if (asked(line, "current")) test_current(); /* the last one: see above */
    out8(0x501, failed);
    for (;;) asm volatile("hlt");
}
