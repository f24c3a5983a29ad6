//! Functions of a program or library, from its ELF file or its debug file.

use std::cmp::Reverse;
use std::fs::File;
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader64, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC, Sym64};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _};
use object::read::{ReadCache, ReadCacheOps, ReadRef};
use object::{LittleEndian, Object};

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
        let cache = ReadCache::new(File::open(path).ok()?);
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
        Self::read(&ReadCache::new(File::open(path).ok()?), SHT_SYMTAB)
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
