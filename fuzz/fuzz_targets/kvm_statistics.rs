//! KVM's binary statistics: the parsers, and the file as a whole.

#![no_main]

use std::cell::OnceCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

use libfuzzer_sys::fuzz_target;
use probe::statistics::{StatisticsFile, parse_descriptors, parse_header};

const HEADER: usize = 24;

thread_local! {
    static FILE: OnceCell<File> = const { OnceCell::new() };
}

fn file_of(bytes: &[u8]) -> File {
    FILE.with(|file| {
        let file = file.get_or_init(|| tempfile::tempfile_in("/dev/shm").expect("a file in memory"));
        file.set_len(0).expect("an empty file");
        file.write_all_at(bytes, 0).expect("room for it");
        file.try_clone().expect("a second descriptor")
    })
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(header) = parse_header(bytes) else { return };
    if let Ok(all) = parse_descriptors(&header, bytes.get(HEADER..).unwrap_or_default()) {
        assert_eq!(all.len(), header.descriptors as usize);
        // Lossy UTF-8 makes three bytes of one.
        assert!(all.iter().all(|one| one.name.len() <= 3 * header.name_size as usize));
    }
    if let Ok(statistics) = StatisticsFile::new(file_of(bytes))
        && let (Ok(all), Ok(growing)) = (statistics.read(), statistics.read_cumulative())
    {
        assert!(growing.keys().all(|name| all.contains_key(name)));
    }
});
