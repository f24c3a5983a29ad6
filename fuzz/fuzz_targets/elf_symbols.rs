//! Programs that a VM's process has mapped, and their debug files, as `exitless profile` reads them.

#![no_main]

use std::sync::OnceLock;

use hotspots::ObjectSymbols;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| tempfile::tempdir_in("/dev/shm").expect("a directory"));
    let path = folder.path().join("program");
    std::fs::write(&path, bytes).expect("room");
    if let Some(symbols) = ObjectSymbols::read(&path, folder.path()) {
        for offset in [0, 0x1000, bytes.len() as u64, u64::MAX] {
            let _ = symbols.at(offset);
        }
    }
});
