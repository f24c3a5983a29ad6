/*
 * An IOMMU that posts interrupts into guests, on the bare machine; part of svm.c, whose head says how it is run. Takes
 * -device amd-iommu,intremap=on,gapic=on,irte-cache=on -device pcie-root-port,id=bridge -device e1000e,bus=bridge
 *
 * Sources: AMD I/O Virtualization Technology (IOMMU) Specification, sections 2.2.5 (interrupt remapping tables), 2.4
 * (commands), 2.5 (event log), 2.7 (guest virtual APIC log) and 3.4 (registers); Linux drivers/iommu/amd for the order of a
 * restart and for the length of the log; Intel 82574 datasheet, sections 10.2.4 (interrupt registers) and 10.2.6 (transmit).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#define IOMMU(offset) (*(volatile u64 *)(0xfed80000UL + (offset)))
enum {
    DEVICE_TABLE = 0, COMMAND_BASE = 8, EVENT_BASE = 0x10, CONTROL = 0x18, FEATURES = 0x30, GA_BASE = 0xe0, GA_SHADOW = 0xe8,
    COMMAND_HEAD = 0x2000, COMMAND_TAIL = 0x2008, EVENT_HEAD = 0x2010, EVENT_TAIL = 0x2018, STATUS = 0x2020,
    GA_HEAD = 0x2040, GA_TAIL = 0x2048,
};
#define COMMANDS (1ul << 12)
#define ENABLE (1ul | COMMANDS | 1ul << 17) /* the IOMMU, entries of 128 bits */
#define EVENT_LOG (1ul << 2)
#define EVENTS (EVENT_LOG | 1ul << 3) /* and their interrupt */
#define COMPLETION_INTERRUPT (1ul << 4)
#define GUEST_MODE (1ul << 25)
#define GA_LOG_ALONE (1ul << 28)
#define GA_LOG (GA_LOG_ALONE | 1ul << 29) /* and its interrupt */
#define NO_CACHE (1ul << 59)
#define EVENT_OVERFLOW 1ul
#define EVENT_INTERRUPT 2ul
#define COMPLETION 4ul
#define EVENT_RUNS 8ul
#define COMMANDS_RUN 0x10ul
#define GA_RUNS 0x100ul
#define GA_OVERFLOW 0x200ul
#define GA_INTERRUPT 0x400ul
#define ENTRIES_512 (8ul << 56)
#define ILLEGAL (15ul << 60)
#define COMPLETION_WAIT (1ul << 60)
#define STORE 1ul
#define INTERRUPT 2ul
#define INVALIDATE_TABLE (5ul << 60)
#define INVALIDATE_ALL (8ul << 60)
/* Events */
#define PAGE_FAULT (2ul << 60)
#define ILLEGAL_COMMAND (5ul << 60)
#define PRESENT (1ul << 52)
#define WRITE (1ul << 53)
#define NOT_PERMITTED (1ul << 54)
#define DOMAIN 0x123ul
/* An entry of the remapping table */
#define REMAP 1ul
#define LOGICAL_HOST 0x40ul /* of an entry for the host */
#define LOGGED 4ul
#define RUNS 0x40ul
#define POSTED 0x80ul
#define TAG 0x12345678ul

static u64 device_table[2048] PAGE, translation[512] PAGE, ring[512] PAGE, commands[512] PAGE, events[512] PAGE, ga_log[512] PAGE, remapping[512] PAGE;
static volatile u64 ga_shadow, completed;
static u32 card, command_tail;
static u64 card_registers;
#define CARD(offset) (*(volatile u32 *)(card_registers + (offset)))

static void config_write(u32 at, u32 value) { out32(0xcf8, VALID | at); out32(0xcfc, value); }
static u32 find_function(u32 identity)
{
    u32 function = 0;
    while (function < 512 && config_read(function << 8) != identity) function++;
    return function;
}
/* Message-signalled interrupts of a function, with a 64-bit address as both have. */
static void message(u32 function, u32 data)
{
    u32 at = config_read(function << 8 | 0x34) & 0xff;
    while ((config_read(function << 8 | at) & 0xff) != 5) at = config_read(function << 8 | at) >> 8 & 0xff;
    config_write(function << 8 | (at + 4), 0xfee00000);
    config_write(function << 8 | (at + 8), 0);
    config_write(function << 8 | (at + 12), data);
    config_write(function << 8 | at, config_read(function << 8 | at) | 1 << 16);
}

