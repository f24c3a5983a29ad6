//! Makes a long perf recording from a short one by repeating its records with later timestamps.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// `PERF_RECORD_SAMPLE`, and `PERF_RECORD_FINISHED_ROUND`: all buffers have been read once.
const SAMPLE: u32 = 9;
const ROUND: u32 = 68;
/// The offset of the time in samples of `perf kvm stat record`: after header, identifier, address and thread
/// ID.
const TIME_AT: usize = 32;
const HEADER: usize = 104;
const FEATURE_BITS_AT: usize = 72;
const SECTION: usize = 16;
/// The time between two copies.
const PAUSE_NS: u64 = 1_000_000;

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// The offsets and sizes of records.
fn records(data: &[u8]) -> impl Iterator<Item = (usize, u32, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let head = data.get(at..at + 8)?;
        let kind = u32::from_le_bytes(head[..4].try_into().ok()?);
        let size = usize::from(u16::from_le_bytes(head[6..].try_into().ok()?));
        let found = (at, kind, size);
        at += size;
        (size >= 8).then_some(found)
    })
}

/// Writes `recording` to `path` several times: everything once, then only samples and rounds. Corrects the
/// offsets in the header.
pub(crate) fn repeat(recording: &[u8], times: usize, path: &Path) -> io::Result<()> {
    let (data_at, data_length) = (u64_at(recording, 40) as usize, u64_at(recording, 48) as usize);
    let data = &recording[data_at..data_at + data_length];
    let samples: Vec<_> = records(data).filter(|&(_, kind, _)| matches!(kind, SAMPLE | ROUND)).collect();
    let time = |&(at, kind, _): &(usize, u32, usize)| (kind == SAMPLE).then(|| u64_at(data, at + TIME_AT));
    let all = || samples.iter().filter_map(time);
    let span = all().max().unwrap_or(0) - all().min().unwrap_or(0) + PAUSE_NS;

    let mut again = Vec::new();
    let mut places = Vec::new();
    for &(at, kind, size) in &samples {
        places.extend((kind == SAMPLE).then_some(again.len() + TIME_AT));
        again.extend_from_slice(&data[at..at + size]);
    }
    let added = again.len() * times.saturating_sub(1);
    let mut head = recording[..data_at].to_vec();
    put(&mut head, 48, (data_length + added) as u64);
    let mut tail = recording[data_at + data_length..].to_vec();
    let features: u32 = head[FEATURE_BITS_AT..HEADER].iter().map(|byte| byte.count_ones()).sum();
    for number in 0..features as usize {
        let place = u64_at(&tail, number * SECTION);
        put(&mut tail, number * SECTION, place + added as u64);
    }

    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    file.write_all(&head)?;
    file.write_all(data)?;
    for _ in 1..times {
        for &place in &places {
            let later = u64_at(&again, place) + span;
            put(&mut again, place, later);
        }
        file.write_all(&again)?;
    }
    file.write_all(&tail)?;
    file.flush()
}
