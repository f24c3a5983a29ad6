//! Functions of the kernel and its modules, from `/proc/kallsyms` or a System.map.

use crate::{Frame, Space};

/// Functions by address.
#[derive(Debug, Clone, Default)]
pub struct KernelSymbols {
    /// Sorted by address, one function per address.
    functions: Vec<Function>,
    /// True if all addresses are zero: the kernel hides them from this user.
    hidden: bool,
}

#[derive(Debug, Clone)]
struct Function {
    address: u64,
    name: Box<str>,
    module: Option<Box<str>>,
    global: bool,
}

impl KernelSymbols {
    /// Parses lines of `ADDRESS TYPE NAME [MODULE]` (`scripts/kallsyms.c` and `kernel/kallsyms.c` of Linux, and the
    /// output of `nm`). Skips other lines and symbols that are not code.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut functions: Vec<Function> = text.lines().filter_map(Function::parse).collect();
        let hidden = !functions.is_empty() && functions.iter().all(|one| one.address == 0);
        if hidden {
            functions.clear();
        }
        // Aliases: prefer global symbols, then the shortest name, which is usually the one in the source.
        functions.sort_by(|a, b| {
            (a.address, !a.global, a.name.len(), &a.name).cmp(&(b.address, !b.global, b.name.len(), &b.name))
        });
        functions.dedup_by_key(|function| function.address);
        Self { functions, hidden }
    }

    /// Tests whether the kernel hid the addresses (`kernel.kptr_restrict`).
    #[must_use]
    pub fn are_hidden(&self) -> bool {
        self.hidden
    }

    /// Tests whether there are no symbols.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The function at an address and its module; `None` below the first function.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<(&str, Option<&str>)> {
        let behind = self.functions.partition_point(|function| function.address <= address);
        let found = self.functions.get(behind.checked_sub(1)?)?;
        Some((&found.name, found.module.as_deref()))
    }

    /// The frame for an address in `space`, whose symbols these are; `object` is the name for code that is in no
    /// module.
    #[must_use]
    pub fn frame(&self, address: u64, space: Space, object: &str) -> Frame {
        match self.at(address) {
            Some((name, module)) => Frame {
                space,
                symbol: Some(name.to_owned()),
                object: module.unwrap_or(object).to_owned(),
                address: None,
            },
            None => Frame { space, symbol: None, object: object.to_owned(), address: Some(address) },
        }
    }
}

impl Function {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let kind = words.next()?;
        let name = words.next()?;
        // objtool names the padding before a function `__pfx_NAME`; code in it continues into the function.
        let name = name.strip_prefix("__pfx_").unwrap_or(name);
        let module = words.next().and_then(|word| word.strip_prefix('[')?.strip_suffix(']'));
        let code = matches!(kind, "t" | "T" | "w" | "W" | "i");
        code.then(|| Self {
            address,
            name: name.into(),
            module: module.map(Into::into),
            global: kind.starts_with(char::is_uppercase),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "ffffffff81000000 T _stext\nffffffff81000100 t kvm_io_bus_write\nffffffff81000100 T shorter\n\
                        ffffffff82000000 D some_data\nffffffffc0001000 t svm_handle_exit\t[kvm_amd]\nbroken\n\
                        ffffffffc0002000 t bpf_prog_1234_raw_exit\t[bpf]\n";

    #[test]
    fn an_address_belongs_to_the_last_function_that_begins_before() {
        let symbols = KernelSymbols::parse(TEXT);
        assert_eq!(symbols.at(0xffff_ffff_8100_00ff), Some(("_stext", None)));
        assert_eq!(symbols.at(0xffff_ffff_8100_0100), Some(("shorter", None)));
        assert_eq!(symbols.at(0xffff_ffff_c000_1234), Some(("svm_handle_exit", Some("kvm_amd"))));
        assert_eq!(symbols.at(1), None);
        assert_eq!(symbols.frame(1, Space::Kernel, "kernel").address, Some(1));
    }

    #[test]
    fn hidden_addresses_are_told_from_none() {
        let hidden = KernelSymbols::parse("0000000000000000 T _stext\n0000000000000000 t other\n");
        assert!(hidden.are_hidden() && hidden.is_empty());
        assert!(!KernelSymbols::parse("").are_hidden());
    }
}
