//! `perf.data` in a file: whole, or records between a sound header and sound feature sections.

#![no_main]

use exitless_fuzz::read_recording;
use libfuzzer_sys::fuzz_target;

const MAGIC: &[u8] = b"PERFILE2";
const SOUND: &[u8] = include_bytes!("../seeds/perf_data/several-vms");
/// Where `struct perf_file_header` has offset and size of the records.
const DATA: usize = 40;
/// `struct perf_file_section`: an offset and a size.
const SECTION: usize = 16;

fuzz_target!(|bytes: &[u8]| {
    if bytes.starts_with(MAGIC) { read_recording(bytes) } else { read_recording(&around(bytes)) }
});

/// A recording with these records.
fn around(records: &[u8]) -> Vec<u8> {
    let (start, length) = (number(DATA), number(DATA + 8));
    let end = start + length;
    let mut recording = [&SOUND[..start], records, &SOUND[end..]].concat();
    recording[DATA + 8..DATA + SECTION].copy_from_slice(&(records.len() as u64).to_le_bytes());
    // The table of the sections lies behind the records, the sections behind the table: the first one ends it.
    let sections = (number(end) - end) / SECTION;
    for section in 0..sections {
        let offset = (number(end + section * SECTION) - length + records.len()) as u64;
        let at = start + records.len() + section * SECTION;
        recording[at..at + 8].copy_from_slice(&offset.to_le_bytes());
    }
    recording
}

fn number(at: usize) -> usize {
    let bytes = SOUND[at..at + 8].try_into().expect("eight bytes");
    usize::try_from(u64::from_le_bytes(bytes)).expect("a small number")
}
