//! Functions of a program or library, from its ELF file or its debug file.
//!
//! Which file that is, a VM's process decides by what it maps. So no FIFO is opened, and of a file that says to hold more
//! than programs have nothing is read.

use std::cmp::Reverse;
use std::fs::File;
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader64, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC, Sym64};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _};
use object::read::{ReadCache, ReadCacheOps, ReadRef};
use object::{LittleEndian, Object};

/// Bytes of a section that is read: the largest tables of names that are known, those of browsers, have 100 MB.
const LARGEST_SECTION: u64 = 256 << 20;
/// Bytes of a section with a build ID or the name of a debug file.
const LARGEST_NOTE: u64 = 1 << 20;

/// Functions by address, and where the file's parts are in memory.
#[derive(Debug, Clone, Default)]
pub struct ObjectSymbols {
    segments: Vec<Segment>,
    functions: Functions,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

/// Names stay where the file has them, for there may be hundreds of thousands.
#[derive(Debug, Clone, Default)]
struct Functions {
    /// Ascending by address, each once.
    sorted: Vec<Function>,
    names: Box<[u8]>,
}

#[derive(Debug, Clone, Copy)]
struct Function {
    address: u64,
    size: u64,
    name_at: u32,
}

impl ObjectSymbols {
    /// Reads the file at `path`, and where it was stripped its debug file below `root`: by its build ID in
    /// `/usr/lib/debug/.build-id`, or by the name that it gives (`.gnu_debuglink`). What a stripped file without one
    /// exports to others is better than nothing. `None` where it is no ELF file of a 64-bit x86 host, or cannot be read.
    #[must_use]
    pub fn read(path: &Path, root: &Path) -> Option<Self> {
        let cache = open(path)?;
        let header = FileHeader64::<LittleEndian>::parse(&cache).ok()?;
        let segments = header.program_headers(LittleEndian, &cache).ok()?.iter();
        let loaded = segments.filter(|segment| segment.p_type(LittleEndian) == elf::PT_LOAD).map(|segment| {
            let (offset, size) = segment.file_range(LittleEndian);
            Segment { offset, size, address: segment.p_vaddr(LittleEndian) }
        });
        let segments = loaded.collect();
        let functions = Functions::read(&cache, SHT_SYMTAB)
            .or_else(|| debug_files(&cache, path, root).into_iter().find_map(|path| Functions::of(&path)))
            .or_else(|| Functions::read(&cache, SHT_DYNSYM));
        Some(Self { segments, functions: functions.unwrap_or_default() })
    }

    /// Bytes that it takes.
    pub(crate) fn size(&self) -> usize {
        size_of_val(&self.functions.sorted[..]) + self.functions.names.len()
    }

    /// The function at `offset` of the file; `None` between functions that are known.
    #[must_use]
    pub fn at(&self, offset: u64) -> Option<String> {
        let inside = |segment: &&Segment| {
            offset.checked_sub(segment.offset).is_some_and(|distance| distance < segment.size)
        };
        let segment = self.segments.iter().find(inside)?;
        let name = self.functions.at((offset - segment.offset).checked_add(segment.address)?)?;
        Some(format!("{:#}", rustc_demangle::demangle(&String::from_utf8_lossy(name))))
    }
}

impl Functions {
    /// Those of the file at `path`, if it has any.
    fn of(path: &Path) -> Option<Self> {
        Self::read(&open(path)?, SHT_SYMTAB)
    }

