//! Reader of the kernel's type information (BTF, `Documentation/bpf/btf.rst` of Linux): offsets of structure members
//! and values of enumerations.
//!
//! Our own, because the BPF loader's reader does not support modules, and the licence of the only crate that does is
//! not compatible with a static binary.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

const MAGIC: u16 = 0xeb9f;
/// `struct btf_header`.
const HEADER: usize = 24;
/// `struct btf_type`, without the data that follows it for some kinds.
const TYPE: usize = 12;

/// Kinds of types, `BTF_KIND_*` of `include/uapi/linux/btf.h`.
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const POINTER: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNCTION_PROTOTYPE: u32 = 13;
    pub(super) const VARIABLE: u32 = 14;
    pub(super) const DATA_SECTION: u32 = 15;
    pub(super) const DECLARATION_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
    pub(super) const LAST: u32 = ENUM64;
}

/// Types of the kernel, or of a module together with the kernel's.
#[derive(Debug, Clone)]
pub struct Btf {
    base: Option<Arc<Section>>,
    own: Arc<Section>,
}

/// The contents of one file.
#[derive(Debug)]
struct Section {
    bytes: Vec<u8>,
    /// The offset of each type in `bytes`.
    types: Vec<u32>,
    /// Offsets of the named structures, unions, enumerations and typedefs, about a tenth of all types.
    named: Vec<u32>,
    strings: std::ops::Range<usize>,
    /// The ID of the first type, and the offset of the first string: a module continues the numbers of its base.
    first_type: u32,
    first_string: u32,
}

/// Parses type information of a kernel and of a module, and looks up members and parameters as the BPF programs do.
/// The entry point for fuzzing: hostile bytes may only cause errors.
pub fn read_type_information(kernel: &[u8], module: &[u8]) {
    let Ok(kernel) = Btf::parse(kernel.to_vec()) else { return };
    let module = Btf::parse_split(module.to_vec(), &kernel);
    for types in [Some(&kernel), module.as_ref().ok()].into_iter().flatten() {
        for (structure, path) in [
            ("task_struct", &["tgid"][..]),
            ("file", &["private_data"]),
            ("kvm_vcpu", &["arch", "apic", "apicv_active"]),
            ("kvm", &["arch", "apicv_inhibit_reasons"]),
        ] {
            let _ = types.member(structure, path);
        }
        let _ = types.parameter("btf_trace_kvm_exit", "kvm_vcpu");
        let _ = (types.has_member("kvm_arch", "next"), types.has_value("kvm_vcpu", "tgid"));
        let _ = types.values("kvm_apicv_inhibit");
    }
}

/// One type: the words of `struct btf_type`, and the data that follows them.
#[derive(Clone, Copy)]
struct Type<'b> {
    name: u32,
    info: u32,
    /// The size, or the ID of another type, depending on the kind.
    size_or_type: u32,
    rest: &'b [u8],
}

impl Type<'_> {
    const fn kind(self) -> u32 {
        self.info >> 24 & 0x1f
    }

    const fn count(self) -> u32 {
        self.info & 0xffff
    }

    /// The members, parameters or values, each as an array of 32-bit words.
    fn items(self, words: usize) -> impl Iterator<Item = [u32; 3]> {
        let each = self.rest.chunks_exact(4 * words).take(self.count() as usize);
        each.map(move |bytes| {
            std::array::from_fn(|at| if at < words { word(bytes, 4 * at).unwrap_or(0) } else { 0 })
        })
    }
}

impl Btf {
    /// Reads the kernel's type information.
    ///
    /// # Errors
    /// If the file cannot be read or is not BTF.
    pub fn from_file(path: &Path) -> io::Result<Self> {
        Self::parse(fs::read(path)?)
    }

    /// Parses the kernel's type information.
    ///
    /// # Errors
    /// If the bytes are not BTF.
    pub fn parse(bytes: Vec<u8>) -> io::Result<Self> {
        Ok(Self { base: None, own: Arc::new(Section::parse(bytes, 1, 0)?) })
    }

    /// Reads a module's type information, whose IDs continue those of `base`.
    ///
    /// # Errors
    /// If the file cannot be read or is not BTF.
    pub fn from_split_file(path: &Path, base: &Self) -> io::Result<Self> {
        Self::parse_split(fs::read(path)?, base)
    }

    /// Parses a module's type information.
    ///
    /// # Errors
    /// If the bytes are not BTF.
    pub fn parse_split(bytes: Vec<u8>, base: &Self) -> io::Result<Self> {
        let first_type = u32::try_from(base.own.types.len() + 1).map_err(|_| damaged())?;
        let first_string = u32::try_from(base.own.strings.len()).map_err(|_| damaged())?;
        let own = Section::parse(bytes, first_type, first_string)?;
        Ok(Self { base: Some(Arc::clone(&base.own)), own: Arc::new(own) })
    }

