//! The layout of the guest's physical memory, and the numbers that host and payload agree on.
//!
//! Everything is identity mapped. Memory ends below 3 GiB; the fourth GiB holds the xAPIC page and two pages
//! without memory, so a write to them exits.

/// The page map level 4.
pub(crate) const PML4: u64 = 0x1000;
/// The page directory pointers of the first 512 GiB.
pub(crate) const PDPT: u64 = 0x2000;
/// The page directory of the first GiB: the guest's memory.
pub(crate) const PD_MEMORY: u64 = 0x3000;
/// The page directory of the fourth GiB: the APIC and the unbacked pages, uncacheable.
pub(crate) const PD_DEVICES: u64 = 0x4000;
/// The descriptors of the flat segments.
pub(crate) const GDT: u64 = 0x5000;
/// 256 interrupt gates.
pub(crate) const IDT: u64 = 0x6000;
/// The code.
pub(crate) const PAYLOAD: u64 = 0x8000;
/// The room for the code.
#[cfg(test)]
pub(crate) const PAYLOAD_ROOM: usize = 0x8000;
/// One page a vCPU: its command, its counters, its stack at the upper end.
pub(crate) const BLOCKS: u64 = 0x1_0000;
/// The size of a block.
pub(crate) const BLOCK_SIZE: u64 = 0x1000;
/// The samples of one run, 8 bytes each.
pub(crate) const BUFFER: u64 = 0x20_0000;
/// The largest number of samples of one run.
pub(crate) const MAX_SAMPLES: u32 = 1 << 20;
/// The size of the guest's memory, in bytes: whole pages of 2 MiB.
pub(crate) const MEMORY_SIZE: usize = 0x20_0000 + 8 * MAX_SAMPLES as usize;
/// The largest number of vCPUs that run. Together with the parked one, their APIC IDs stay below xAPIC's
/// broadcast ID.
pub(crate) const MAX_VCPUS: u16 = 64;

/// The address of the local APIC after reset (SDM vol. 3, "Local APIC Status and Location").
pub(crate) const APIC_BASE: u64 = 0xfee0_0000;
/// A page without memory: a write exits to user space.
pub(crate) const MMIO_USER: u64 = 0xd000_0000;
/// A page without memory: a write signals an eventfd.
pub(crate) const MMIO_EVENTFD: u64 = 0xd000_1000;

/// A routine writes this port when it has ended.
pub(crate) const PORT_DONE: u16 = 0xf0;
/// The handler of unexpected vectors writes this port.
pub(crate) const PORT_FAULT: u16 = 0xf1;
/// A timed port: a write exits to user space.
pub(crate) const PORT_USER: u16 = 0xf2;
/// A timed port: a write signals an eventfd.
pub(crate) const PORT_EVENTFD: u16 = 0xf3;

/// The divide error exception (SDM vol. 3, table 6-1).
pub(crate) const VECTOR_DIVIDE_ERROR: u8 = 0;
// An interrupt's priority class is its vector / 16. No two are ever in service together.
/// The IPI to a running target.
pub(crate) const VECTOR_IPI: u8 = 0x40;
/// The IPI to a halted target.
pub(crate) const VECTOR_WAKE: u8 = 0x41;
/// The self-IPI that is timed.
pub(crate) const VECTOR_SELF: u8 = 0x50;
/// The self-IPI whose EOI is timed.
pub(crate) const VECTOR_EOI: u8 = 0x51;
/// The self-IPI that is pending when the vCPU halts.
pub(crate) const VECTOR_HALT: u8 = 0x52;
/// The APIC timer.
pub(crate) const VECTOR_TIMER: u8 = 0x60;
/// The spurious interrupt.
pub(crate) const VECTOR_SPURIOUS: u8 = 0xff;

