//! An option ROM for Bochs that takes the place of a boot loader.
//!
//! Bochs can fill guest memory from a file at power-on (`optramimage1`), but it assigns that memory to guest
//! addresses in blocks, in the order in which they are first accessed. So the file is cut into chunks of one
//! block, each with a header that has the destination of its contents. The firmware calls this ROM after it
//! has made the ACPI and MP tables. The ROM accesses the blocks in ascending order, finds the chunks by their
//! magic number, copies each to its destination, and enters the program in 32-bit protected mode, as both PVH
//! and Multiboot require. This also works in builds of Bochs that map memory one to one. Booting is fast
//! because it needs no disk, no CD image and no decompression.

use std::arch::global_asm;

/// The address at which the option ROM is mapped.
pub(crate) const ADDRESS: u32 = 0xd0000;
/// The size of a chunk, which is that of Bochs's memory blocks, in bytes.
pub(crate) const CHUNK: usize = 8 << 20;
/// The size of a chunk's header, in bytes.
pub(crate) const CHUNK_HEADER: usize = 4096;
/// The magic number of a chunk's header.
pub(crate) const CHUNK_MARK: u32 = 0x5854_4c53;
/// The number of empty chunks after the first: the firmware accesses some blocks before this ROM does, and
/// these are used up for that.
pub(crate) const EMPTY_CHUNKS: usize = 4;

/// The ROM's parameters. The rest is in the chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// The guest physical address of the first chunk.
    pub(crate) source: u32,
    /// The number of chunks with contents.
    pub(crate) chunks: u32,
    /// The guest physical address of the first instruction.
    pub(crate) entry: u32,
    /// The guest physical address that EBX contains at the entry: PVH's `start_info`, or Multiboot's
    /// information.
    pub(crate) information: u32,
    /// The value of EAX at the entry: Multiboot's magic number.
    pub(crate) mark: u32,
}

/// The size of the parameters, in bytes.
const PARAMETERS: usize = 20;

// The parameters are addressed from the end, so that the code can grow without a symbol table.
global_asm!(
    ".pushsection .rodata.exitless_lab_rom, \"a\", @progbits",
    ".globl exitless_lab_rom_start",
    ".globl exitless_lab_rom_end",
    ".balign 16",
    ".code16",
    "exitless_lab_rom_start:",
    ".byte 0x55, 0xaa, 1",
    "cli",
    "inb $0x92, %al",
    "orb $2, %al",
    "outb %al, $0x92",
    "lgdtl %cs:(4f - exitless_lab_rom_start)",
    "movl %cr0, %eax",
    "orb $1, %al",
    "movl %eax, %cr0",
    "ljmpl $8, $(0xd0000 + 2f - exitless_lab_rom_start)",
    ".code32",
    "2:",
    "movl $16, %eax",
    "movl %eax, %ds",
    "movl %eax, %es",
    "movl %eax, %fs",
    "movl %eax, %gs",
    "movl %eax, %ss",
    "cld",
    "movl (0xd0000 + 5f - exitless_lab_rom_start), %edx",
    "movl (0xd0000 + 5f - exitless_lab_rom_start + 4), %ebp",
    "movl %edx, %ebx",
    "leal 4(%ebp), %ecx",
    "6:",
    "movl (%ebx), %eax",
    "addl $0x800000, %ebx",
    "loop 6b",
    "movl %edx, %ebx",
    "7:",
    "cmpl $0x58544c53, (%ebx)",
    "jne 8f",
    "movl 4(%ebx), %edi",
    "movl 8(%ebx), %ecx",
    "shrl $2, %ecx",
    "leal 4096(%ebx), %esi",
    "rep movsl",
    "decl %ebp",
    "jz 9f",
    "8:",
    "addl $0x800000, %ebx",
    "jmp 7b",
    "9:",
    "movl (0xd0000 + 5f - exitless_lab_rom_start + 8), %ecx",
    "movl (0xd0000 + 5f - exitless_lab_rom_start + 12), %ebx",
    "movl (0xd0000 + 5f - exitless_lab_rom_start + 16), %eax",
    "jmpl *%ecx",
    ".balign 8",
    "3:",
    ".quad 0",
    ".quad 0x00cf9a000000ffff",
    ".quad 0x00cf92000000ffff",
    "4:",
    ".word 23",
    ".long 0xd0000 + 3b - exitless_lab_rom_start",
    ".balign 4",
    "5:",
    ".long 0, 0, 0, 0, 0",
    "exitless_lab_rom_end:",
    ".code64",
    ".popsection",
    options(att_syntax)
);

unsafe extern "C" {
    static exitless_lab_rom_start: u8;
    static exitless_lab_rom_end: u8;
}

/// The ROM: 512 bytes, with parameters and checksum.
pub(crate) fn image(parameters: Parameters) -> [u8; 512] {
    let code = code();
    let mut rom = [0; 512];
    rom[..code.len()].copy_from_slice(code);
    let Parameters { source, chunks, entry, information, mark } = parameters;
    let values = [source, chunks, entry, information, mark];
    let at = code.len() - PARAMETERS;
    for (slot, value) in rom[at..at + PARAMETERS].chunks_exact_mut(4).zip(values) {
        slot.copy_from_slice(&value.to_le_bytes());
    }
    rom[511] = rom[..511].iter().fold(0u8, |sum, &byte| sum.wrapping_sub(byte));
    rom
}

fn code() -> &'static [u8] {
    let start = &raw const exitless_lab_rom_start;
    let end = &raw const exitless_lab_rom_end;
    // SAFETY: the symbols bound one range of read-only bytes assembled above, and the end is not before the
    // start.
    unsafe { std::slice::from_raw_parts(start, end.addr() - start.addr()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Parameters {
        Parameters {
            source: 0x1000_0000,
            chunks: 7,
            entry: 0x0100_0b20,
            information: 0x00f0_0000,
            mark: 0x2bad_b002,
        }
    }

    #[test]
    fn the_rom_has_the_signature_its_size_and_a_sum_of_zero() {
        let rom = image(parameters());
        assert_eq!(rom[..3], [0x55, 0xaa, 1]);
        assert_eq!(rom.iter().fold(0u8, |sum, &byte| sum.wrapping_add(byte)), 0);
    }

    #[test]
    fn the_code_leaves_room_for_the_checksum() {
        assert!(code().len() < 512, "{}", code().len());
    }

    #[test]
    fn the_parameters_stand_at_the_end_of_the_code() {
        let rom = image(parameters());
        let at = code().len() - PARAMETERS;
        assert_eq!(rom[at..at + 4], 0x1000_0000u32.to_le_bytes());
        assert_eq!(rom[at + 12..at + 16], 0x00f0_0000u32.to_le_bytes());
        assert_eq!(rom[at + 16..at + 20], 0x2bad_b002u32.to_le_bytes());
    }
}
