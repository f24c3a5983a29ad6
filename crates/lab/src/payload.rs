//! The memory image that Bochs loads at power-on: the memory's initial contents, in chunks for the ROM.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use crate::rom::{self, CHUNK, CHUNK_HEADER, CHUNK_MARK, EMPTY_CHUNKS};

/// The address of the boot information: below a kernel, above Xen.
pub(crate) const INFORMATION: u64 = 0xf0_0000;
/// The address of the initial RAM disk, above the kernel.
pub(crate) const INITIAL_RAM_DISK: u64 = 128 << 20;
/// The size of the ACPI tables of Bochs's firmware, at the top of memory (`ACPI_DATA_SIZE` in its rombios32).
const ACPI_TABLES: u64 = 64 << 10;

const RAM: u32 = 1;
const RESERVED: u32 = 2;
const ACPI: u32 = 3;

/// The memory contents that the ROM sets up, and the entry point.
#[derive(Debug)]
pub(crate) struct Contents<'a> {
    /// The physical address and bytes of each part.
    pub(crate) parts: Vec<(u64, Cow<'a, [u8]>)>,
    /// Physical address of the first instruction, in 32-bit protected mode.
    pub(crate) entry: u64,
    /// The value of EAX at the entry.
    pub(crate) mark: u32,
}

/// A range of the memory map: address, size, and E820 type.
pub(crate) type Range = (u64, u64, u32);

/// The memory map that Bochs's firmware reports on a machine with `memory_mib` MiB.
pub(crate) fn memory_map(memory_mib: u64) -> [Range; 5] {
    let memory = memory_mib << 20;
    [
        (0, 0x9_fc00, RAM),
        (0x9_fc00, 0x400, RESERVED),
        (0xe_8000, 0x1_8000, RESERVED),
        (0x10_0000, memory - 0x10_0000 - ACPI_TABLES, RAM),
        (memory - ACPI_TABLES, ACPI_TABLES, ACPI),
    ]
}

/// The largest initial RAM disk for this amount of memory, in bytes.
pub(crate) fn room(memory_mib: u64) -> u64 {
    let source = source(memory_mib);
    let chunks_above = (memory_mib << 20).saturating_sub(source);
    let overhead = (64 << 20) + (EMPTY_CHUNKS * CHUNK) as u64;
    source.saturating_sub(INITIAL_RAM_DISK).min(chunks_above.saturating_sub(overhead))
}

/// The address of the chunks: in the upper half of memory, so that they do not overlap their destinations.
fn source(memory_mib: u64) -> u64 {
    (memory_mib << 20) / 2 / CHUNK as u64 * CHUNK as u64
}

/// Writes the payload for a machine with `memory_mib` MiB, and returns the ROM's parameters.
pub(crate) fn write(
    file: &mut File,
    memory_mib: u64,
    contents: &Contents<'_>,
) -> io::Result<rom::Parameters> {
    let pieces: Vec<(u64, &[u8])> = contents
        .parts
        .iter()
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
    Ok(rom::Parameters {
        source: low_address(source(memory_mib))?,
        chunks: low_address(pieces.len() as u64)?,
        entry: low_address(contents.entry)?,
        information: low_address(INFORMATION)?,
        mark: contents.mark,
    })
}

fn low_address(value: u64) -> io::Result<u32> {
    u32::try_from(value).map_err(io::Error::other)
}

/// Concatenates `parts`, each at its offset, padded with zeros.
pub(crate) fn laid_out(parts: &[(u64, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for &(at, bytes) in parts {
        debug_assert!(out.len() as u64 <= at, "a part begins at {at:#x}, where another still is");
        out.resize(at as usize, 0);
        out.extend_from_slice(bytes);
    }
    out
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn payload() -> (Vec<u8>, rom::Parameters) {
        let contents = Contents {
            parts: vec![
                (INFORMATION, b"information".into()),
                (16 << 20, vec![7; CHUNK + 10].into()),
                (INITIAL_RAM_DISK, b"ram disk".into()),
            ],
            entry: 0x0100_0b20,
            mark: 5,
        };
        let mut file = tempfile::tempfile().unwrap();
        let parameters = write(&mut file, 512, &contents).unwrap();
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        (bytes, parameters)
    }

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn every_chunk_says_where_it_belongs() {
        let (bytes, parameters) = payload();
        let headers: Vec<(u32, u32)> = bytes
            .chunks(CHUNK)
            .filter(|chunk| word(chunk, 0) == CHUNK_MARK)
            .map(|chunk| (word(chunk, 4), word(chunk, 8)))
            .collect();
        let first = (CHUNK - CHUNK_HEADER) as u32;
        assert_eq!(headers[1..], [(16 << 20, first), ((16 << 20) + first, 10 + 4096 + 2), (128 << 20, 8)]);
        assert_eq!(headers[0], (INFORMATION as u32, 12));
        let expected = rom::Parameters {
            source: 256 << 20,
            chunks: 4,
            entry: 0x0100_0b20,
            information: INFORMATION as u32,
            mark: 5,
        };
        assert_eq!(parameters, expected);
    }

    #[test]
    fn the_firmware_gets_only_empty_chunks() {
        let (bytes, _) = payload();
        assert!(bytes[CHUNK..CHUNK * (EMPTY_CHUNKS + 1)].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn chunks_and_destinations_do_not_meet() {
        for memory in [256, 512, 1536, 2048] {
            assert!(INITIAL_RAM_DISK + room(memory) <= source(memory).max(INITIAL_RAM_DISK), "{memory}");
        }
        assert!(room(512) > 64 << 20);
    }
}
