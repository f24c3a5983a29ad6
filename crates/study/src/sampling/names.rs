//! The names of sampled figures, to check plans before a run.

/// Names of the host's figures and of the guests' own CPU time. A name that ends with `.*` stands for a
/// family: exits by reason, accesses by port and page, interrupts by the kernel's names, KVM's counters.
pub const SAMPLED: [&str; 43] = [
    "cpu.busy",
    "cpu.without-sampling",
    "cpu.guest",
    "cpu.user",
    "cpu.nice",
    "cpu.system",
    "cpu.irq",
    "cpu.softirq",
    "cpu.steal",
    "cpu.iowait",
    "cpu.idle",
    "cpu.context-switches",
    "cpu.frequency",
    "cpu.frequency.lowest",
    "cpu.frequency.highest",
    "vcpu.cpu",
    "vcpu.running",
    "vcpu.in-guest",
    "vcpu.run-queue-wait",
    "iothread.cpu",
    "vhost.cpu",
    "emulator.cpu",
    "interrupts.total",
    "interrupts.devices",
    "interrupts.*",
    "exits.total",
    "exits.*",
    "accesses.*",
    "handling.total",
    "handling.*",
    "kvm.*",
    "sampling.cpu",
    "sampling.programs",
    "guest.busy",
    "guest.guest",
    "guest.user",
    "guest.nice",
    "guest.system",
    "guest.irq",
    "guest.softirq",
    "guest.steal",
    "guest.iowait",
    "guest.idle",
];

/// Tests whether sampling can produce a figure of this name.
pub fn is_sampled(name: &str) -> bool {
    SAMPLED.iter().any(|known| match known.strip_suffix('*') {
        Some(family) => name.len() > family.len() && name.starts_with(family),
        None => *known == name,
    })
}

/// Tests whether a figure comes from the counting of exits.
pub(crate) fn is_of_exits(name: &str) -> bool {
    ["exits.", "handling.", "accesses.", "kvm."].iter().any(|family| name.starts_with(family))
}
