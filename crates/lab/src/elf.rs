//! Program headers of little-endian ELF files: the segments to be loaded, and the dynamic loader.

/// A loadable segment.
pub(crate) const PT_LOAD: u32 = 1;
/// The path of a dynamic loader.
pub(crate) const PT_INTERP: u32 = 3;

/// Fields of a program header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProgramHeader {
    /// `p_type`.
    pub(crate) kind: u32,
    /// `p_paddr`.
    pub(crate) physical_address: u64,
}

/// The program headers that lie within the file.
pub(crate) fn program_headers(elf: &[u8]) -> impl Iterator<Item = ProgramHeader> + '_ {
    let (table, size, count) = table(elf).unwrap_or((0, 0, 0));
    (0..count).filter_map(move |index| {
        let at = table.checked_add(index * size)?;
        let kind = u32::try_from(number(elf, at, 4)?).ok()?;
        Some(ProgramHeader { kind, physical_address: number(elf, at.checked_add(24)?, 8)? })
    })
}

/// The loadable part of a 64-bit ELF file. Drops symbols and section headers after it, which a kernel does
/// not need to load it.
pub(crate) fn loaded(mut elf: Vec<u8>) -> Vec<u8> {
    let (start, size, count) = table(&elf).unwrap_or((0, 0, 0));
    let end = |index: usize| {
        let at = start.checked_add(index * size)?;
        let (offset, bytes) = (number(&elf, at.checked_add(8)?, 8)?, number(&elf, at.checked_add(32)?, 8)?);
        usize::try_from(offset.checked_add(bytes)?).ok()
    };
    let last = (0..count).filter_map(end).max().unwrap_or(0);
    if (SECTION_HEADERS.end..elf.len()).contains(&last) {
        elf.truncate(last);
        elf[SECTION_HEADERS_AT].fill(0);
        elf[SECTION_HEADERS].fill(0);
    }
    elf
}

/// `e_shoff` of a 64-bit header.
const SECTION_HEADERS_AT: std::ops::Range<usize> = 0x28..0x30;
/// `e_shentsize`, `e_shnum` and `e_shstrndx`.
const SECTION_HEADERS: std::ops::Range<usize> = 0x3a..0x40;

/// Fields of a program header of a 32-bit file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProgramHeader32 {
    /// `p_type`.
    pub(crate) kind: u32,
    /// `p_offset`.
    offset: u32,
    /// `p_paddr`.
    pub(crate) physical_address: u32,
    /// `p_filesz`.
    file_size: u32,
    /// `p_memsz`.
    pub(crate) memory_size: u32,
}

impl ProgramHeader32 {
    /// The segment's bytes in the file; `None` if the file is too short.
    pub(crate) fn contents<'a>(&self, elf: &'a [u8]) -> Option<&'a [u8]> {
        let from = self.offset as usize;
        elf.get(from..from.checked_add(self.file_size as usize)?)
    }
}

/// `e_entry` of a 32-bit file; `None` for other files.
pub(crate) fn entry_32(elf: &[u8]) -> Option<u32> {
    elf.starts_with(b"\x7fELF\x01").then(|| word(elf, 24))?
}

/// `e_entry` of a 64-bit file; `None` for other files.
pub(crate) fn entry_64(elf: &[u8]) -> Option<u64> {
    elf.starts_with(b"\x7fELF\x02").then(|| number(elf, 24, 8))?
}

/// The program headers of a 32-bit file that lie within it.
pub(crate) fn program_headers_32(elf: &[u8]) -> impl Iterator<Item = ProgramHeader32> + '_ {
    let size = |at| number(elf, at, 2).and_then(|value| usize::try_from(value).ok()).unwrap_or(0);
    let (table, size, count) = (word(elf, 28).unwrap_or(0) as usize, size(42), size(44));
    (0..count).filter_map(move |index| {
        let field = |at: usize| word(elf, table.checked_add(index * size)?.checked_add(at)?);
        Some(ProgramHeader32 {
            kind: field(0)?,
            offset: field(4)?,
            physical_address: field(12)?,
            file_size: field(16)?,
            memory_size: field(20)?,
        })
    })
}

fn word(elf: &[u8], at: usize) -> Option<u32> {
    u32::try_from(number(elf, at, 4)?).ok()
}

/// Offset, entry size and number of entries of the program headers: `e_phoff`, `e_phentsize`, `e_phnum`.
fn table(elf: &[u8]) -> Option<(usize, usize, usize)> {
    let size = |at, bytes| usize::try_from(number(elf, at, bytes)?).ok();
    Some((size(32, 8)?, size(54, 2)?, size(56, 2)?))
}

fn number(elf: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = elf.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn this_test_program_is_static_and_a_shell_is_not() {
        let asks_for_a_loader = |path| {
            let elf = std::fs::read(path).unwrap();
            program_headers(&elf).any(|header| header.kind == PT_INTERP)
        };
        assert!(!asks_for_a_loader("/proc/self/exe"));
        assert!(asks_for_a_loader("/bin/sh"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = program_headers(&bytes).count();
            let _ = program_headers_32(&bytes).filter_map(|header| header.contents(&bytes)).count();
            let _ = entry_32(&bytes);
            let _ = entry_64(&bytes);
        }

        #[test]
        fn no_table_makes_it_panic(table in any::<u64>(), size in any::<u16>(), count in any::<u16>()) {
            let mut elf = vec![0; 64];
            elf[32..40].copy_from_slice(&table.to_le_bytes());
            elf[54..56].copy_from_slice(&size.to_le_bytes());
            elf[56..58].copy_from_slice(&count.to_le_bytes());
            prop_assert!(program_headers(&elf).count() <= usize::from(count));
        }
    }
}
