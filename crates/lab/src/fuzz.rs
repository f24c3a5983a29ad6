//! Access to internals of this crate for the fuzz targets (`fuzz/`) and the benchmarks (`benches/`).
//!
//! Not a public interface: it changes with the internals.

use std::path::Path;

use crate::error::Error;
use crate::frames::{Decoder, Frame};
use crate::kernel;
use crate::module_signature;
use crate::multiboot::{self, Boot};

/// The frame that carries `bytes` of a command's standard output.
#[must_use]
pub fn frame(bytes: &[u8]) -> Vec<u8> {
    Frame::Stdout(bytes.to_vec()).encode()
}

/// Feeds `pieces` to a decoder, and takes complete frames out after each piece. Calls `seen` for every frame.
/// Returns the bytes between frames.
pub fn decode_frames<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    mut seen: impl FnMut(&dyn std::fmt::Debug),
) -> Vec<u8> {
    let mut decoder = Decoder::default();
    for piece in pieces {
        decoder.push(piece);
        while let Some(frame) = decoder.next() {
            seen(&frame);
        }
    }
    decoder.noise().to_vec()
}

/// Unpacks the ELF kernel of at most `largest` bytes out of a bzImage.
///
/// # Errors
/// If the image is malformed.
pub fn unpack_bzimage(image: &[u8], largest: usize) -> Result<Vec<u8>, Error> {
    kernel::unpack_within(Path::new("vmlinuz"), image, largest)
}

/// Lays an ELF kernel out in the first `window` bytes of memory: physical address, bytes and entry.
///
/// # Errors
/// If the kernel is malformed or does not fit.
pub fn flatten(elf: &[u8], window: usize) -> Result<(u64, Vec<u8>, u64), Error> {
    let flat = kernel::flatten_within(Path::new("vmlinux"), elf, window)?;
    Ok((flat.address, flat.bytes, flat.entry))
}

/// Lays a 32-bit ELF hypervisor out for a machine with `memory_mib` MiB: physical addresses and lengths of the parts.
///
/// # Errors
/// If the hypervisor is malformed or does not fit.
pub fn lay_out_hypervisor(elf: &[u8], memory_mib: u64) -> Result<Vec<(u64, usize)>, Error> {
    let boot = Boot {
        hypervisor: (Path::new("xen.elf"), elf),
        hypervisor_arguments: "",
        kernel: &[],
        kernel_arguments: "",
        initial_ram_disk: &[],
    };
    let contents = multiboot::contents(memory_mib, &boot)?;
    Ok(contents.parts.iter().map(|(address, bytes)| (*address, bytes.len())).collect())
}

/// Removes the signature from a kernel module.
#[must_use]
pub fn without_signature(module: &[u8]) -> Vec<u8> {
    module_signature::without_signature(module.to_vec())
}