    /// The byte offset of a member. `path` names the members of nested structures; anonymous structures and unions
    /// are searched too.
    #[must_use]
    pub fn member(&self, structure: &str, path: &[&str]) -> Option<u32> {
        let mut without = HashSet::new();
        self.structures(structure).find_map(|one| self.offset(one, path, 0, &mut without))
    }

    /// Tests whether a structure has a member. `None` if no structure of this name is defined.
    #[must_use]
    pub fn has_member(&self, structure: &str, member: &str) -> Option<bool> {
        self.structures(structure)
            .any(|one| one.count() > 0)
            .then(|| self.member(structure, &[member]).is_some())
    }

    /// Tests whether an enumeration has a value of this name. `None` if there is no such enumeration.
    #[must_use]
    pub fn has_value(&self, enumeration: &str, value: &str) -> Option<bool> {
        let values = self.values(enumeration)?;
        Some(values.iter().any(|(name, _)| *name == value))
    }

    /// The names and values of an enumeration, in the order of their definition; the lower half of 64-bit values.
    /// `None` if there is no such enumeration.
    #[must_use]
    pub fn values(&self, enumeration: &str) -> Option<Vec<(&str, u32)>> {
        let mut values: Option<Vec<_>> = None;
        for one in self.named().filter(|one| one.count() > 0 && self.is_named(one.name, enumeration)) {
            let words = match one.kind() {
                kind::ENUM => 2,
                kind::ENUM64 => 3,
                _ => continue,
            };
            let named = one.items(words).filter_map(|[name, value, _]| Some((self.text(name)?, value)));
            values.get_or_insert_default().extend(named);
        }
        values
    }

    /// The index of the first parameter that is a pointer to `structure`, in the function type that `definition` is a
    /// typedef of.
    #[must_use]
    pub fn parameter(&self, definition: &str, structure: &str) -> Option<u32> {
        let with_name = |one: &Type<'_>| one.kind() == kind::TYPEDEF && self.is_named(one.name, definition);
        let pointer = self.plain(self.named().find(with_name)?.size_or_type)?;
        let function =
            self.plain(pointer.size_or_type).filter(|one| one.kind() == kind::FUNCTION_PROTOTYPE)?;
        let points_to = |number: u32| {
            let pointer = self.plain(number).filter(|one| one.kind() == kind::POINTER)?;
            self.plain(pointer.size_or_type)
        };
        let is_wanted = |number| points_to(number).is_some_and(|one| self.is_named(one.name, structure));
        let at = function.items(2).position(|[_, number, _]| is_wanted(number))?;
        u32::try_from(at).ok()
    }

    /// `without` has the types that were searched in vain, each with the length of the path that was left: in a
    /// corrupt file the number of ways to the same structure can be exponential.
    fn offset(
        &self,
        of: Type<'_>,
        path: &[&str],
        depth: u32,
        without: &mut HashSet<(u32, usize)>,
    ) -> Option<u32> {
        // A structure cannot contain itself by value, but a corrupt file can claim that it does.
        const DEEPEST: u32 = 32;
        let (&wanted, rest) = path.split_first()?;
        if !matches!(of.kind(), kind::STRUCT | kind::UNION) || depth > DEEPEST {
            return None;
        }
        let bitfields = of.info >> 31 != 0;
        for [name, number, offset] in of.items(3) {
            let (is_wanted, has_none) = (self.is_named(name, wanted), self.is_named(name, ""));
            if !is_wanted && !has_none {
                continue;
            }
            let bits = if bitfields { offset & 0x00ff_ffff } else { offset };
            if is_wanted && rest.is_empty() {
                return Some(bits / 8);
            }
            let path = if has_none { path } else { rest };
            if !without.insert((number, path.len())) {
                continue;
            }
            let inside = self.plain(number).and_then(|inside| self.offset(inside, path, depth + 1, without));
            if let Some(further) = inside {
                return (bits / 8).checked_add(further);
            }
        }
        None
    }

