//! A bzImage whose kernel is not compressed, for loaders that accept nothing else: the device model of Xen's
//! HVM guests.
//!
//! It has the setup code of the compressed image, which queries the firmware. That code enters the rest in
//! 32-bit protected mode. The compressed image has its boot stub and payload there; this one has a few
//! instructions that switch to 64-bit mode, and the kernel where it is to run.
//!
//! Source: Documentation/arch/x86/boot.rst, "Details of Header Fields", "32-bit Boot Protocol" and "64-bit Boot
//! Protocol".

use std::arch::global_asm;
use std::path::Path;

use crate::elf::entry_64;
use crate::error::Error;
use crate::kernel::{flatten, setup_size};
use crate::payload::laid_out;

/// The address at which loaders place what follows the setup code.
const LOADED: u64 = 1 << 20;
/// The size of a page, in bytes.
const PAGE: u64 = 4096;
/// The page tables, each a page: PML4, page-directory-pointer table, page directory.
const TABLES: u64 = LOADED + PAGE;
/// The first address after the page tables.
const TABLES_END: u64 = TABLES + 3 * PAGE;
/// Bits of a page table's entry: present, writable.
const TABLE: u64 = 0x3;
/// Bits of a page directory's entry for a page of 2 MiB: present, writable, page size.
const LARGE_PAGE: u64 = 0x83;

// Fields of the setup header.
const SYSSIZE: usize = 0x1f4;
const XLOADFLAGS: usize = 0x236;
const PAYLOAD: std::ops::Range<usize> = 0x248..0x250;
/// `XLF_CAN_BE_LOADED_ABOVE_4G`, the only flag that says nothing about entry points.
const ABOVE_4G: u16 = 1 << 1;

// ESI has the address of the boot parameters, and keeps it.
global_asm!(
    ".pushsection .rodata.exitless_lab_entry, \"a\", @progbits",
    ".code32",
    "exitless_lab_entry_start:",
    "cli",
    "cld",
    "lgdtl 0x100000 + 4f - exitless_lab_entry_start",
    "movl %cr4, %eax",
    "orl $0x20, %eax",
    "movl %eax, %cr4",
    "movl $0x101000, %eax",
    "movl %eax, %cr3",
    "movl $0xc0000080, %ecx",
    "rdmsr",
    "orl $0x100, %eax",
    "wrmsr",
    "movl %cr0, %eax",
    "orl $0x80000001, %eax",
    "movl %eax, %cr0",
    "ljmpl $8, $(0x100000 + 2f - exitless_lab_entry_start)",
    ".code64",
    "2:",
    "movl %esi, %esi",
    "movl 5f(%rip), %eax",
    "jmpq *%rax",
    ".balign 8",
    "3:",
    ".quad 0",
    ".quad 0x00af9a000000ffff",
    "4:",
    ".word 15",
    ".long 0x100000 + 3b - exitless_lab_entry_start",
    ".balign 4",
    "5:",
    ".long 0",
    "exitless_lab_entry_end:",
    ".popsection",
    options(att_syntax)
);

unsafe extern "C" {
    static exitless_lab_entry_start: u8;
    static exitless_lab_entry_end: u8;
}

/// The instructions before the kernel's; their last four bytes are the address that they jump to.
fn code() -> &'static [u8] {
    let start = &raw const exitless_lab_entry_start;
    let end = &raw const exitless_lab_entry_end;
    // SAFETY: the symbols bound one range of read-only bytes assembled above, and the end is not before the
    // start.
    unsafe { std::slice::from_raw_parts(start, end.addr() - start.addr()) }
}

/// Makes the image from the compressed one at `path` and the ELF kernel that is in it.
///
/// # Errors
/// [`Error::Kernel`] if the kernel is not a 64-bit one that can be laid out behind the page tables.
pub(crate) fn bzimage(path: &Path, compressed: &[u8], elf: &[u8]) -> Result<Vec<u8>, Error> {
    let problem = |problem: &str| Error::Kernel { path: path.to_owned(), problem: problem.to_owned() };
    let kernel = flatten(path, elf)?;
    let entry = entry_64(elf).and_then(|entry| u32::try_from(entry).ok());
    let entry = entry.ok_or_else(|| problem("it is not a 64-bit ELF file with an entry below 4 GiB"))?;
    if kernel.address < TABLES_END {
        return Err(problem("the kernel begins below 1040 KiB, where its page tables would be"));
    }
    let setup =
        compressed.get(..setup_size(compressed)).ok_or_else(|| problem("its setup code is cut off"))?;
    let mut code = code().to_vec();
    let jump = code.len() - 4;
    code[jump..].copy_from_slice(&entry.to_le_bytes());
    let mut loaded =
        laid_out(&[(0, &code), (TABLES - LOADED, &page_tables()), (kernel.address - LOADED, &kernel.bytes)]);
    // The size counts units of 16 bytes.
    loaded.resize(loaded.len().next_multiple_of(16), 0);

    let units = loaded.len() as u32 / 16;
    let mut image = [setup, &loaded].concat();
    image[SYSSIZE..SYSSIZE + 4].copy_from_slice(&units.to_le_bytes());
    image[PAYLOAD].fill(0);
    let flags = u16::from_le_bytes([image[XLOADFLAGS], image[XLOADFLAGS + 1]]) & ABOVE_4G;
    image[XLOADFLAGS..XLOADFLAGS + 2].copy_from_slice(&flags.to_le_bytes());
    Ok(image)
}

/// The page tables at [`TABLES`], which map the first GiB of memory one to one.
fn page_tables() -> Vec<u8> {
    let mut tables = vec![0; 2 * PAGE as usize];
    tables[..8].copy_from_slice(&((TABLES + PAGE) | TABLE).to_le_bytes());
    tables[PAGE as usize..][..8].copy_from_slice(&((TABLES + 2 * PAGE) | TABLE).to_le_bytes());
    tables.extend((0..512u64).flat_map(|page| ((page << 21) | LARGE_PAGE).to_le_bytes()));
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_has_the_addresses_of_what_it_uses() {
        let code = code();
        assert!(code.len() < PAGE as usize);
        // LGDT, whose operand is the limit and the address of the table before it.
        assert_eq!(code[2..5], [0x0f, 0x01, 0x15]);
        let operand = u32::from_le_bytes(code[5..9].try_into().unwrap()) as usize - LOADED as usize;
        let table = u32::from_le_bytes(code[operand + 2..operand + 6].try_into().unwrap()) as usize;
        assert_eq!(table + 16, operand + LOADED as usize);
        let directory =
            code.windows(5).any(|bytes| bytes[0] == 0xb8 && bytes[1..] == (TABLES as u32).to_le_bytes());
        assert!(directory, "{code:x?}");
    }

    #[test]
    fn the_page_tables_map_the_first_gib() {
        let tables = page_tables();
        assert_eq!(tables.len() as u64, TABLES_END - TABLES);
        let entry = |at: usize| u64::from_le_bytes(tables[at..at + 8].try_into().unwrap());
        assert_eq!((entry(0), entry(8), entry(4096)), (0x10_2003, 0, 0x10_3003));
        assert_eq!((entry(8192), entry(8192 + 511 * 8)), (0x83, ((1 << 30) - (2 << 20)) | 0x83));
    }

    #[test]
    fn what_is_no_kernel_is_refused() {
        let refused = bzimage(Path::new("vmlinuz"), &[0; 8192], b"text").unwrap_err().to_string();
        assert!(refused.contains("vmlinuz") && refused.contains("ELF"), "{refused}");
    }
}