/// The fields of a vCPU's block, as offsets. A field that the other vCPU polls has 128 bytes to itself: two
/// cache lines, because the adjacent-line prefetcher fetches them in pairs.
pub(crate) mod block {
    /// Address of the routine to call.
    pub(crate) const ROUTINE: u64 = 0x00;
    /// Iterations to discard.
    pub(crate) const WARM_UP: u64 = 0x08;
    /// Samples to take.
    pub(crate) const SAMPLES: u64 = 0x10;
    /// The address of the buffer for the samples.
    pub(crate) const BUFFER: u64 = 0x18;
    /// The block of the other vCPU.
    pub(crate) const PEER: u64 = 0x20;
    /// The APIC ID of the other vCPU.
    pub(crate) const PEER_APIC_ID: u64 = 0x28;
    /// Cycles to wait, for the measures that wait.
    pub(crate) const DELAY: u64 = 0x30;
    /// Iterations done, warm-up included. The watchdog reads it.
    pub(crate) const PROGRESS: u64 = 0x38;
    /// In x2APIC mode, the register that sends an IPI to the vCPU itself.
    pub(crate) const SELF_IPI_MSR: u64 = 0x40;
    /// The bits that are written to that register together with the vector.
    pub(crate) const SELF_IPI_BITS: u64 = 0x48;
    /// Interrupts which this vCPU has handled.
    pub(crate) const ACK: u64 = 0x80;
    /// The number of times that this vCPU was ready for the next interrupt.
    pub(crate) const READY: u64 = 0x100;
    /// Not zero when this vCPU is to leave its loop.
    pub(crate) const STOP: u64 = 0x180;
    /// The unexpected vector.
    pub(crate) const FAULT_VECTOR: u64 = 0x200;
    /// Its error code.
    pub(crate) const FAULT_CODE: u64 = 0x208;
    /// The address of the instruction at which it arrived.
    pub(crate) const FAULT_RIP: u64 = 0x210;
    /// The end of the fields; the stack grows down to here.
    #[cfg(test)]
    pub(crate) const END: u64 = 0x218;
}

/// The address of a vCPU's block.
pub(crate) fn block_of(vcpu: u16) -> u64 {
    BLOCKS + u64::from(vcpu) * BLOCK_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_do_not_overlap() {
        let mut regions = vec![
            (PML4, 0x1000),
            (PDPT, 0x1000),
            (PD_MEMORY, 0x1000),
            (PD_DEVICES, 0x1000),
            (GDT, 0x1000),
            (IDT, 0x1000),
            (PAYLOAD, PAYLOAD_ROOM as u64),
            (BLOCKS, u64::from(MAX_VCPUS) * BLOCK_SIZE),
            (BUFFER, u64::from(MAX_SAMPLES) * 8),
            (MMIO_USER, 0x1000),
            (MMIO_EVENTFD, 0x1000),
            (APIC_BASE, 0x1000),
        ];
        regions.sort_unstable();
        for pair in regions.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{:#x} runs into {:#x}", pair[0].0, pair[1].0);
        }
        assert_eq!(BUFFER + u64::from(MAX_SAMPLES) * 8, MEMORY_SIZE as u64);
    }

    #[test]
    fn a_block_leaves_room_for_the_stack() {
        // A call, an interrupt frame and a call in its handler take well under 256 bytes.
        const { assert!(block::END + 256 < BLOCK_SIZE) };
        assert_eq!(block_of(1) - block_of(0), BLOCK_SIZE);
    }

    #[test]
    fn polled_fields_do_not_share_a_pair_of_cache_lines() {
        let polled = [block::PROGRESS, block::ACK, block::READY, block::STOP, block::FAULT_VECTOR];
        for pair in polled.windows(2) {
            assert_ne!(pair[0] / 128, pair[1] / 128);
        }
    }

    #[test]
    fn memory_is_whole_large_pages() {
        assert_eq!(MEMORY_SIZE % (2 << 20), 0);
        const { assert!(MEMORY_SIZE <= 1 << 30) };
    }
}