    /// The type behind typedefs and qualifiers.
    fn plain(&self, mut number: u32) -> Option<Type<'_>> {
        // An upper bound: in a corrupt file these types can form a cycle.
        for _ in 0..64 {
            let one = self.of_number(number)?;
            match one.kind() {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    number = one.size_or_type;
                }
                _ => return Some(one),
            }
        }
        None
    }

    /// All structures and unions of this name.
    fn structures(&self, name: &str) -> impl Iterator<Item = Type<'_>> {
        let is_one = move |one: &Type<'_>| {
            matches!(one.kind(), kind::STRUCT | kind::UNION) && self.is_named(one.name, name)
        };
        self.named().filter(is_one)
    }

    /// All named structures, unions, enumerations and typedefs, the module's first: the kernel may have only a
    /// forward declaration of a module's structure.
    fn named(&self) -> impl Iterator<Item = Type<'_>> {
        let sections = [Some(&self.own), self.base.as_ref()];
        sections
            .into_iter()
            .flatten()
            .flat_map(|section| section.named.iter().filter_map(|&at| section.at(at)))
    }

    fn of_number(&self, number: u32) -> Option<Type<'_>> {
        let section = match &self.base {
            Some(base) if number < self.own.first_type => base,
            _ => &self.own,
        };
        section.at(*section.types.get(number.checked_sub(section.first_type)? as usize)?)
    }

    /// Tests whether the name at this offset is `wanted`, without searching for the end of a name that differs.
    fn is_named(&self, offset: u32, wanted: &str) -> bool {
        let rest = self.strings_from(offset).and_then(|strings| strings.strip_prefix(wanted.as_bytes()));
        rest.is_some_and(|rest| rest.first().is_none_or(|&byte| byte == 0))
    }

    /// The name at this offset; `None` if it is longer than any of the kernel's.
    fn text(&self, offset: u32) -> Option<&str> {
        const LONGEST: usize = 512;
        let strings = self.strings_from(offset)?;
        let length = strings.iter().take(LONGEST).position(|&byte| byte == 0)?;
        std::str::from_utf8(&strings[..length]).ok()
    }

    fn strings_from(&self, offset: u32) -> Option<&[u8]> {
        let section = match &self.base {
            Some(base) if offset < self.own.first_string => base,
            _ => &self.own,
        };
        let strings = section.bytes.get(section.strings.clone())?;
        strings.get(offset.checked_sub(section.first_string)? as usize..)
    }
}

impl Section {
    fn parse(bytes: Vec<u8>, first_type: u32, first_string: u32) -> io::Result<Self> {
        let number = |at| word(&bytes, at).map(|value| value as usize).ok_or_else(damaged);
        if bytes.get(..2) != Some(&MAGIC.to_le_bytes()) {
            return Err(damaged());
        }
        let header = number(4)?;
        if header < HEADER {
            return Err(damaged());
        }
        let range = |at| -> io::Result<std::ops::Range<usize>> {
            let start = header.checked_add(number(at)?).ok_or_else(damaged)?;
            let end =
                start.checked_add(number(at + 4)?).filter(|&end| end <= bytes.len()).ok_or_else(damaged)?;
            Ok(start..end)
        };
        let (all, strings) = (range(8)?, range(16)?);
        let (mut types, mut named) = (Vec::new(), Vec::new());
        let mut at = all.start;
        while at < all.end {
            let offset = u32::try_from(at).map_err(|_| damaged())?;
            types.push(offset);
            let info = word(&bytes, at + 4).ok_or_else(damaged)?;
            let is_looked_for = matches!(
                info >> 24 & 0x1f,
                kind::STRUCT | kind::UNION | kind::TYPEDEF | kind::ENUM | kind::ENUM64
            );
            if is_looked_for && word(&bytes, at) != Some(0) {
                named.push(offset);
            }
            at = at + TYPE + following(info).ok_or_else(damaged)?;
        }
        if at != all.end {
            return Err(damaged());
        }
        Ok(Self { bytes, types, named, strings, first_type, first_string })
    }

    fn at(&self, at: u32) -> Option<Type<'_>> {
        let bytes = self.bytes.get(at as usize..)?;
        let info = word(bytes, 4)?;
        let rest = bytes.get(TYPE..TYPE + following(info)?)?;
        Some(Type { name: word(bytes, 0)?, info, size_or_type: word(bytes, 8)?, rest })
    }
}

/// The length of the data after `struct btf_type`. `None` for an unknown kind: the types after it cannot be found.
fn following(info: u32) -> Option<usize> {
    let count = (info & 0xffff) as usize;
    Some(match info >> 24 & 0x1f {
        kind::INT | kind::VARIABLE | kind::DECLARATION_TAG => 4,
        kind::ARRAY => 12,
        kind::STRUCT | kind::UNION | kind::DATA_SECTION | kind::ENUM64 => 12 * count,
        kind::ENUM | kind::FUNCTION_PROTOTYPE => 8 * count,
        0 => return None,
        known if known <= kind::LAST => 0,
        _ => return None,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.first_chunk().map(|&bytes| u32::from_le_bytes(bytes))
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is not type information of this version")
}

#[cfg(test)]
mod tests;
