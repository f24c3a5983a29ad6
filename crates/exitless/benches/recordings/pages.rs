//! Makes a long trace-cmd recording (version 6) from a short one by repeating its pages with later
//! timestamps.

use std::fs;
use std::io;
use std::path::Path;

/// The mark before the offsets of the processors' pages (trace-cmd.dat.v6(5)).
const MARK: &[u8] = b"flyrecord\0";
const PAGE: usize = 4096;
/// The time between two copies; longer than any page's time span.
const PAUSE_NS: u64 = 1_000_000_000;

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Writes `recording` to `path` with the pages of its last buffer repeated: appends the copies to the file,
/// and adjusts the offsets.
pub(crate) fn repeat(recording: &[u8], times: usize, path: &Path) -> io::Result<()> {
    let mark = recording.windows(MARK.len()).rposition(|bytes| bytes == MARK);
    let places = mark.ok_or_else(|| io::Error::other("the recording has no pages"))? + MARK.len();
    // Stop at an entry that is no page of the file: it is beyond the last processor's.
    let places = (0..).map(|number| places + 16 * number).map_while(|at| {
        let (from, length) = (u64_at(recording, at), u64_at(recording, at + 8));
        let there =
            from > 0 && from % PAGE as u64 == 0 && from.checked_add(length)? <= recording.len() as u64;
        there.then_some((at, from as usize, length as usize / PAGE * PAGE))
    });
    let processors: Vec<_> = places.collect();
    let pages = |from: usize, length: usize| (from..from + length).step_by(PAGE);
    let times_ns = processors.iter().flat_map(|&(_, from, length)| pages(from, length));
    let times_ns: Vec<_> = times_ns.map(|at| u64_at(recording, at)).collect();
    let (oldest_ns, newest_ns) = (times_ns.iter().min(), times_ns.iter().max());
    let span_ns = newest_ns.unwrap_or(&0) - oldest_ns.unwrap_or(&0) + PAUSE_NS;

    let mut file = recording.to_vec();
    file.resize(file.len().next_multiple_of(PAGE), 0);
    for &(place, from, length) in &processors {
        let begins = file.len() as u64;
        put(&mut file, place, begins);
        put(&mut file, place + 8, (length * times) as u64);
        for number in 0..times as u64 {
            for at in pages(from, length) {
                let copy = file.len();
                file.extend_from_slice(&recording[at..at + PAGE]);
                put(&mut file, copy, u64_at(recording, at) + number * span_ns);
            }
        }
    }
    fs::write(path, file)
}