    /// Those of one of a file's tables, if it has any.
    fn read<R: ReadCacheOps>(cache: &ReadCache<R>, table: u32) -> Option<Self> {
        let header = FileHeader64::<LittleEndian>::parse(cache).ok()?;
        let sections = header.sections(LittleEndian, cache).ok()?;
        let section = sections.iter().find(|section| section.sh_type(LittleEndian) == table)?;
        let symbols: &[Sym64<LittleEndian>] = section.data_as_array(LittleEndian, cache).ok()?;
        let names = sections.section(section.link(LittleEndian)).ok()?.data(LittleEndian, cache).ok()?;
        let function = |symbol: &Sym64<LittleEndian>| Function {
            address: symbol.st_value(LittleEndian),
            size: symbol.st_size(LittleEndian),
            name_at: symbol.st_name(LittleEndian),
        };
        let is_function = |symbol: &&Sym64<LittleEndian>| {
            matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC)
                && symbol.st_shndx(LittleEndian) != elf::SHN_UNDEF
        };
        let mut sorted: Vec<Function> = symbols.iter().filter(is_function).map(function).collect();
        sorted.retain(|function| !name(names, function.name_at).is_empty());
        // Of several names of one place the longest piece of code, and the shortest name.
        sorted.sort_unstable_by_key(|function| {
            let name = name(names, function.name_at);
            (function.address, Reverse(function.size), name.len(), name)
        });
        sorted.dedup_by_key(|function| function.address);
        (!sorted.is_empty()).then(|| Self { sorted, names: names.into() })
    }

    fn at(&self, address: u64) -> Option<&[u8]> {
        let behind = self.sorted.partition_point(|function| function.address <= address);
        let found = self.sorted.get(behind.checked_sub(1)?)?;
        let within = found.size == 0 || address - found.address < found.size;
        within.then(|| name(&self.names, found.name_at))
    }
}

/// A file that holds no more than programs do; `None` for any other, and for what is no regular file.
fn open(path: &Path) -> Option<ReadCache<File>> {
    let cache = ReadCache::new(files::regular(path).ok()?);
    is_usual(&cache).then_some(cache)
}

fn is_usual<R: ReadCacheOps>(cache: &ReadCache<R>) -> bool {
    let fits = || {
        let header = FileHeader64::<LittleEndian>::parse(cache).ok()?;
        // Larger numbers would stand in the first section (elf(5), `SHN_UNDEF` and `PN_XNUM`), and could be any.
        if header.e_phnum.get(LittleEndian) == elf::PN_XNUM
            || header.e_shnum.get(LittleEndian) == 0 && header.e_shoff.get(LittleEndian) != 0
        {
            return None;
        }
        let segments = header.program_headers(LittleEndian, cache).ok()?;
        let is_note = |kind: u32| kind == elf::PT_NOTE;
        if segments
            .iter()
            .any(|one| is_note(one.p_type(LittleEndian)) && one.p_filesz(LittleEndian) > LARGEST_NOTE)
        {
            return None;
        }
        let table = header.section_headers(LittleEndian, cache).ok()?;
        let names = header.shstrndx(LittleEndian, cache).ok()? as usize;
        if table.get(names).is_some_and(|names| names.sh_size(LittleEndian) > LARGEST_SECTION) {
            return None;
        }
        let sections = header.sections(LittleEndian, cache).ok()?;
        let fits = |section: &elf::SectionHeader64<LittleEndian>| {
            let size = section.sh_size(LittleEndian);
            match section.sh_type(LittleEndian) {
                elf::SHT_NOBITS => true,
                elf::SHT_NOTE => size <= LARGEST_NOTE,
                // Code, data and what debuggers want are not read; the name of a debug file is.
                elf::SHT_PROGBITS => {
                    let name = sections.section_name(LittleEndian, section).unwrap_or_default();
                    size <= LARGEST_NOTE || name != b".gnu_debuglink"
                }
                _ => size <= LARGEST_SECTION,
            }
        };
        Some(sections.iter().all(fits))
    };
    fits().unwrap_or(false)
}

/// A name of a table of them: up to its zero.
fn name(names: &[u8], at: u32) -> &[u8] {
    let rest = names.get(at as usize..).unwrap_or_default();
    &rest[..rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len())]
}