static void command_with(u64 low, u64 high)
{
    commands[command_tail / 8] = low;
    commands[command_tail / 8 + 1] = high;
    command_tail = (command_tail + 16) % sizeof(commands);
    IOMMU(COMMAND_TAIL) = command_tail;
}
static void command(u64 low) { command_with(low, 0); }
static u64 complete(void)
{
    completed = 0;
    command_with(COMPLETION_WAIT | (u64)&completed | STORE, 7);
    return completed;
}

/* What was raised before counts no more. */
static void count_interrupts(void) { take(); interrupts = 0; }
static void wait(u64 ns) { for (u64 end = rdtsc() + ns; rdtsc() < end;) asm volatile("pause"); }
/* What arrives in the host is counted in `interrupts`. The card throttles: 128 us lie between two of its own. */
static void interrupt_of_card(void)
{
    interrupts = 0;
    CARD(0xc8) = 4;
    CARD(0xc0) = ~0u;
    take();
    wait(200000);
}

/* The card's entry: for the host, or into the page of a vCPU. */
static void entry(u64 flags, u64 page, u32 destination, u32 vector)
{
    remapping[2] = flags | (u64)destination << 8 | (flags & POSTED ? TAG << 32 : 0);
    remapping[3] = page | vector;
}
static void fresh_entry(u64 flags, u64 page, u32 destination, u32 vector)
{
    entry(flags, page, destination, vector);
    command(INVALIDATE_TABLE | card);
}
static void control(u64 bits) { IOMMU(CONTROL) = bits; }
static void restart_commands(u64 bits, u32 head)
{
    control(bits & ~COMMANDS);
    IOMMU(COMMAND_HEAD) = head;
    control(bits);
}
static void illegal(u64 bits)
{
    command(ILLEGAL);
    restart_commands(bits, command_tail);
}
static void empty_events(void)
{
    control(ENABLE);
    IOMMU(EVENT_HEAD) = IOMMU(EVENT_TAIL) = 0;
    IOMMU(STATUS) = EVENT_OVERFLOW | EVENT_INTERRUPT;
    zero(events, sizeof(events));
    control(ENABLE | EVENTS);
}
/* The events since then, and the first of them. */
static u64 event(void) { return events[0] ^ events[1] << 4 ^ (IOMMU(EVENT_TAIL) ? 0 : 1); }
static u64 one(u64 what, u64 address) { return what ^ address << 4; }
static u64 logged(void) { return IOMMU(GA_TAIL) << 32 | (u32)ga_shadow; }
static void empty_log(void)
{
    control(ENABLE | GUEST_MODE);
    IOMMU(STATUS) = GA_OVERFLOW | GA_INTERRUPT;
    IOMMU(GA_HEAD) = IOMMU(GA_TAIL) = 0;
    ga_shadow = 0;
    control(ENABLE | GUEST_MODE | GA_LOG);
    zero(backing, sizeof(backing));
}

static void test_events(void)
{
    control(ENABLE | EVENTS);
    checked("iommu: the event log runs", IOMMU(STATUS) & EVENT_RUNS, EVENT_RUNS);
    count_interrupts();
    u64 at = (u64)commands + command_tail;
    command(ILLEGAL);
    take();
    checked("iommu: an illegal command is logged, and interrupts", event() ^ (interrupts != 1), one(ILLEGAL_COMMAND, at));
    checked("iommu: that event is the log's first", IOMMU(EVENT_TAIL), 16);
    checked("iommu: it stops the commands, and is not done", (IOMMU(STATUS) & COMMANDS_RUN) | IOMMU(COMMAND_HEAD) << 8, (at - (u64)commands) << 8);
    checked("iommu: nor is one behind it", complete(), 0);
    restart_commands(ENABLE | EVENTS, command_tail - 16);
    checked("iommu: started again they go on", completed << 8 | (IOMMU(STATUS) & COMMANDS_RUN), 7 << 8 | COMMANDS_RUN);
    IOMMU(STATUS) = 0;
    checked("iommu: a 0 in the status register clears nothing", IOMMU(STATUS) & EVENT_INTERRUPT, EVENT_INTERRUPT);
    IOMMU(STATUS) = EVENT_INTERRUPT | EVENT_RUNS;
    checked("iommu: a 1 clears what it may", IOMMU(STATUS) & (EVENT_INTERRUPT | EVENT_RUNS), EVENT_RUNS);
    for (u32 i = 1; i < 255; i++) illegal(ENABLE | EVENTS);
    checked("iommu: 255 events are logged", IOMMU(EVENT_TAIL) << 8 | (IOMMU(STATUS) & 15), 255 * 16 << 8 | EVENT_RUNS | EVENT_INTERRUPT);
    illegal(ENABLE | EVENTS);
    checked("iommu: the one that would fill the log overflows, and stops it", IOMMU(EVENT_TAIL) << 8 | (IOMMU(STATUS) & 15), 255 * 16 << 8 | EVENT_OVERFLOW | EVENT_INTERRUPT);
    IOMMU(EVENT_HEAD) = IOMMU(EVENT_TAIL);
    IOMMU(STATUS) = EVENT_OVERFLOW;
    control(ENABLE);
    control(ENABLE | EVENTS);
    illegal(ENABLE | EVENTS);
    checked("iommu: started again it goes on at the beginning", IOMMU(EVENT_TAIL) << 8 | (IOMMU(STATUS) & 15), EVENT_RUNS | EVENT_INTERRUPT);

    empty_events();
    control(ENABLE | EVENT_LOG);
    count_interrupts();
    illegal(ENABLE | EVENT_LOG);
    take();
    checked("iommu: an event interrupts nobody who does not want it", (IOMMU(STATUS) & EVENT_INTERRUPT) << 8 | interrupts, EVENT_INTERRUPT << 8);
    control(ENABLE | EVENTS);
    control(ENABLE | EVENTS);
    take();
    checked("iommu: and who wants it later, then and once", interrupts, 1);
}

