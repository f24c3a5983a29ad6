//! Resolves addresses to names on a running host.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::mappings::Mapping;
use crate::{Frame, KernelSymbols, ObjectSymbols, Space};

/// The object's name in frames of the kernel itself.
const KERNEL: &str = "kernel";

/// The most memory for the mappings and the symbols of all programs together, in bytes: a process can map any number of
/// files.
const MOST: usize = 1 << 30;

/// The largest `/proc/PID/maps` that is read, in bytes. The kernel's default limit of mappings (`vm.max_map_count`),
/// each with a path of a thousand characters, fits.
const LONGEST_MAPS: u64 = 64 << 20;

/// The symbols of a host's kernel and processes. A file is read when an address in it is resolved for the first time.
#[derive(Debug)]
pub struct Symbols {
    root: PathBuf,
    kernel: Option<KernelSymbols>,
    /// Each process's executable mappings by address, the order in which the kernel lists them.
    processes: HashMap<u32, Vec<Mapping>>,
    /// By process and path: a process may have its own mount namespace.
    objects: HashMap<(u32, String), Option<ObjectSymbols>>,
    /// The memory that is left for the `processes` and the `objects`, in bytes.
    room: usize,
    left_out: usize,
}

impl Symbols {
    /// The symbols of the host below `root`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            kernel: None,
            processes: HashMap::new(),
            objects: HashMap::new(),
            room: MOST,
            left_out: 0,
        }
    }

    /// Reads the mappings of a process again. If the process has ended, or there is no room, the old ones remain.
    pub fn learn(&mut self, process: u32) {
        let home = self.root.join(format!("proc/{process}"));
        let path = home.join("maps");
        let maps = move || files::regular(&path).and_then(|file| files::read(&file, LONGEST_MAPS));
        if let Ok(Ok(bytes)) = files::look(&home, maps) {
            let mappings = Mapping::parse(&String::from_utf8_lossy(&bytes));
            let size = |all: &Vec<Mapping>| all.iter().map(Mapping::size).sum::<usize>();
            let old = self.processes.get(&process).map_or(0, size);
            let left = (self.room + old).checked_sub(size(&mappings));
            if let Some(left) = left.filter(|_| !mappings.is_empty()) {
                self.room = left;
                self.processes.insert(process, mappings);
            }
        }
    }

    /// Tests whether the mappings of a process are known.
    #[must_use]
    pub fn knows(&self, process: u32) -> bool {
        self.processes.contains_key(&process)
    }

    /// Tests whether an address is in an executable mapping of a process.
    #[must_use]
    pub fn is_code(&self, process: u32, address: u64) -> bool {
        code_at(&self.processes, process, address).is_some()
    }

    /// Resolves an address of the kernel.
    pub fn kernel(&mut self, address: u64) -> Frame {
        self.kernel_symbols().frame(address, Space::Kernel, KERNEL)
    }

    /// Tests whether the kernel's symbols are hidden from this user, or cannot be read.
    pub fn kernel_is_hidden(&mut self) -> bool {
        self.kernel_symbols().is_empty()
    }

    /// The number of files that were not read for lack of room, counted for each process.
    #[must_use]
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    fn kernel_symbols(&mut self) -> &KernelSymbols {
        let root = &self.root;
        self.kernel.get_or_insert_with(|| {
            let text = std::fs::read(root.join("proc/kallsyms")).unwrap_or_default();
            KernelSymbols::parse(&String::from_utf8_lossy(&text))
        })
    }

    /// Resolves a user-space address of a process.
    pub fn user(&mut self, process: u32, address: u64) -> Frame {
        let unknown = |object: &str, address| Frame {
            space: Space::User,
            symbol: None,
            object: object.to_owned(),
            address: Some(address),
        };
        let Some(mapping) = code_at(&self.processes, process, address) else {
            return unknown("memory", address);
        };
        let offset = (address - mapping.start).saturating_add(mapping.offset);
        let Some(file) = mapping.file() else { return unknown(mapping.name(), address) };
        let (root, room, left_out) = (&self.root, &mut self.room, &mut self.left_out);
        let object = self.objects.entry((process, file.to_owned())).or_insert_with(|| {
            if *room == 0 {
                *left_out += 1;
                return None;
            }
            let home = root.join(format!("proc/{process}"));
            let (own_root, root) = (home.join("root"), root.clone());
            let below = file.trim_start_matches('/').to_owned();
            // Try the root of the process, then that of the host, for a process that has ended. Both choice and
            // contents of the file are up to the process, and so is whether its file system answers.
            let read = move || {
                [own_root, root].iter().find_map(|root| ObjectSymbols::read(&root.join(&below), root))
            };
            let found = files::look_at_files(&home, read).ok().flatten();
            *room = room.saturating_sub(found.as_ref().map_or(0, ObjectSymbols::size));
            found
        });
        match object.as_ref().and_then(|symbols| symbols.at(offset)) {
            Some(symbol) => Frame {
                space: Space::User,
                symbol: Some(symbol),
                object: mapping.name().to_owned(),
                address: None,
            },
            None => unknown(mapping.name(), offset),
        }
    }
}

