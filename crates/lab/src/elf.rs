//! Program headers of 64-bit little-endian ELF files: what a loader would map, and with what help.

/// A segment to be loaded.
pub(crate) const PT_LOAD: u32 = 1;
/// The path of a dynamic loader.
pub(crate) const PT_INTERP: u32 = 3;

/// What is read of a program header.
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

/// Place of the table, size of an entry, number of entries: `e_phoff`, `e_phentsize`, `e_phnum`.
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
