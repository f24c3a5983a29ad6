//! Functions of a program or library, from its ELF file or its debug file.
//!
//! The process of a VM can map any file, and put another one or a link to a device in its place, so the file is not
//! trusted: only regular files are opened, and a file whose headers claim more than real programs have is not read.

use std::cmp::Reverse;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader64, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC, Sym64};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _};
use object::read::{ReadCache, ReadCacheOps, ReadRef};
use object::{LittleEndian, Object};

/// The largest section that is read, in bytes. The largest known symbol tables, those of browsers, have 100 MB.
const LARGEST_SECTION: u64 = 256 << 20;
/// The most bytes of all notes (build ID) together, and of `.gnu_debuglink`: the read cache keeps all that was looked
/// at.
const LARGEST_NOTE: u64 = 1 << 20;
/// The longest function name that is read, in bytes. Names of C++ templates can have thousands.
const LONGEST_NAME: usize = 4096;
/// The longest name in a recording, in characters. Back references let a short mangled name expand to millions.
pub(crate) const LONGEST_GIVEN: usize = 512;
/// The number of bytes that are compared to order names of one address that have the same length.
const COMPARED: usize = 256;

/// Functions by address, and the segments that map file offsets to addresses.
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

/// Names stay in the file's string table, because there may be hundreds of thousands.
#[derive(Debug, Clone, Default)]
struct Functions {
    /// Sorted by address, one function per address.
    sorted: Vec<Function>,
    names: Box<[u8]>,
}

#[derive(Debug, Clone, Copy)]
struct Function {
    address: u64,
    size: u64,
    name_at: u32,
    /// The length of the name. Measured once, because in a string table without zeros all names extend to its end.
    name_length: u32,
}

impl ObjectSymbols {
    /// Reads the file at `path`. If it is stripped, the debug file below `root` is read: found by the build ID in
    /// `/usr/lib/debug/.build-id`, or by the name in `.gnu_debuglink`. If there is none, the dynamic symbols have to
    /// do. `None` if it is not an ELF file of a 64-bit x86 host, or cannot be read.
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

    /// The memory that the symbols take, in bytes.
    pub(crate) fn size(&self) -> usize {
        size_of_val(&self.functions.sorted[..]) + self.functions.names.len()
    }

    /// The function at `offset` in the file; `None` if no known function is there.
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
    /// The functions of the file at `path`; `None` if it has none.
    fn of(path: &Path) -> Option<Self> {
        Self::read(&open(path)?, SHT_SYMTAB)
    }

    /// The functions in one symbol table of a file; `None` if it has none.
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
        // Aliases: prefer the largest function, then the shortest name.
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

/// The demangled name, truncated to [`LONGEST_GIVEN`] characters.
fn readable(name: &str) -> String {
    let mut short = Short::default();
    // The error only stops the demangler at the limit.
    let _ = write!(short, "{:#}", rustc_demangle::demangle(name));
    short.text
}

/// The text, truncated to [`LONGEST_GIVEN`] characters.
pub(crate) fn shortened(text: &str) -> String {
    let mut short = Short::default();
    // The error says that it was truncated.
    let _ = short.write_str(text);
    short.text
}

/// Text of at most [`LONGEST_GIVEN`] characters; a longer one ends with an ellipsis.
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

/// Opens a regular file whose headers claim no more than real programs have; `None` for any other file.
fn open(path: &Path) -> Option<ReadCache<File>> {
    let cache = ReadCache::new(files::named(path).ok()?);
    is_usual(&cache).then_some(cache)
}

fn is_usual<R: ReadCacheOps>(cache: &ReadCache<R>) -> bool {
    let fits = || {
        let header = FileHeader64::<LittleEndian>::parse(cache).ok()?;
        // Larger counts are in the first section header (elf(5), `SHN_UNDEF` and `PN_XNUM`), and have no useful
        // limit.
        if header.e_phnum.get(LittleEndian) == elf::PN_XNUM
            || header.e_shnum.get(LittleEndian) == 0 && header.e_shoff.get(LittleEndian) != 0
        {
            return None;
        }
        // The sum, because notes may overlap, and a sparse file of any size costs nothing.
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
                // Code, data and debug information are not read; `.gnu_debuglink` is.
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
    /// The name, in the string table.
    fn name(self, names: &[u8]) -> &[u8] {
        let start = self.name_at as usize;
        names.get(start..start + self.name_length as usize).unwrap_or_default()
    }
}

/// Sets the length of each name. Scans the table only once, even if many names share their end.
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
        // A name with a slash could lead out of the folder.
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
        // This program, with each section in turn as large as possible, as in a sparse file.
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
        // The number of sections is in the first section header.
        let mut forged = own.clone();
        forged[0x3c..0x3e].fill(0);
        forged[table + 32..table + 40].copy_from_slice(&(1_u64 << 33).to_le_bytes());
        std::fs::write(&path, forged).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(ObjectSymbols::read(&path, folder.path()).is_none());
    }

    /// An ELF file of sections: the type, offset, size and link of each. The first section has the section names.
    fn made(sections: &[(u32, u64, u64, u64)], content: &[u8]) -> Vec<u8> {
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let count = sections.len() + 1;
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        // A program for x86-64. The section headers follow the file header; section 0 is the null section.
        bytes.extend(words(&[3 | 62 << 16 | 1 << 32, 0, 0, 64]));
        // Sizes in 16-bit words: of this header; of program headers, and their number, 0; of section headers, and
        // their number; last the index of the section with the names, 1.
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
        // Each is searched for a build ID, and none has one.
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
        // Each tuple has two elements, both back references to the tuple before it, so sizes double: `T` items `E`,
        // `B` offset `_`.
        let mut name = "_RMC1aT".to_owned();
        // Offsets count from after `_R`. They are written minus one, in base 62, and end with `_`.
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

    /// A number in base 62, as in Rust's mangled names.
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
            // The headers, with one of their values replaced.
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
