//! Converting a distribution's compressed kernel image to memory contents that can be entered directly.
//!
//! An emulated CPU needs seconds to decompress a kernel. So it is decompressed here, once, and entered by the
//! PVH protocol (Xen's `start_info`, docs/misc/pvh.pandoc in the Xen tree), which takes an uncompressed ELF
//! kernel in 32-bit protected mode. The code that runs is the distribution's, byte for byte.

use std::io::{Cursor, Read};
use std::path::Path;

use linux_loader::loader::KernelLoader;
use linux_loader::loader::elf::{Elf, PvhBootCapability};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use crate::elf::{PT_LOAD, program_headers};
use crate::error::Error;

/// The largest ELF kernel that is unpacked, in bytes: Debian's Linux 6.12 has 55 MiB. The limit is needed
/// because a few bytes of zstd can expand to any size.
const LARGEST_ELF: usize = 512 << 20;
/// The size of the physical memory into which a kernel must fit, in bytes.
const WINDOW: usize = 256 << 20;

/// A kernel's memory contents before its first instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlatKernel {
    /// Physical address of the first byte.
    pub(crate) address: u64,
    /// Its bytes, without the zeros at the end.
    pub(crate) bytes: Vec<u8>,
    /// Physical address of the 32-bit PVH entry.
    pub(crate) entry: u64,
}

/// Unpacks the ELF kernel from a zstd-compressed bzImage.
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
    let setup_sectors = usize::from(image[0x1f1]).max(4);
    let (offset, length) =
        u32_at(0x248).zip(u32_at(0x24c)).ok_or_else(|| problem("the setup header is cut off"))?;
    let start = (setup_sectors + 1) * 512 + offset;
    let payload =
        image.get(start..start + length).ok_or_else(|| problem("the compressed payload is cut off"))?;
    if !payload.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Err(problem("its payload is not compressed with zstd, which Debian's kernels are"));
    }
    // The last four bytes are the uncompressed size, which the kernel's build appends for the boot stub.
    let compressed = payload.get(..payload.len().saturating_sub(4)).unwrap_or_default();
    let mut elf = Vec::new();
    zstd::stream::Decoder::new(compressed)
        .and_then(|decoder| decoder.take(largest as u64 + 1).read_to_end(&mut elf))
        .map_err(|error| problem(&format!("could not be decompressed: {error}")))?;
    if elf.len() > largest {
        return Err(problem(&format!("it is larger than {} MiB unpacked, as no kernel is", largest >> 20)));
    }
    Ok(elf)
}

/// Copies the ELF kernel's segments to their physical addresses.
pub(crate) fn flatten(path: &Path, elf: &[u8]) -> Result<FlatKernel, Error> {
    flatten_within(path, elf, WINDOW)
}

/// Like [`flatten`], in the first `window` bytes of physical memory.
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

    /// A bzImage whose payload is `elf`, compressed.
    fn bzimage(elf: &[u8]) -> Vec<u8> {
        let payload = zstd::encode_all(elf, 0).unwrap();
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
        let elf = vec![7; 2 << 20];
        assert_eq!(unpacked(&bzimage(&elf), elf.len()), Ok(elf));
    }

    #[test]
    fn a_small_image_that_unpacks_without_bound_is_refused() {
        let image = bzimage(&vec![0; 64 << 20]);
        assert!(image.len() < 16 << 10);
        let refusal = unpacked(&image, 1 << 20).unwrap_err();
        assert!(refusal.contains("larger than 1 MiB unpacked"), "{refusal}");
    }

    #[test]
    fn an_image_that_is_cut_off_is_refused() {
        let image = bzimage(b"kernel");
        assert!(unpacked(&image[..image.len() - 1], 100).unwrap_err().contains("cut off"));
        assert!(unpacked(&image[..0x206], 100).unwrap_err().contains("cut off"));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(at in 0..5 * 512usize, value: u8, elf in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut image = bzimage(&elf);
            image[at] = value;
            let _ = unpacked(&image, 1 << 20);
            let _ = flatten_within(Path::new("vmlinux"), &elf, 1 << 20);
        }
    }
}