/// Where the debug file of a stripped one may be (GDB manual, "Debugging Information in Separate Files").
fn debug_files<'d>(data: impl ReadRef<'d>, path: &Path, root: &Path) -> Vec<PathBuf> {
    let Ok(file) = object::File::parse(data) else { return Vec::new() };
    let home = root.join("usr/lib/debug");
    let mut places = Vec::new();
    if let Ok(Some([first, rest @ ..])) = file.build_id() {
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        places.push(home.join(format!(".build-id/{first:02x}/{rest}.debug")));
    }
    if let (Ok(Some((name, _))), Some(folder)) = (file.gnu_debuglink(), path.parent()) {
        // A name with a slash in it would lead elsewhere.
        if let Some(name) = std::str::from_utf8(name).ok().filter(|name| !name.contains('/')) {
            let below = folder.strip_prefix(root).unwrap_or(folder);
            places.extend([
                folder.join(name),
                folder.join(".debug").join(name),
                home.join(below.strip_prefix("/").unwrap_or(below)).join(name),
            ]);
        }
    }
    places.retain(|place| place != path);
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn this_program_knows_its_own_functions() {
        let path = std::env::current_exe().unwrap();
        let symbols = ObjectSymbols::read(&path, Path::new("/")).unwrap();
        let here = this_program_knows_its_own_functions as fn() as usize as u64;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mappings = crate::mappings::Mapping::parse(&maps);
        let mapping = mappings.iter().find(|mapping| mapping.holds(here)).unwrap();
        let name = symbols.at(here - mapping.start + mapping.offset).unwrap();
        assert!(name.ends_with("this_program_knows_its_own_functions"), "{name}");
    }

    #[test]
    fn what_is_no_program_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("text");
        std::fs::write(&file, "\x7fELF but no more").unwrap();
        assert!(ObjectSymbols::read(&file, Path::new("/")).is_none());
        assert!(ObjectSymbols::read(&folder.path().join("absent"), Path::new("/")).is_none());
        assert!(ObjectSymbols::default().at(5).is_none());
    }

    #[test]
    fn a_fifo_is_not_waited_at_and_a_giant_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        assert!(ObjectSymbols::read(&path, folder.path()).is_none());
        std::fs::remove_file(&path).unwrap();
        // This program, with each section in turn as large as a file with holes can be.
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let number = |at: usize, bytes: usize| {
            own[at..at + bytes].iter().rev().fold(0_u64, |all, &byte| all << 8 | u64::from(byte)) as usize
        };
        let (table, count, names) = (number(0x28, 8), number(0x3c, 2), number(0x3e, 2));
        let mut refused = 0;
        for section in 0..count {
            let at = table + section * 64;
            let kind = number(at + 4, 4) as u32;
            if !matches!(kind, SHT_SYMTAB | SHT_DYNSYM | elf::SHT_STRTAB | elf::SHT_NOTE) && section != names
            {
                continue;
            }
            let mut forged = own.clone();
            forged[at + 32..at + 40].copy_from_slice(&(1_u64 << 39).to_le_bytes());
            std::fs::write(&path, forged).unwrap();
            File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
            assert!(ObjectSymbols::read(&path, folder.path()).is_none(), "section {section} of type {kind}");
            refused += 1;
        }
        assert!(refused >= 3, "{refused}");
        // As many sections as the first one says.
        let mut forged = own.clone();
        forged[0x3c..0x3e].fill(0);
        forged[table + 32..table + 40].copy_from_slice(&(1_u64 << 33).to_le_bytes());
        std::fs::write(&path, forged).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(ObjectSymbols::read(&path, folder.path()).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn damaged_programs_are_no_harm(at in 0usize..4096, bytes in proptest::collection::vec(any::<u8>(), 1..64)) {
            let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
            // Its headers, and what they say of the rest.
            let mut start = own[..own.len().min(1 << 16)].to_vec();
            start.splice(at..at + bytes.len(), bytes);
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("program");
            std::fs::write(&file, start).unwrap();
            if let Some(symbols) = ObjectSymbols::read(&file, folder.path()) {
                let _ = symbols.at(at as u64);
            }
        }
    }
}
