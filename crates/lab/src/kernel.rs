//! Converts a distribution's compressed kernel image to memory contents that can be entered directly.
//!
//! An emulated CPU needs seconds to decompress a kernel. So it is decompressed here, once, and entered by the
//! PVH boot protocol (Xen's `start_info`, docs/misc/pvh.pandoc in Xen's source), which starts an uncompressed
//! ELF kernel in 32-bit protected mode. The code that runs is the distribution's, byte for byte.

use std::io::{self, Cursor, Read};
use std::path::Path;

use linux_loader::loader::KernelLoader;
use linux_loader::loader::elf::{Elf, PvhBootCapability};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use crate::elf::{PT_LOAD, program_headers};
use crate::error::Error;

/// The largest ELF kernel that is unpacked, in bytes; Debian's Linux 6.12 has 55 MiB. Needed because a few
/// bytes of zstd can expand to any size.
const LARGEST_ELF: usize = 512 << 20;
/// The kernel must fit into physical memory below this address.
const WINDOW: usize = 256 << 20;

/// A kernel's memory contents before its first instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlatKernel {
    /// Physical address of the first byte.
    pub(crate) address: u64,
    /// The bytes, without trailing zeros.
    pub(crate) bytes: Vec<u8>,
    /// The physical address of the 32-bit PVH entry point.
    pub(crate) entry: u64,
}

/// The magic numbers of payloads compressed with zstd and with LZ4.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const LZ4: [u8; 4] = [0x02, 0x21, 0x4c, 0x18];
/// The most uncompressed bytes in a block of LZ4's legacy frame, which the kernel's build uses.
const LZ4_BLOCK: usize = 8 << 20;

/// Unpacks the ELF kernel from a bzImage. Debian's are compressed with LZ4 until 6.1, with zstd since.
///
/// Source: Documentation/arch/x86/boot.rst, fields `setup_sects`, `header`, `payload_offset`, `payload_length`.
pub(crate) fn unpack_bzimage(path: &Path, image: &[u8]) -> Result<Vec<u8>, Error> {
    unpack_within(path, image, LARGEST_ELF)
}

/// Like [`unpack_bzimage`], for a kernel of at most `largest` bytes.
pub(crate) fn unpack_within(path: &Path, image: &[u8], largest: usize) -> Result<Vec<u8>, Error> {
    let problem = |problem: &str| Error::Kernel { path: path.to_owned(), problem: problem.to_owned() };
    let u32_at = |at: usize| {
        image.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes).map(|v| v as usize)
    };
    if image.get(0x202..0x206) != Some(b"HdrS") {
        return Err(problem("not a bzImage (the setup header's mark HdrS is missing)"));
    }
    let (offset, length) =
        u32_at(0x248).zip(u32_at(0x24c)).ok_or_else(|| problem("the setup header is cut off"))?;
    let start = setup_size(image) + offset;
    let payload =
        image.get(start..start + length).ok_or_else(|| problem("the compressed payload is cut off"))?;
    // The kernel's build appends four bytes for the boot stub: the uncompressed size.
    let compressed = payload.get(..payload.len().saturating_sub(4)).unwrap_or_default();
    let unpacked = if compressed.starts_with(&ZSTD) {
        unzstd(compressed, largest)
    } else if let Some(blocks) = compressed.strip_prefix(&LZ4) {
        unlz4(blocks, largest)
    } else {
        return Err(problem(
            "its payload is compressed neither with zstd nor with LZ4, as Debian's kernels are",
        ));
    };
    let elf = unpacked.map_err(|error| problem(&format!("could not be decompressed: {error}")))?;
    if elf.len() > largest {
        return Err(problem(&format!("it is larger than {} MiB unpacked, as no kernel is", largest >> 20)));
    }
    Ok(elf)
}

/// The size of a bzImage's setup code, in bytes. It follows the boot sector; its length of 0 sectors means 4.
pub(crate) fn setup_size(image: &[u8]) -> usize {
    (usize::from(image.get(0x1f1).copied().unwrap_or(0)).max(4) + 1) * 512
}

/// Decompresses zstd. Stops once the result is larger than `largest` bytes.
fn unzstd(compressed: &[u8], largest: usize) -> io::Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    zstd::stream::Decoder::new(compressed)?.take(largest as u64 + 1).read_to_end(&mut unpacked)?;
    Ok(unpacked)
}

/// Decompresses the blocks of LZ4's legacy frame; each is preceded by its size. Stops once the result is
/// larger than `largest` bytes.
fn unlz4(mut blocks: &[u8], largest: usize) -> io::Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    while let Some((size, rest)) = blocks.split_first_chunk().filter(|_| unpacked.len() <= largest) {
        let size = u32::from_le_bytes(*size) as usize;
        let (block, rest) =
            rest.split_at_checked(size).ok_or_else(|| io::Error::other("a block is cut off"))?;
        unpacked.extend(lz4_flex::block::decompress(block, LZ4_BLOCK).map_err(io::Error::other)?);
        blocks = rest;
    }
    Ok(unpacked)
}