static void test_commands(void)
{
    empty_events();
    command(INVALIDATE_ALL | 1);
    checked("iommu: a reserved bit makes a command illegal", (event() == one(ILLEGAL_COMMAND, (u64)commands + command_tail - 16)) << 8 | (IOMMU(STATUS) & COMMANDS_RUN), 1 << 8);
    restart_commands(ENABLE, command_tail);
    IOMMU(COMMAND_TAIL) = sizeof(commands) + command_tail;
    checked("iommu: a tail beyond the commands has an end", complete(), 7);
    count_interrupts();
    command(COMPLETION_WAIT | INTERRUPT);
    take();
    checked("iommu: a completion interrupts nobody who does not want it", (IOMMU(STATUS) & COMPLETION) << 8 | interrupts, COMPLETION << 8);
    control(ENABLE | COMPLETION_INTERRUPT);
    take();
    checked("iommu: and who wants it later, then", interrupts, 1);
    IOMMU(STATUS) = COMPLETION;
    count_interrupts();
    command(COMPLETION_WAIT | INTERRUPT);
    take();
    checked("iommu: or at once", interrupts, 1);
    IOMMU(STATUS) = COMPLETION;
}

/* The card sits behind a bridge, whose bus has its number from the firmware. */
#define ADDRESS 0x5000
static u64 sent(u64 from)
{
    ring[0] = ADDRESS + 2048;
    ring[1] = 9u << 24 | 64; /* end of packet, report status; 64 bytes */
    CARD(0x400) = 0;
    CARD(0x3800) = from;
    CARD(0x3804) = 0;
    CARD(0x3808) = 4096;
    CARD(0x3810) = CARD(0x3818) = 0;
    CARD(0x400) = 2;
    CARD(0x3818) = 1;
    wait(100000);
    return ring[1] >> 32 & 1; /* done */
}
static void test_translation(void)
{
    u64 *device = &device_table[card * 4], *page = &translation[ADDRESS >> 12], mapped = *page;
    u64 fault = PAGE_FAULT | DOMAIN << 32 | card;
    empty_events();
    checked("iommu: a device behind a bridge reads and writes where its entry says", sent(ADDRESS), 1);
    checked("iommu: without an event", IOMMU(EVENT_TAIL), 0);
    *device &= ~(3ul << 61); /* reads and writes */
    command(INVALIDATE_ALL);
    checked("iommu: where it must not it does not", sent(ADDRESS), 0);
    checked("iommu: and that is logged, with its number and its domain", event(), one(fault | PRESENT | NOT_PERMITTED, ADDRESS));
    *device |= 3ul << 61;

    empty_events();
    *page = 0;
    command(INVALIDATE_ALL);
    checked("iommu: a page that is absent is not read", sent(ADDRESS), 0);
    checked("iommu: and logged as absent", event(), one(fault, ADDRESS));
    empty_events();
    *page = mapped & ~1ul;
    command(INVALIDATE_ALL);
    checked("iommu: nor is one that is not present", sent(ADDRESS) << 60 ^ event(), one(fault, ADDRESS));
    empty_events();
    *page = mapped & ~(1ul << 62);
    command(INVALIDATE_ALL);
    checked("iommu: a page to read is not written", sent(ADDRESS), 0);
    checked("iommu: and logged as a write", event(), one(fault | PRESENT | WRITE | NOT_PERMITTED, ADDRESS + 12)); /* the descriptor's status */
    if (!failed) { /* an emulator with the faults above may be here for ever */
        empty_events();
        *page = (u64)translation | 1 | 1 << 9 | 3ul << 61;
        command(INVALIDATE_ALL);
        checked("iommu: a table that is its own is the end of a walk", sent(ADDRESS) << 60 ^ event(), one(fault | PRESENT, ADDRESS));
    }
    *page = mapped;
    command(INVALIDATE_ALL);
}

