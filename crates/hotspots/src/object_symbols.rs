//! Functions of a program or library, from its ELF file or its debug file.
//!
//! Which file that is, a VM's process decides by what it maps. So no FIFO is opened, and of a file that says to hold more
//! than programs have nothing is read.

use std::cmp::Reverse;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader64, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC, Sym64};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _};
use object::read::{ReadCache, ReadCacheOps, ReadRef};
use object::{LittleEndian, Object};

/// Bytes of a section that is read: the largest tables of names that are known, those of browsers, have 100 MB.
const LARGEST_SECTION: u64 = 256 << 20;
/// Bytes of all sections with a build ID, and of the one with the name of a debug file: each is kept that is looked at.
const LARGEST_NOTE: u64 = 1 << 20;
/// Bytes of a function's name in the file. Those of C++ templates can have some thousands.
const LONGEST_NAME: usize = 4096;
/// Characters of a function's name as it is given. Few bytes of Rust's form can stand for a million of them.
const LONGEST_GIVEN: usize = 512;
/// Bytes that two names of one place and of the same length are told apart by.
const COMPARED: usize = 256;

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
    /// Bytes of its name, which are counted once: where a table has no zeros, all names reach to its end.
    name_length: u32,
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
        Some(readable(&String::from_utf8_lossy(name)))
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
            name_length: 0,
        };
        let is_function = |symbol: &&Sym64<LittleEndian>| {
            matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC)
                && symbol.st_shndx(LittleEndian) != elf::SHN_UNDEF
        };
        let mut sorted: Vec<Function> = symbols.iter().filter(is_function).map(function).collect();
        measure(&mut sorted, names);
        sorted.retain(|function| (1..=LONGEST_NAME).contains(&(function.name_length as usize)));
        // Of several names of one place the longest piece of code, and the shortest name.
        sorted.sort_unstable_by_key(|function| {
            let name = function.name(names);
            (function.address, Reverse(function.size), name.len(), &name[..name.len().min(COMPARED)])
        });
        sorted.dedup_by_key(|function| function.address);
        (!sorted.is_empty()).then(|| Self { sorted, names: names.into() })
    }

    fn at(&self, address: u64) -> Option<&[u8]> {
        let behind = self.sorted.partition_point(|function| function.address <= address);
        let found = self.sorted.get(behind.checked_sub(1)?)?;
        let within = found.size == 0 || address - found.address < found.size;
        within.then(|| found.name(&self.names))
    }
}

/// The name for people, cut off where it is too long.
fn readable(name: &str) -> String {
    let mut short = Short::default();
    // Refusing more makes it stop.
    let _ = write!(short, "{:#}", rustc_demangle::demangle(name));
    short.text
}

/// Text up to its limit; what would be longer ends with an ellipsis.
#[derive(Default)]
struct Short {
    text: String,
    characters: usize,
}

