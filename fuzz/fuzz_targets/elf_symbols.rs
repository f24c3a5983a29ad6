//! Programs that a VM's process has mapped, and their debug files, as `exitless profile` reads them: of tables that have to
//! do with each other, with some bytes changed, and of any bytes.

#![no_main]

use std::path::Path;
use std::sync::OnceLock;

use arbitrary::Arbitrary;
use hotspots::ObjectSymbols;
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
enum Input<'b> {
    Made { program: Program, debug: Option<Box<Program>> },
    Any(&'b [u8]),
}

#[derive(Debug, Arbitrary)]
struct Program {
    /// Offset, size and address.
    segments: Vec<(u16, u16, u16)>,
    symbols: Option<Vec<Symbol>>,
    exported: Option<Vec<Symbol>>,
    names: Vec<u8>,
    /// Bytes of the build ID, if there is a note with one.
    build_id: Option<u8>,
    /// Whether it names a debug file, and one beside itself.
    link: Option<bool>,
    /// A word of the headers of sections, and what it is.
    sections: Vec<(u8, u64)>,
    changes: Vec<(u16, u8)>,
    cut: u8,
}

#[derive(Debug, Arbitrary)]
struct Symbol {
    name: u16,
    kind: u8,
    section: u8,
    address: u16,
    size: u16,
}

const HEADER: usize = 64;
const DEBUG: &str = "program.debug";

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl Program {
    /// The ELF file.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        let segments = &self.segments[..self.segments.len().min(8)];
        for (offset, size, address) in segments {
            let (offset, size, address) = (u64::from(*offset), u64::from(*size), u64::from(*address));
            // PT_LOAD, R and X.
            bytes.extend(words(&[1 | 5 << 32, offset, address, address, size, size, 0x1000]));
        }
        // Name, type, offset, size, linked section and bytes of an entry of each section; the first is none.
        let mut sections: Vec<[u64; 6]> = vec![[0; 6]];
        let mut section = |name: u64, kind: u64, content: &[u8], link: u64, entry: u64| {
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            sections.push([name, kind, bytes.len() as u64, content.len() as u64, link, entry]);
            bytes.extend(content);
        };
        // The names of sections, with those that are looked for.
        let own = b"\0.gnu_debuglink\0.note.gnu.build-id\0";
        section(0, 3, own, 0, 0);
        section(0, 3, &self.names, 0, 0);
        for (kind, symbols) in [(2, &self.symbols), (11, &self.exported)] {
            let Some(symbols) = symbols else { continue };
            let mut table = vec![0; 24];
            for symbol in symbols.iter().take(60) {
                let head =
                    u64::from(symbol.name) | u64::from(symbol.kind) << 32 | u64::from(symbol.section) << 48;
                table.extend(words(&[head, symbol.address.into(), symbol.size.into()]));
            }
            section(0, kind, &table, 2, 24);
        }
        if let Some(size) = self.build_id {
            let mut note: Vec<u8> =
                [4, u32::from(size), 3].iter().flat_map(|word| word.to_le_bytes()).collect();
            note.extend(b"GNU\0");
            note.extend((0..size).map(|_| 0xab));
            note.resize(note.len().next_multiple_of(4), 0);
            section(16, 7, &note, 0, 0);
        }
        if let Some(beside) = self.link {
            let name = if beside { DEBUG } else { "../elsewhere" };
            let mut link = name.as_bytes().to_vec();
            link.resize((link.len() + 1).next_multiple_of(4), 0);
            link.extend([1, 2, 3, 4]);
            section(1, 1, &link, 0, 0);
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let table = bytes.len();
        for [name, kind, offset, size, link, entry] in &sections {
            bytes.extend(words(&[name | kind << 32, 0, 0, *offset, *size, *link, 1, *entry]));
        }
        for (at, value) in self.sections.iter().take(4) {
            let at = table + 8 * (usize::from(*at) % (8 * sections.len()));
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        // 64 bits, little-endian; a program for x86-64.
        bytes[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
        let counts = [3 | 62 << 16 | 1 << 32, 0, HEADER as u64, table as u64, (HEADER as u64) << 32];
        bytes[16..56].copy_from_slice(&words(&counts));
        let counts = 56 | (segments.len() as u64) << 16 | 64 << 32 | (sections.len() as u64) << 48;
        bytes[54..62].copy_from_slice(&counts.to_le_bytes());
        bytes[62] = 1;
        for (at, value) in self.changes.iter().take(8) {
            let at = usize::from(*at) % bytes.len();
            bytes[at] = *value;
        }
        bytes.truncate(bytes.len() - usize::from(self.cut / 8).min(bytes.len()));
        bytes
    }

    /// Where its debug file is looked for.
    fn debug_file(&self) -> String {
        match self.build_id {
            Some(size) if size > 1 => {
                format!("usr/lib/debug/.build-id/ab/{}.debug", "ab".repeat(usize::from(size) - 1))
            }
            _ => DEBUG.to_owned(),
        }
    }
}

fn look(bytes: &[u8], folder: &Path) {
    let path = folder.join("program");
    std::fs::write(&path, bytes).expect("room");
    if let Some(symbols) = ObjectSymbols::read(&path, folder) {
        for offset in (0..64).map(|step| step * 0x20).chain([0x1000, bytes.len() as u64, u64::MAX]) {
            let _ = symbols.at(offset);
        }
    }
}

fuzz_target!(|input: Input<'_>| {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a directory");
        std::fs::create_dir_all(folder.path().join("usr/lib/debug/.build-id/ab")).expect("a directory");
        folder
    });
    match input {
        Input::Made { program, debug } => {
            // Names of files have 255 bytes at most.
            let place = folder.path().join(program.debug_file());
            let there = debug.is_some_and(|debug| std::fs::write(&place, debug.bytes()).is_ok());
            look(&program.bytes(), folder.path());
            if there {
                std::fs::remove_file(&place).expect("it was just made");
            }
        }
        Input::Any(bytes) => look(bytes, folder.path()),
    }
});