static void test_posting(void)
{
    control(ENABLE);
    fresh_entry(REMAP, 0, 0, VECTOR);
    interrupt_of_card();
    checked("iommu: an entry for the host interrupts it", interrupts, 1);

    empty_log();
    checked("iommu: the log runs", IOMMU(STATUS) & (GA_RUNS | GA_OVERFLOW | GA_INTERRUPT), GA_RUNS);
    fresh_entry(REMAP | POSTED | LOGGED, (u64)backing[1], 0, LOW);
    interrupt_of_card();
    checked("iommu: an interrupt for a vCPU that does not run is requested in its page", is_set(1, IRR, LOW), 1);
    checked("iommu: and logged, with its device and tag", ga_log[0], 1ul << 60 | (u64)card << 32 | TAG);
    checked("iommu: and told to the host: tail, its copy", logged(), 8ul << 32 | 8);
    checked("iommu: status, interrupt", (IOMMU(STATUS) & (GA_RUNS | GA_OVERFLOW | GA_INTERRUPT)) << 8 | interrupts, (GA_RUNS | GA_INTERRUPT) << 8 | 1);
    interrupt_of_card();
    checked("iommu: until the host has cleared the status, it is not interrupted again", logged() << 8 | interrupts, (16ul << 32 | 16) << 8);
    IOMMU(STATUS) = GA_INTERRUPT;
    control(ENABLE | GUEST_MODE | GA_LOG_ALONE);
    interrupt_of_card();
    checked("iommu: without the log's interrupt it is told nothing", logged() << 8 | interrupts, (24ul << 32 | 24) << 8);
    control(ENABLE | GUEST_MODE | GA_LOG);
    control(ENABLE | GUEST_MODE | GA_LOG);
    take();
    checked("iommu: but when it wants to know, and once", interrupts, 1);

    empty_log();
    fresh_entry(REMAP | POSTED, (u64)backing[1], 0, LOW);
    interrupt_of_card();
    checked("iommu: one whose entry wants no log is requested only", is_set(1, IRR, LOW) << 16 | logged() | interrupts, 1 << 16);
    empty_log();
    fresh_entry(REMAP | POSTED | LOGGED | RUNS, (u64)backing[1], 0, LOW);
    interrupt_of_card();
    checked("iommu: one for a vCPU that runs is not logged", is_set(1, IRR, LOW) << 16 | logged() | interrupts, 1 << 16);
    empty_log();
    fresh_entry(REMAP | POSTED | LOGGED, 1ul << 40, 0, LOW);
    interrupt_of_card();
    checked("iommu: one for a page without memory is dropped", logged() | interrupts, 0);
    control(ENABLE);
    fresh_entry(REMAP | POSTED | LOGGED, (u64)backing[1], 0, LOW);
    interrupt_of_card();
    checked("iommu: without guest mode such an entry is an error", is_set(1, IRR, LOW) << 16 | interrupts, 0);
}