/// The executable mapping at an address of a process. A process can have a million mappings.
fn code_at(processes: &HashMap<u32, Vec<Mapping>>, process: u32, address: u64) -> Option<&Mapping> {
    let all = processes.get(&process)?;
    all.get(all.partition_point(|mapping| mapping.end <= address)).filter(|mapping| mapping.holds(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_among_many_mappings_and_between_them_is_none() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let line = |at: u64| {
            format!("{:x}-{:x} r-xp 00000000 00:00 0 [anon:{at}]\n", at * 0x2000, at * 0x2000 + 0x1000)
        };
        std::fs::write(root.path().join("proc/7/maps"), (1..=1000).map(line).collect::<String>()).unwrap();
        let mut symbols = Symbols::new(root.path());
        symbols.learn(7);
        for at in [1, 2, 500, 999, 1000] {
            for (address, is_code) in
                [(at * 0x2000 - 1, false), (at * 0x2000, true), (at * 0x2000 + 0xfff, true)]
            {
                assert_eq!(symbols.is_code(7, address), is_code, "{address:x}");
                let object = if is_code { format!("[anon:{at}]") } else { "memory".to_owned() };
                assert_eq!(symbols.user(7, address).object, object, "{address:x}");
            }
            assert!(!symbols.is_code(7, at * 0x2000 + 0x1000));
        }
    }

    #[test]
    fn a_process_is_resolved_by_its_own_files_and_remembered_past_its_end() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("proc/7");
        std::fs::create_dir_all(home.join("root/usr/bin")).unwrap();
        let own = std::env::current_exe().unwrap();
        std::fs::copy(&own, home.join("root/usr/bin/monitor")).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let maps = maps.replace(&own.to_string_lossy().into_owned(), "/usr/bin/monitor");
        std::fs::write(home.join("maps"), maps).unwrap();
        std::fs::write(root.path().join("proc/kallsyms"), "ffffffff81000000 T _stext\n").unwrap();

        let mut symbols = Symbols::new(root.path());
        symbols.learn(7);
        std::fs::remove_file(home.join("maps")).unwrap();
        symbols.learn(7);
        let here = a_process_is_resolved_by_its_own_files_and_remembered_past_its_end as fn() as usize as u64;
        let frame = symbols.user(7, here);
        assert!(frame.symbol.unwrap().contains("a_process_is_resolved"));
        assert_eq!(frame.object, "monitor");
        assert_eq!(symbols.user(7, 3).object, "memory");
        assert!(symbols.knows(7) && !symbols.knows(8));
        assert_eq!(symbols.kernel(u64::MAX).symbol.as_deref(), Some("_stext"));
        assert!(!symbols.kernel_is_hidden());
        assert_eq!(symbols.left_out(), 0);

        symbols.objects.clear();
        symbols.room = 0;
        for _ in 0..2 {
            let frame = symbols.user(7, here);
            assert!(frame.symbol.is_none() && frame.object == "monitor", "{frame:?}");
        }
        assert_eq!(symbols.left_out(), 1);
    }

    #[test]
    fn mappings_of_all_processes_share_the_room() {
        let root = tempfile::tempdir().unwrap();
        for process in [7, 8] {
            let home = root.path().join(format!("proc/{process}"));
            std::fs::create_dir_all(&home).unwrap();
            std::fs::write(home.join("maps"), "1000-2000 r-xp 00000000 00:00 0 [a]\n").unwrap();
        }
        let mut symbols = Symbols::new(root.path());
        symbols.room = size_of::<Mapping>() + "[a]".len();
        symbols.learn(7);
        symbols.learn(7);
        symbols.learn(8);
        assert!(symbols.knows(7) && !symbols.knows(8));
        assert_eq!(symbols.room, 0);
    }

    #[test]
    fn a_list_of_mappings_that_is_a_giant_is_not_read() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        std::fs::File::create(root.path().join("proc/7/maps")).unwrap().set_len(1 << 42).unwrap();
        let mut symbols = Symbols::new(root.path());
        symbols.learn(7);
        assert!(!symbols.knows(7));
    }
}
