//! The guest's memory, and the tables that a vCPU needs to start in long mode.

use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

use crate::error::Error;
use crate::layout::{self, block};
use crate::payload;
use crate::run::ApicMode;

/// Present and writable (SDM vol. 3, "4-Level Paging").
const PRESENT_WRITABLE: u64 = 0b11;
/// Page-level write-through and cache-disable: with the reset value of the PAT, uncacheable.
const UNCACHEABLE: u64 = 0b1_1000;
/// The entry maps a page of 2 MiB.
const LARGE: u64 = 1 << 7;
const LARGE_SIZE: u64 = 2 << 20;

/// Flat 64-bit code: the processor ignores the descriptor's limit.
const CODE_DESCRIPTOR: u64 = 0x00af_9b00_0000_ffff;
/// Flat data.
const DATA_DESCRIPTOR: u64 = 0x00cf_9300_0000_ffff;

/// Selector of [`CODE_DESCRIPTOR`].
pub(crate) const CODE_SELECTOR: u16 = 0x08;
/// Selector of [`DATA_DESCRIPTOR`].
pub(crate) const DATA_SELECTOR: u16 = 0x10;
/// Length of the GDT in bytes, minus one.
pub(crate) const GDT_LIMIT: u16 = 3 * 8 - 1;
/// Length of the IDT in bytes, minus one.
pub(crate) const IDT_LIMIT: u16 = 256 * 16 - 1;

/// The guest's memory. Guest and host access it concurrently, so every access goes through `vm-memory`'s
/// volatile copies.
#[derive(Debug)]
pub(crate) struct Memory {
    map: GuestMemoryMmap,
    self_ipi: SelfIpi,
}

/// The register by which a vCPU in x2APIC mode sends an IPI to itself without an exit if interrupts are
/// virtualized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SelfIpi {
    /// The SELF IPI register, on Intel.
    Register,
    /// The ICR, on AMD.
    Icr,
}

impl SelfIpi {
    /// The MSR, and the bits to write together with the vector (SDM vol. 3, "x2APIC Register Address Space";
    /// for the ICR the destination shorthand "self").
    fn msr_and_bits(self) -> (u64, u64) {
        match self {
            Self::Register => (0x83f, 0),
            Self::Icr => (0x830, 1 << 18),
        }
    }
}

impl Memory {
    /// Allocates the memory, and writes the tables and the payload.
    pub(crate) fn new(apic: ApicMode, self_ipi: SelfIpi) -> Result<Self, Error> {
        let map = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), layout::MEMORY_SIZE)])
            .map_err(Error::memory("allocated"))?;
        let memory = Self { map, self_ipi };
        memory.write_paging()?;
        memory.write_u64(layout::GDT + u64::from(CODE_SELECTOR), CODE_DESCRIPTOR)?;
        memory.write_u64(layout::GDT + u64::from(DATA_SELECTOR), DATA_DESCRIPTOR)?;
        for vector in 0..=u8::MAX {
            let [low, high] = gate(payload::handler(vector, apic));
            memory.write_u64(layout::IDT + u64::from(vector) * 16, low)?;
            memory.write_u64(layout::IDT + u64::from(vector) * 16 + 8, high)?;
        }
        memory
            .map
            .write_slice(payload::bytes(), GuestAddress(layout::PAYLOAD))
            .map_err(Error::memory("given its payload"))?;
        Ok(memory)
    }

    fn write_paging(&self) -> Result<(), Error> {
        self.write_u64(layout::PML4, layout::PDPT | PRESENT_WRITABLE)?;
        self.write_u64(layout::PDPT, layout::PD_MEMORY | PRESENT_WRITABLE)?;
        self.write_u64(layout::PDPT + 3 * 8, layout::PD_DEVICES | PRESENT_WRITABLE)?;
        for page in 0..layout::MEMORY_SIZE as u64 / LARGE_SIZE {
            self.write_u64(layout::PD_MEMORY + page * 8, (page * LARGE_SIZE) | LARGE | PRESENT_WRITABLE)?;
        }
        for page in 0..512 {
            let address = (3 << 30) + page * LARGE_SIZE;
            self.write_u64(layout::PD_DEVICES + page * 8, address | LARGE | UNCACHEABLE | PRESENT_WRITABLE)?;
        }
        Ok(())
    }

    /// The host's address of the guest's address 0, for KVM_SET_USER_MEMORY_REGION.
    pub(crate) fn host_address(&self) -> Result<u64, Error> {
        let start = self.map.get_host_address(GuestAddress(0)).map_err(Error::memory("found"))?;
        Ok(start.addr() as u64)
    }

    pub(crate) fn write_u64(&self, address: u64, value: u64) -> Result<(), Error> {
        self.map.write_obj(value, GuestAddress(address)).map_err(Error::memory("written"))
    }

    pub(crate) fn read_u64(&self, address: u64) -> Result<u64, Error> {
        self.map.read_obj(GuestAddress(address)).map_err(Error::memory("read"))
    }

    /// The first `count` samples of the buffer.
    pub(crate) fn samples(&self, count: u32) -> Result<Vec<u64>, Error> {
        let mut bytes = vec![0; count as usize * 8];
        self.map
            .read_slice(&mut bytes, GuestAddress(layout::BUFFER))
            .map_err(Error::memory("read for its samples"))?;
        let sample = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        Ok(bytes.chunks_exact(8).map(sample).collect())
    }

    /// Gives a vCPU its next command.
    pub(crate) fn command(&self, vcpu: u16, command: &Command) -> Result<(), Error> {
        let at = layout::block_of(vcpu);
        let (self_ipi_msr, self_ipi_bits) = self.self_ipi.msr_and_bits();
        for (field, value) in [
            (block::ROUTINE, command.routine),
            (block::WARM_UP, u64::from(command.warm_up)),
            (block::SAMPLES, u64::from(command.samples)),
            (block::BUFFER, layout::BUFFER),
            (block::PEER, layout::block_of(command.peer)),
            (block::PEER_APIC_ID, u64::from(command.peer)),
            (block::DELAY, command.delay),
            (block::PROGRESS, 0),
            (block::SELF_IPI_MSR, self_ipi_msr),
            (block::SELF_IPI_BITS, self_ipi_bits),
            (block::ACK, 0),
            (block::READY, 0),
            (block::STOP, 0),
        ] {
            self.write_u64(at + field, value)?;
        }
        Ok(())
    }
}

