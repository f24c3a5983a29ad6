//! Makes a long recording of xentrace from a short one.

use std::io::{self, Write};

/// Ticks between two copies.
const PAUSE: u64 = 1_000_000;

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |&bytes| u32::from_le_bytes(bytes))
}

/// Writes copies of a recording, each later than the one before, until there are `size` bytes.
pub(crate) fn write_copies(mut one: Vec<u8>, size: usize, to: &mut impl Write) -> io::Result<()> {
    let mut ticks = Vec::new();
    let mut at = 0;
    while at < one.len() {
        let header = word(&one, at);
        let timed = header >> 31 == 1;
        if timed {
            ticks.push((at + 4, u64::from(word(&one, at + 8)) << 32 | u64::from(word(&one, at + 4))));
        }
        at += 4 + if timed { 8 } else { 0 } + 4 * (header >> 28 & 7) as usize;
    }
    let first = ticks.iter().map(|tick| tick.1).min().unwrap_or(0);
    let last = ticks.iter().map(|tick| tick.1).max().unwrap_or(0);
    for copy in 0..size.div_ceil(one.len()) as u64 {
        for &(at, tick) in &ticks {
            let later = tick + copy * (last - first + PAUSE);
            one[at..at + 8].copy_from_slice(&later.to_le_bytes());
        }
        to.write_all(&one)?;
    }
    Ok(())
}