static void test_log(void)
{
    empty_log();
    fresh_entry(REMAP | POSTED | LOGGED, (u64)backing[1], 0, LOW);
    for (u32 i = 0; i < 511; i++) interrupt_of_card();
    checked("iommu: 511 of 512 entries are logged", logged(), 511 * 8ul << 32 | 511 * 8);
    *at(1, IRR, LOW) = 0;
    IOMMU(STATUS) = GA_INTERRUPT;
    interrupt_of_card();
    checked("iommu: the next one is requested", is_set(1, IRR, LOW), 1);
    checked("iommu: and stops the log", logged() << 16 | (IOMMU(STATUS) & (GA_RUNS | GA_OVERFLOW | GA_INTERRUPT)) | interrupts, (511 * 8ul << 32 | 511 * 8) << 16 | GA_OVERFLOW | 1);
    /* As Linux restarts it: the head is where it was read to. */
    IOMMU(GA_HEAD) = IOMMU(GA_TAIL);
    control(ENABLE | GUEST_MODE);
    IOMMU(STATUS) = GA_OVERFLOW;
    control(ENABLE | GUEST_MODE | GA_LOG);
    ga_log[511] = 0;
    interrupt_of_card();
    checked("iommu: started again it goes on at the beginning", logged() << 16 | ga_log[511] >> 60 << 4 | (IOMMU(STATUS) & GA_OVERFLOW) | interrupts, 1 << 4 | 1);
}

static void test_cache(void)
{
    empty_log();
    fresh_entry(REMAP | POSTED | LOGGED, (u64)backing[1], 0, LOW);
    interrupt_of_card();
    entry(REMAP | POSTED | LOGGED | RUNS, (u64)backing[1], 0, HIGH);
    interrupt_of_card();
    checked("iommu: a changed vector is not seen before it is flushed", is_set(1, IRR, HIGH), 0);
    checked("iommu: that the vCPU runs is", logged(), 8ul << 32 | 8);
    command(INVALIDATE_TABLE | (card ^ 8));
    interrupt_of_card();
    checked("iommu: to flush another device's entries does nothing", is_set(1, IRR, HIGH), 0);
    command(INVALIDATE_TABLE | card);
    interrupt_of_card();
    checked("iommu: a flush makes it seen", is_set(1, IRR, HIGH), 1);
    control(ENABLE | GUEST_MODE | GA_LOG | NO_CACHE);
    entry(REMAP | POSTED, (u64)backing[2], 0, LOW);
    interrupt_of_card();
    checked("iommu: where software forbids to cache, nothing is", is_set(2, IRR, LOW), 1);

    empty_log();
    fresh_entry(REMAP | POSTED | LOGGED, (u64)backing[1], 0, LOW);
    interrupt_of_card();
    entry(REMAP | LOGICAL_HOST, 0, 0, VECTOR); /* where a posted one has IsRun */
    interrupt_of_card();
    checked("iommu: one that is the host's by now does not make the vCPU run", logged(), 16ul << 32 | 16);

    /* Linux since 6.17 sets GALogIntr when a vCPU halts and clears it when the vCPU runs, without a flush. */
    empty_log();
    fresh_entry(REMAP | POSTED | RUNS, (u64)backing[1], 0, LOW);
    interrupt_of_card();
    entry(REMAP | POSTED | LOGGED, (u64)backing[1], 0, LOW);
    remapping[2] ^= 1ul << 32;
    interrupt_of_card();
    checked("iommu: that the log is wanted is seen before a flush", logged(), 8ul << 32 | 8);
    checked("iommu: so is another tag", ga_log[0], 1ul << 60 | (u64)card << 32 | (TAG ^ 1));
    command(INVALIDATE_TABLE | card);
    interrupt_of_card();
    entry(REMAP | POSTED, (u64)backing[1], 0, LOW);
    interrupt_of_card();
    checked("iommu: so is that the log is not wanted", logged(), 16ul << 32 | 16);
}

/*
 * The card throttles: one interrupt soon after another comes by a timer, while this processor is in the midst of something:
 * of changing another bit of the same word. With -icount a timer waits until it is not, and nothing is tested.
 */
static void test_locked(void)
{
    u64 lost = 0, late = 0;
    volatile u32 *word = at(1, IRR, LOW);
    empty_log();
    fresh_entry(REMAP | POSTED | LOGGED, (u64)backing[1], 0, LOW);
    for (u32 i = 0; i < 500; i++) {
        u64 seen = ga_shadow;
        *word = 0;
        CARD(0xc8) = 4;
        /* Limited by this processor's own work: the machine's time also passes while the machine stands still. */
        for (u32 round = 0; ga_shadow == seen && round < 10000000; round++)
            for (u32 turn = 0; turn < 100; turn++) asm volatile("lock btcl $1, %0" : "+m"(*word));
        late += ga_shadow == seen;
        lost += ga_shadow != seen && !is_set(1, IRR, LOW);
        CARD(0xc0) = ~0u;
        IOMMU(GA_HEAD) = ga_shadow;
    }
    checked("locked: 500 requests are logged", late, 0);
    checked("locked: none is lost beside locked instructions", lost, 0);
}