/// The command of a vCPU for its next entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Command {
    /// The routine's address in the guest.
    pub(crate) routine: u64,
    pub(crate) warm_up: u32,
    pub(crate) samples: u32,
    /// The other vCPU; its APIC ID equals its number.
    pub(crate) peer: u16,
    /// In cycles.
    pub(crate) delay: u64,
}

/// A 64-bit interrupt gate (SDM vol. 3, "64-Bit Mode IDT"): present, ring 0, interrupts off, no stack switch.
fn gate(handler: u64) -> [u64; 2] {
    let low = (handler & 0xffff)
        | (u64::from(CODE_SELECTOR) << 16)
        | (0x8e00 << 32)
        | (((handler >> 16) & 0xffff) << 48);
    [low, handler >> 32]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks the tables as the processor does, and returns the address and whether the page is uncacheable.
    fn translate(memory: &Memory, address: u64) -> Option<(u64, bool)> {
        let mut table = layout::PML4;
        for shift in [39, 30, 21] {
            let entry = memory.read_u64(table + ((address >> shift) & 0x1ff) * 8).unwrap();
            if entry & 1 == 0 {
                return None;
            }
            table = entry & 0x000f_ffff_ffff_f000;
            if entry & LARGE != 0 {
                assert_eq!(shift, 21);
                return Some((table | (address & (LARGE_SIZE - 1)), entry & UNCACHEABLE == UNCACHEABLE));
            }
        }
        panic!("the tables have no fourth level");
    }

    #[test]
    fn memory_and_devices_are_identity_mapped() {
        let memory = Memory::new(ApicMode::Xapic, SelfIpi::Register).unwrap();
        for address in [0, layout::PAYLOAD, layout::block_of(63), layout::MEMORY_SIZE as u64 - 8] {
            assert_eq!(translate(&memory, address), Some((address, false)), "{address:#x}");
        }
        for address in [layout::APIC_BASE + 0x300, layout::MMIO_USER, layout::MMIO_EVENTFD] {
            assert_eq!(translate(&memory, address), Some((address, true)), "{address:#x}");
        }
        for address in [layout::MEMORY_SIZE as u64, 1 << 30, 2 << 30, 4 << 30] {
            assert_eq!(translate(&memory, address), None, "{address:#x}");
        }
    }

    #[test]
    fn gates_spread_the_address_as_the_manual_says() {
        let [low, high] = gate(0x1234_5678_9abc_def0);
        assert_eq!(low, 0x9abc_8e00_0008_def0);
        assert_eq!(high, 0x1234_5678);
    }

    #[test]
    fn payload_and_gates_are_in_place() {
        let memory = Memory::new(ApicMode::X2apic, SelfIpi::Register).unwrap();
        let first = memory.read_u64(layout::PAYLOAD).unwrap();
        assert_eq!(first.to_le_bytes(), payload::bytes()[..8]);
        let at = layout::IDT + u64::from(layout::VECTOR_IPI) * 16;
        let low = memory.read_u64(at).unwrap();
        let handler = (low & 0xffff) | ((low >> 48) << 16);
        assert_eq!(handler, payload::handler(layout::VECTOR_IPI, ApicMode::X2apic));
    }

    #[test]
    fn a_command_resets_the_counters() {
        let memory = Memory::new(ApicMode::X2apic, SelfIpi::Register).unwrap();
        memory.write_u64(layout::block_of(3) + block::STOP, 1).unwrap();
        let command = Command { routine: 0x9000, warm_up: 5, samples: 7, peer: 2, delay: 11 };
        memory.command(3, &command).unwrap();
        let read = |field| memory.read_u64(layout::block_of(3) + field).unwrap();
        assert_eq!(read(block::STOP), 0);
        assert_eq!(read(block::PEER), layout::block_of(2));
        assert_eq!((read(block::WARM_UP), read(block::SAMPLES), read(block::DELAY)), (5, 7, 11));
    }

    #[test]
    fn samples_come_back_in_order() {
        let memory = Memory::new(ApicMode::X2apic, SelfIpi::Register).unwrap();
        for n in 0..4 {
            memory.write_u64(layout::BUFFER + n * 8, 100 + n).unwrap();
        }
        assert_eq!(memory.samples(3).unwrap(), [100, 101, 102]);
    }

    #[test]
    fn a_vcpu_is_told_the_register_that_its_processor_virtualizes() {
        let command = Command { routine: 0, warm_up: 0, samples: 0, peer: 0, delay: 0 };
        for (form, msr, bits) in [(SelfIpi::Register, 0x83f, 0), (SelfIpi::Icr, 0x830, 0x40000)] {
            let memory = Memory::new(ApicMode::X2apic, form).unwrap();
            memory.command(1, &command).unwrap();
            let read = |field| memory.read_u64(layout::block_of(1) + field).unwrap();
            assert_eq!((read(block::SELF_IPI_MSR), read(block::SELF_IPI_BITS)), (msr, bits));
        }
    }
}
