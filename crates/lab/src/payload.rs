//! The memory image that Bochs loads at power-on: start information, kernel and initial RAM disk, in chunks.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use linux_loader::loader::elf::start_info::{hvm_memmap_table_entry, hvm_modlist_entry, hvm_start_info};
use vm_memory::ByteValued;

use crate::kernel::FlatKernel;
use crate::rom::{self, CHUNK, CHUNK_HEADER, CHUNK_MARK, EMPTY_CHUNKS};

/// Start information, below the kernel.
const START_INFO: u64 = 0xf0_0000;
/// Initial RAM disk, above the kernel.
const INITIAL_RAM_DISK: u64 = 128 << 20;
/// XEN_HVM_START_MAGIC_VALUE of Xen's public header `arch-x86/hvm/start_info.h`.
const START_MAGIC: u32 = 0x336e_c578;
/// Room that Bochs's firmware takes for ACPI tables at the top of memory (`ACPI_DATA_SIZE` in its rombios32).
const ACPI_TABLES: u64 = 64 << 10;

const RAM: u32 = 1;
const RESERVED: u32 = 2;
const ACPI: u32 = 3;

/// A payload file's place and what the ROM must know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) rom: rom::Parameters,
}

/// How large an initial RAM disk may be for this much memory, in bytes.
pub(crate) fn room(memory_mib: u64) -> u64 {
    let source = source(memory_mib);
    let chunks_above = (memory_mib << 20).saturating_sub(source);
    let overhead = (64 << 20) + (EMPTY_CHUNKS * CHUNK) as u64;
    source.saturating_sub(INITIAL_RAM_DISK).min(chunks_above.saturating_sub(overhead))
}

/// The chunks lie in the upper half, out of the way of their destinations.
fn source(memory_mib: u64) -> u64 {
    (memory_mib << 20) / 2 / CHUNK as u64 * CHUNK as u64
}

/// Writes the payload for a machine with `memory_mib` MiB.
pub(crate) fn write(
    file: &mut File,
    memory_mib: u64,
    kernel: &FlatKernel,
    command_line: &str,
    initial_ram_disk: &[u8],
) -> io::Result<Placement> {
    let start = start_information(memory_mib, command_line, initial_ram_disk.len() as u64);
    let parts = [
        (START_INFO, start.as_slice()),
        (kernel.address, kernel.bytes.as_slice()),
        (INITIAL_RAM_DISK, initial_ram_disk),
    ];
    let pieces: Vec<(u64, &[u8])> = parts
        .into_iter()
        .flat_map(|(address, bytes)| {
            let pieces = bytes.chunks(CHUNK - CHUNK_HEADER).enumerate();
            pieces.map(move |(index, piece)| (address + (index * (CHUNK - CHUNK_HEADER)) as u64, piece))
        })
        .collect();
    for (index, (address, piece)) in pieces.iter().enumerate() {
        let chunk = if index == 0 { 0 } else { index + EMPTY_CHUNKS };
        file.seek(SeekFrom::Start((chunk * CHUNK) as u64))?;
        let mut header = [0; CHUNK_HEADER];
        header[..4].copy_from_slice(&CHUNK_MARK.to_le_bytes());
        header[4..8].copy_from_slice(&low_address(*address)?.to_le_bytes());
        let whole_words = piece.len().next_multiple_of(4);
        header[8..12].copy_from_slice(&low_address(whole_words as u64)?.to_le_bytes());
        file.write_all(&header)?;
        file.write_all(piece)?;
    }
    file.set_len(((pieces.len() + EMPTY_CHUNKS) * CHUNK) as u64)?;
    file.flush()?;
    Ok(Placement {
        rom: rom::Parameters {
            source: low_address(source(memory_mib))?,
            chunks: low_address(pieces.len() as u64)?,
            entry: low_address(kernel.entry)?,
            start_info: low_address(START_INFO)?,
        },
    })
}

fn low_address(value: u64) -> io::Result<u32> {
    u32::try_from(value).map_err(io::Error::other)
}

/// The PVH start information with its memory map, module list and command line, as they lie from [`START_INFO`] on.
fn start_information(memory_mib: u64, command_line: &str, initial_ram_disk: u64) -> Vec<u8> {
    const MODULES: u64 = 0x100;
    const MEMORY_MAP: u64 = 0x200;
    const COMMAND_LINE: u64 = 0x400;
    let memory = memory_mib << 20;
    let map = [
        (0, 0x9_fc00, RAM),
        (0x9_fc00, 0x400, RESERVED),
        (0xe_8000, 0x1_8000, RESERVED),
        (0x10_0000, memory - 0x10_0000 - ACPI_TABLES, RAM),
        (memory - ACPI_TABLES, ACPI_TABLES, ACPI),
    ];
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
        modlist_paddr: START_INFO + MODULES,
        cmdline_paddr: START_INFO + COMMAND_LINE,
        memmap_paddr: START_INFO + MEMORY_MAP,
        memmap_entries: map.len() as u32,
        ..Default::default()
    };
    let module = hvm_modlist_entry { paddr: INITIAL_RAM_DISK, size: initial_ram_disk, ..Default::default() };
    let mut out = Vec::new();
    for (at, bytes) in [
        (0, info.as_slice()),
        (MODULES, module.as_slice()),
        (MEMORY_MAP, entries.as_slice()),
        (COMMAND_LINE, command_line.as_bytes()),
    ] {
        out.resize(at as usize, 0);
        out.extend_from_slice(bytes);
    }
    out.push(0);
    out
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn payload(initial_ram_disk: &[u8]) -> (Vec<u8>, Placement) {
        let kernel = FlatKernel { address: 16 << 20, bytes: vec![7; CHUNK + 10], entry: 0x0100_0b20 };
        let mut file = tempfile::tempfile().unwrap();
        let placement = write(&mut file, 512, &kernel, "console=ttyS0", initial_ram_disk).unwrap();
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        (bytes, placement)
    }

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn every_chunk_says_where_it_belongs() {
        let (bytes, placement) = payload(b"ram disk");
        assert_eq!(placement.rom.chunks, 4);
        let headers: Vec<(u32, u32)> = bytes
            .chunks(CHUNK)
            .filter(|chunk| word(chunk, 0) == CHUNK_MARK)
            .map(|chunk| (word(chunk, 4), word(chunk, 8)))
            .collect();
        let first = (CHUNK - CHUNK_HEADER) as u32;
        assert_eq!(headers[1..], [(16 << 20, first), ((16 << 20) + first, 10 + 4096 + 2), (128 << 20, 8)]);
        assert_eq!(headers[0].0, START_INFO as u32);
    }

    #[test]
    fn the_firmware_gets_only_empty_chunks() {
        let (bytes, _) = payload(b"ram disk");
        assert!(bytes[CHUNK..CHUNK * (EMPTY_CHUNKS + 1)].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn the_command_line_ends_with_a_zero() {
        let info = start_information(512, "quiet", 9);
        assert_eq!(&info[0x400..], b"quiet\0");
        assert_eq!(word(&info, 0), START_MAGIC);
    }

    #[test]
    fn chunks_and_destinations_do_not_meet() {
        for memory in [256, 512, 1536, 2048] {
            assert!(INITIAL_RAM_DISK + room(memory) <= source(memory).max(INITIAL_RAM_DISK), "{memory}");
        }
        assert!(room(512) > 64 << 20);
    }
}
