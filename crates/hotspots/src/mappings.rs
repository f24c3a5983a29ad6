//! The files that a process has mapped, and their addresses: `/proc/PID/maps` (proc_pid_maps(5)).

/// An executable mapping of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The offset in the file.
    pub(crate) offset: u64,
    /// The file, or a name in brackets; empty for anonymous memory.
    pub(crate) path: String,
}

impl Mapping {
    /// Parses `/proc/PID/maps` and keeps the executable mappings.
    pub(crate) fn parse(text: &str) -> Vec<Self> {
        text.lines().filter_map(Self::parse_line).collect()
    }

    fn parse_line(line: &str) -> Option<Self> {
        // The path may contain spaces; it is the sixth field.
        let mut rest = line;
        let mut field = || {
            rest = rest.trim_start_matches(' ');
            let end = rest.find(' ').unwrap_or(rest.len());
            let (field, behind) = rest.split_at(end);
            rest = behind;
            field
        };
        let (range, rights, offset) = (field(), field(), field());
        let _device_and_inode = (field(), field());
        let (start, end) = range.split_once('-')?;
        let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
        let mapping = Self {
            start: hexadecimal(start)?,
            end: hexadecimal(end)?,
            offset: hexadecimal(offset)?,
            path: rest.trim_start_matches(' ').to_owned(),
        };
        (rights.as_bytes().get(2) == Some(&b'x') && mapping.start < mapping.end).then_some(mapping)
    }

    /// The memory that it takes, in bytes.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + self.path.len()
    }

    pub(crate) const fn holds(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    /// The path of the file, without the kernel's remark " (deleted)".
    pub(crate) fn file(&self) -> Option<&str> {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        path.starts_with('/').then_some(path)
    }

    /// The name to show: the file's name without its folder.
    pub(crate) fn name(&self) -> &str {
        match self.file() {
            Some(file) => file.rsplit('/').next().unwrap_or(file),
            None if self.path.is_empty() => "memory",
            None => &self.path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_code_counts_and_names_may_hold_spaces() {
        let text = "55d0c0000000-55d0c0100000 r--p 00000000 fe:00 123     /usr/bin/qemu-system-x86_64\n\
                    55d0c0100000-55d0c0900000 r-xp 00100000 fe:00 123     /usr/bin/qemu system (deleted)\n\
                    7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0       [vdso]\n\
                    7f0000000000-7f0000001000 r-xp 00000000 00:00 0 \nnonsense\n";
        let found = Mapping::parse(text);
        let names: Vec<&str> = found.iter().map(Mapping::name).collect();
        assert_eq!(names, ["qemu system", "[vdso]", "memory"]);
        assert_eq!((found[0].offset, found[0].file()), (0x10_0000, Some("/usr/bin/qemu system")));
        assert!(found[0].holds(0x55d0_c010_0000) && !found[0].holds(0x55d0_c090_0000));
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "\\PC{0,200}") {
            Mapping::parse(&text);
        }
    }
}