impl fmt::Write for Short {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        for character in more.chars() {
            if self.characters == LONGEST_GIVEN {
                self.text.pop();
                self.text.push('…');
                return Err(fmt::Error);
            }
            self.text.push(character);
            self.characters += 1;
        }
        Ok(())
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
        // Many can lie over one another, and the file be small or mostly holes.
        let small = |sizes: &mut dyn Iterator<Item = u64>| {
            sizes.fold(0_u64, |all, size| all.saturating_add(size)) <= LARGEST_NOTE
        };
        let segments = header.program_headers(LittleEndian, cache).ok()?.iter();
        let notes = segments.filter(|one| one.p_type(LittleEndian) == elf::PT_NOTE);
        if !small(&mut notes.map(|one| one.p_filesz(LittleEndian))) {
            return None;
        }
        let table = header.section_headers(LittleEndian, cache).ok()?;
        let names = header.shstrndx(LittleEndian, cache).ok()? as usize;
        if table.get(names).is_some_and(|names| names.sh_size(LittleEndian) > LARGEST_SECTION) {
            return None;
        }
        let notes = table.iter().filter(|one| one.sh_type(LittleEndian) == elf::SHT_NOTE);
        if !small(&mut notes.map(|one| one.sh_size(LittleEndian))) {
            return None;
        }
        let sections = header.sections(LittleEndian, cache).ok()?;
        let fits = |section: &elf::SectionHeader64<LittleEndian>| {
            let size = section.sh_size(LittleEndian);
            match section.sh_type(LittleEndian) {
                elf::SHT_NOBITS | elf::SHT_NOTE => true,
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

impl Function {
    /// Its name in the table of them.
    fn name(self, names: &[u8]) -> &[u8] {
        let start = self.name_at as usize;
        names.get(start..start + self.name_length as usize).unwrap_or_default()
    }
}

/// Counts the bytes of each name: up to its zero. The table is looked at once, however many names reach to one end.
fn measure(functions: &mut [Function], names: &[u8]) {
    functions.sort_unstable_by_key(|function| function.name_at);
    let mut end = 0;
    for function in functions {
        let start = function.name_at as usize;
        if start >= end {
            let rest = names.get(start..).unwrap_or_default();
            end = start + rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
        }
        function.name_length = u32::try_from(end - start).unwrap_or(u32::MAX);
    }
}

/// The possible places of the debug file of a stripped program (GDB manual, "Debugging Information in Separate Files").
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

    /// An ELF file of sections: the type, offset, size and link of each. The first one's names are those of sections.
    fn made(sections: &[(u32, u64, u64, u64)], content: &[u8]) -> Vec<u8> {
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let count = sections.len() + 1;
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        // A program for x86-64, whose headers of sections are behind this one; the first of them is none.
        bytes.extend(words(&[3 | 62 << 16 | 1 << 32, 0, 0, 64]));
        // Sizes of the headers in words of 16 bits: this one's, one of segments and none of them, one of sections and so many,
        // of which the second has the names.
        let sizes = [0, 0, 64, 56, 0, 64, count as u16, 1];
        bytes.extend(sizes.iter().flat_map(|size| size.to_le_bytes()));
        bytes.resize(128, 0);
        for (kind, offset, size, link) in sections {
            bytes.extend(words(&[u64::from(*kind) << 32, 0, 0, *offset, *size, *link, 8, 24]));
        }
        assert!(bytes.len() <= CONTENT);
        bytes.resize(CONTENT, 0);
        bytes.extend(content);
        bytes
    }

    /// The offset of the content in made files.
    const CONTENT: usize = 1 << 16;

    #[test]
    fn notes_that_lie_over_one_another_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let notes = |count: u64, size: u64| {
            let mut sections = vec![(elf::SHT_STRTAB, 0, 1, 0)];
            sections.extend((0..count).map(|at| (elf::SHT_NOTE, CONTENT as u64 + 4 * at, size, 0)));
            std::fs::write(&path, made(&sections, &vec![0; 2 << 20])).unwrap();
            ObjectSymbols::read(&path, folder.path())
        };
        // Each is looked at for a build ID, and none has one.
        assert!(notes(100, 1 << 20).is_none());
        assert!(notes(1, 1 << 20).is_some());
        assert!(notes(100, 1 << 10).is_some());
    }

    #[test]
    fn names_without_an_end_are_looked_at_once() {
        const SYMBOLS: u64 = 5000;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let mut content = Vec::new();
        for number in 0..SYMBOLS {
            let head = u64::from(STT_FUNC) << 32 | 1 << 48 | (number % 7);
            let address = 0x1000 * (number / 4);
            content.extend([head, address, 0x100].iter().flat_map(|word| word.to_le_bytes()));
        }
        let table = content.len() as u64;
        content.resize(content.len() + (1 << 20), b'x');
        let at = CONTENT as u64;
        let sections = [(elf::SHT_STRTAB, at + table, 1 << 20, 0), (SHT_SYMTAB, at, table, 1)];
        std::fs::write(&path, made(&sections, &content)).unwrap();
        let symbols = ObjectSymbols::read(&path, folder.path()).unwrap();
        assert_eq!(symbols.size(), 0, "no function has a name of a megabyte");
    }

    #[test]
    fn names_that_expand_without_end_are_cut_off() {
        // Each level of a tuple is twice the one before, which a back reference names: `T` items `E`, `B` offset `_`.
        let mut name = "_RMC1aT".to_owned();
        // The offset counts from behind `_R`. Numbers of names are one less, with 62 digits, and end with `_`.
        name.push_str("TllE");
        let mut last = 5;
        for _ in 0..20 {
            let begins = name.len() - 2;
            let offset = sixty_two(last - 1);
            name.push_str(&format!("TB{offset}_B{offset}_E"));
            last = begins;
        }
        name.push('E');
        let whole = rustc_demangle::try_demangle(&name).unwrap();
        assert!(format!("{whole:#}").len() > 500_000);
        let short = readable(&name);
        assert_eq!(short.chars().count(), LONGEST_GIVEN);
        assert!(short.starts_with("<((i32, i32), ") && short.ends_with('…'), "{short}");
        assert!(short.len() < LONGEST_GIVEN + 8);
        assert_eq!(readable("_RNvC1a4main"), "a::main");
        let (fits, too_long) = ("ü".repeat(LONGEST_GIVEN), "ü".repeat(LONGEST_GIVEN + 1));
        assert_eq!(readable(&fits), fits);
        assert_eq!(readable(&too_long), "ü".repeat(LONGEST_GIVEN - 1) + "…");
    }

    /// A number of Rust's names.
    fn sixty_two(mut number: usize) -> String {
        let digits = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let mut text = Vec::new();
        loop {
            text.push(digits[number % 62]);
            number /= 62;
            if number == 0 {
                break;
            }
        }
        text.reverse();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn of_names_of_one_place_the_shortest_stays() {
        let names = b"\0long_name\0name\0same\0";
        let function = |name_at, size| Function { address: 0x1000, size, name_at, name_length: 0 };
        let mut all = [function(11, 4), function(1, 4), function(6, 4), function(16, 4), function(99, 4)];
        measure(&mut all, names);
        let named: Vec<&[u8]> = all.iter().map(|one| one.name(names)).collect();
        assert_eq!(named, [&b"long_name"[..], b"name", b"name", b"same", b""]);
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
