//! From a distribution's compressed kernel image to memory contents that can be entered directly.
//!
//! Decompressing a kernel costs an emulated CPU seconds. So that is done here, once, and the kernel is entered by the
//! PVH protocol (Xen's `start_info`, docs/misc/pvh.pandoc in the Xen tree), which takes an uncompressed ELF kernel in
//! 32-bit protected mode. The code that runs is the distribution's, byte for byte.

use std::io::Cursor;
use std::path::Path;

use linux_loader::loader::KernelLoader;
use linux_loader::loader::elf::{Elf, PvhBootCapability};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use crate::error::Error;

/// A kernel as it lies in memory before its first instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlatKernel {
    /// Physical address of the first byte.
    pub(crate) address: u64,
    /// The bytes, without the zeros at the end.
    pub(crate) bytes: Vec<u8>,
    /// Physical address of the 32-bit PVH entry.
    pub(crate) entry: u64,
}

/// Unpacks the ELF kernel out of a zstd-compressed bzImage.
///
/// Source: Documentation/arch/x86/boot.rst, fields `setup_sects`, `header`, `payload_offset`, `payload_length`.
pub(crate) fn unpack_bzimage(path: &Path, image: &[u8]) -> Result<Vec<u8>, Error> {
    let problem = |problem: &str| Error::Kernel { path: path.to_owned(), problem: problem.to_owned() };
    let u32_at = |at: usize| {
        image.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes).map(|v| v as usize)
    };
    if image.get(0x202..0x206) != Some(b"HdrS") {
        return Err(problem("not a bzImage (the setup header's mark HdrS is missing)"));
    }
    let setup_sectors = usize::from(image[0x1f1]).max(4);
    let (offset, length) =
        u32_at(0x248).zip(u32_at(0x24c)).ok_or_else(|| problem("the setup header is cut off"))?;
    let start = (setup_sectors + 1) * 512 + offset;
    let payload =
        image.get(start..start + length).ok_or_else(|| problem("the compressed payload is cut off"))?;
    if !payload.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Err(problem("its payload is not compressed with zstd, which Debian's kernels are"));
    }
    // The last four bytes are the uncompressed size, as every compressor's output is laid out for the boot stub.
    let compressed = payload.get(..payload.len().saturating_sub(4)).unwrap_or_default();
    zstd::stream::decode_all(compressed)
        .map_err(|error| problem(&format!("could not be decompressed: {error}")))
}

/// Lays the ELF kernel's segments out as they stand in physical memory.
pub(crate) fn flatten(path: &Path, elf: &[u8]) -> Result<FlatKernel, Error> {
    const WINDOW: usize = 256 << 20;
    let problem = |problem: String| Error::Kernel { path: path.to_owned(), problem };
    let memory: GuestMemoryMmap = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), WINDOW)])
        .map_err(|error| problem(format!("no memory to lay it out: {error}")))?;
    let loaded = Elf::load(&memory, None, &mut Cursor::new(elf), None)
        .map_err(|error| problem(format!("not a loadable ELF kernel: {error}")))?;
    let PvhBootCapability::PvhEntryPresent(entry) = loaded.pvh_boot_cap else {
        return Err(problem("it has no PVH entry (CONFIG_PVH)".to_owned()));
    };
    let address = lowest_segment(elf).ok_or_else(|| problem("its program headers are cut off".to_owned()))?;
    let length = usize::try_from(loaded.kernel_end.saturating_sub(address)).unwrap_or(usize::MAX);
    if length > WINDOW {
        return Err(problem("its segments reach beyond 256 MiB".to_owned()));
    }
    let mut bytes = vec![0; length];
    memory
        .read_slice(&mut bytes, GuestAddress(address))
        .map_err(|error| problem(format!("could not be laid out: {error}")))?;
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    Ok(FlatKernel { address, bytes, entry: entry.0 })
}

/// The lowest physical address of a loadable segment (ELF64, little-endian).
fn lowest_segment(elf: &[u8]) -> Option<u64> {
    const PT_LOAD: u32 = 1;
    let u16_at = |at: usize| elf.get(at..at + 2).and_then(|b| b.try_into().ok()).map(u16::from_le_bytes);
    let u32_at = |at: usize| elf.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    let u64_at = |at: usize| elf.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    let table = usize::try_from(u64_at(32)?).ok()?;
    let (size, count) = (usize::from(u16_at(54)?), usize::from(u16_at(56)?));
    (0..count)
        .map(|index| table + index * size)
        .filter(|&header| u32_at(header) == Some(PT_LOAD))
        .filter_map(|header| u64_at(header + 24))
        .min()
}