/// Copies the ELF kernel's segments to their physical addresses.
pub(crate) fn flatten(path: &Path, elf: &[u8]) -> Result<FlatKernel, Error> {
    flatten_within(path, elf, WINDOW)
}

/// Like [`flatten`], for a kernel that must fit into the first `window` bytes of physical memory.
pub(crate) fn flatten_within(path: &Path, elf: &[u8], window: usize) -> Result<FlatKernel, Error> {
    let problem = |problem: String| Error::Kernel { path: path.to_owned(), problem };
    let memory: GuestMemoryMmap = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), window)])
        .map_err(|error| problem(format!("no memory to lay it out: {error}")))?;
    let loaded = Elf::load(&memory, None, &mut Cursor::new(elf), None)
        .map_err(|error| problem(format!("not a loadable ELF kernel: {error}")))?;
    let PvhBootCapability::PvhEntryPresent(entry) = loaded.pvh_boot_cap else {
        return Err(problem("it has no PVH entry (CONFIG_PVH)".to_owned()));
    };
    let address = program_headers(elf)
        .filter(|header| header.kind == PT_LOAD)
        .map(|header| header.physical_address)
        .min()
        .ok_or_else(|| problem("its program headers are cut off".to_owned()))?;
    let length = usize::try_from(loaded.kernel_end.saturating_sub(address)).unwrap_or(usize::MAX);
    if length > window {
        return Err(problem(format!("its segments reach beyond {} MiB", window >> 20)));
    }
    let mut bytes = vec![0; length];
    memory
        .read_slice(&mut bytes, GuestAddress(address))
        .map_err(|error| problem(format!("could not be laid out: {error}")))?;
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    Ok(FlatKernel { address, bytes, entry: entry.0 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A bzImage whose payload is `elf`, compressed with zstd.
    fn bzimage(elf: &[u8]) -> Vec<u8> {
        bzimage_of(&zstd::encode_all(elf, 0).unwrap(), elf)
    }

    /// The same, compressed with LZ4.
    fn bzimage_in_blocks(elf: &[u8]) -> Vec<u8> {
        let mut payload = LZ4.to_vec();
        for block in elf.chunks(LZ4_BLOCK) {
            let block = lz4_flex::block::compress(block);
            payload.extend(u32::try_from(block.len()).unwrap().to_le_bytes());
            payload.extend(block);
        }
        bzimage_of(&payload, elf)
    }

    fn bzimage_of(payload: &[u8], elf: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 5 * 512];
        image[0x1f1] = 4;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len() + 4).unwrap().to_le_bytes());
        image.extend(payload);
        image.extend(u32::try_from(elf.len()).unwrap().to_le_bytes());
        image
    }

    fn unpacked(image: &[u8], largest: usize) -> Result<Vec<u8>, String> {
        unpack_within(Path::new("vmlinuz"), image, largest).map_err(|error| error.to_string())
    }

    #[test]
    fn what_was_packed_comes_out_up_to_the_limit() {
        let elf = vec![7; LZ4_BLOCK + 3];
        assert_eq!(unpacked(&bzimage(&elf), elf.len()).as_ref(), Ok(&elf));
        assert_eq!(unpacked(&bzimage_in_blocks(&elf), elf.len()), Ok(elf));
    }

    #[test]
    fn a_small_image_that_unpacks_without_bound_is_refused() {
        let zeros = vec![0; 64 << 20];
        for image in [bzimage(&zeros), bzimage_in_blocks(&zeros)] {
            assert!(image.len() < 512 << 10);
            let refusal = unpacked(&image, 1 << 20).unwrap_err();
            assert!(refusal.contains("larger than 1 MiB unpacked"), "{refusal}");
        }
    }

    #[test]
    fn an_image_that_is_cut_off_is_refused() {
        for image in [bzimage(b"kernel"), bzimage_in_blocks(b"kernel")] {
            assert!(unpacked(&image[..image.len() - 1], 100).unwrap_err().contains("cut off"));
        }
        let mut image = bzimage_in_blocks(b"kernel");
        image[5 * 512 + 4] += 1;
        assert!(unpacked(&image, 100).unwrap_err().contains("a block is cut off"));
        assert!(unpacked(&image[..0x206], 100).unwrap_err().contains("cut off"));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(at in 0..6 * 512usize, value: u8, elf in prop::collection::vec(any::<u8>(), 0..300)) {
            for mut image in [bzimage(&elf), bzimage_in_blocks(&elf)] {
                let at = at.min(image.len() - 1);
                image[at] = value;
                let _ = unpacked(&image, 1 << 20);
            }
            let _ = flatten_within(Path::new("vmlinux"), &elf, 1 << 20);
        }
    }
}