static void test_posting_to_a_running_vcpu(void)
{
    empty_log();
    fresh_entry(REMAP | POSTED | LOGGED | RUNS, (u64)backing[1], 1, LOW);
    start_other_guest();
    interrupt_of_card();
    checked("iommu: a vCPU that runs gets it, without an exit or a word to the host",
            wait_for_other_guest() << 32 | taken << 16 | logged() | interrupts, (u64)EXIT_VMMCALL << 32 | LOW << 16);
}

/* What it knows of software's rings and tables goes with the machine. */
static void test_migrated(void)
{
    const u64 bits = ENABLE | EVENTS | GUEST_MODE | GA_LOG;
    empty_events();
    empty_log();
    control(bits);
    fresh_entry(REMAP | POSTED | LOGGED, (u64)backing[1], 0, LOW);
    interrupt_of_card();
    illegal(bits);
    IOMMU(STATUS) = GA_INTERRUPT | EVENT_INTERRUPT;
    *at(1, IRR, LOW) = 0;
    count_interrupts();
    put("migrate\n");
    while (!(in8(0x3fd) & 1)) ;
    in8(0x3f8);

    interrupt_of_card();
    checked("migrated: an interrupt is posted, logged behind the one before, and told to the host",
            logged() << 16 | is_set(1, IRR, LOW) << 8 | interrupts, (16ul << 32 | 16) << 16 | 1 << 8 | 1);
    checked("migrated: with its device and tag", ga_log[1], 1ul << 60 | (u64)card << 32 | TAG);
    fresh_entry(REMAP, 0, 0, VECTOR);
    interrupt_of_card();
    checked("migrated: an entry for the host interrupts it", interrupts, 1);
    count_interrupts();
    u64 refused = (u64)commands + command_tail;
    illegal(bits);
    take();
    checked("migrated: an event is logged behind the one before, and interrupts", IOMMU(EVENT_TAIL) << 8 | interrupts, 32 << 8 | 1);
    checked("migrated: with its address", events[2] ^ events[3] << 4, one(ILLEGAL_COMMAND, refused));
    checked("migrated: commands go on where they were", complete(), 7);
    checked("migrated: a device reads and writes where its entry says", sent(ADDRESS), 1);
    translation[ADDRESS >> 12] = 0;
    command(INVALIDATE_ALL);
    checked("migrated: and nowhere else, which is logged", sent(ADDRESS) << 60 ^ events[4] ^ events[5] << 4,
            one(PAGE_FAULT | DOMAIN << 32 | card, ADDRESS));
}

/* Finds the two and gives them their tables and rings. */
static int prepare_iommu(void)
{
    u32 iommu = find_function(0x14191022);
    card = find_function(0x10d38086);
    if (iommu == 512 || card == 512) {
        check("iommu: there are one and a card", 0, "functions", iommu << 16 | card, 0);
        return 0;
    }
    gate(&guest_idt[LOW], on_low, INTERRUPT_GATE);
    checked("iommu: it has guest mode", IOMMU(FEATURES) & (7ul << 21 | 1 << 7), 1ul << 21 | 1 << 7);
    message(iommu, VECTOR);
    message(card, 1); /* entry 1 */
    config_write(card << 8 | 4, 6); /* memory space, bus master */
    card_registers = config_read(card << 8 | 0x10) & ~15u;
    CARD(0xd0) = 4; /* the link's change alone */

    translation[ADDRESS >> 12] = (u64)ring | 1 | 3ul << 61;
    device_table[card * 4] = 3 | 1 << 9 | (u64)translation | 3ul << 61;
    device_table[card * 4 + 1] = DOMAIN;
    device_table[card * 4 + 2] = 1 | 8 << 1 | (u64)remapping | 2ul << 60;
    IOMMU(DEVICE_TABLE) = (u64)device_table | 3;
    IOMMU(COMMAND_BASE) = (u64)commands | 8ul << 56;
    IOMMU(EVENT_BASE) = (u64)events | 8ul << 56;
    IOMMU(GA_BASE) = (u64)ga_log | ENTRIES_512;
    IOMMU(GA_SHADOW) = (u64)&ga_shadow;
    IOMMU(EVENT_HEAD) = IOMMU(EVENT_TAIL) = 0;
    return 1;
}

static void test_iommu(u32 cpus)
{
    test_events();
    test_commands();
    test_translation();
    test_posting();
    test_log();
    test_cache();
    if (cpus > 1) test_posting_to_a_running_vcpu();
    control(0);
}
