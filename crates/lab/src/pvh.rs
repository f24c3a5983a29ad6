//! Boots Linux from Bochs's ROM by Xen's PVH protocol, for which an uncompressed kernel has an entry point.
//!
//! Source: Xen's public header `arch-x86/hvm/start_info.h` and docs/misc/pvh.pandoc.

use linux_loader::loader::elf::start_info::{hvm_memmap_table_entry, hvm_modlist_entry, hvm_start_info};
use vm_memory::ByteValued;

use crate::kernel::FlatKernel;
use crate::payload::{Contents, INFORMATION, INITIAL_RAM_DISK, laid_out, memory_map};

/// `XEN_HVM_START_MAGIC_VALUE`.
const START_MAGIC: u32 = 0x336e_c578;

/// The memory contents of a machine with `memory_mib` MiB that boots a kernel.
pub(crate) fn contents<'a>(
    memory_mib: u64,
    kernel: &'a FlatKernel,
    command_line: &str,
    initial_ram_disk: &'a [u8],
) -> Contents<'a> {
    let start = start_information(memory_mib, command_line, initial_ram_disk.len() as u64);
    Contents {
        parts: vec![
            (INFORMATION, start.into()),
            (kernel.address, kernel.bytes.as_slice().into()),
            (INITIAL_RAM_DISK, initial_ram_disk.into()),
        ],
        entry: kernel.entry,
        // The protocol leaves EAX undefined.
        mark: 0,
    }
}

/// The start information with memory map, module list and command line, for address [`INFORMATION`].
fn start_information(memory_mib: u64, command_line: &str, initial_ram_disk: u64) -> Vec<u8> {
    const MODULES: u64 = 0x100;
    const MEMORY_MAP: u64 = 0x200;
    const COMMAND_LINE: u64 = 0x400;
    let map = memory_map(memory_mib);
    let entries: Vec<u8> = map
        .iter()
        .flat_map(|&(addr, size, type_)| {
            hvm_memmap_table_entry { addr, size, type_, reserved: 0 }.as_slice().to_vec()
        })
        .collect();
    let info = hvm_start_info {
        magic: START_MAGIC,
        version: 1,
        nr_modules: 1,
        modlist_paddr: INFORMATION + MODULES,
        cmdline_paddr: INFORMATION + COMMAND_LINE,
        memmap_paddr: INFORMATION + MEMORY_MAP,
        memmap_entries: map.len() as u32,
        ..Default::default()
    };
    let module = hvm_modlist_entry { paddr: INITIAL_RAM_DISK, size: initial_ram_disk, ..Default::default() };
    let mut out = laid_out(&[
        (0, info.as_slice()),
        (MODULES, module.as_slice()),
        (MEMORY_MAP, &entries),
        (COMMAND_LINE, command_line.as_bytes()),
    ]);
    out.push(0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_ends_with_a_zero() {
        let info = start_information(512, "quiet", 9);
        assert_eq!(&info[0x400..], b"quiet\0");
        assert_eq!(info[..4], START_MAGIC.to_le_bytes());
    }
}
