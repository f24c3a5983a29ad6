//! The stream by which results leave a laboratory.
//!
//! The first byte of the input says how the rest is split, and whether checksums in it are put right first: no
//! mutation would find them otherwise.

#![no_main]

use libfuzzer_sys::fuzz_target;

const MARK: &[u8] = b"XLF1";
const HEADER: usize = 13;

/// Puts right the checksum of everything that looks like a whole frame.
fn repaired(stream: &[u8]) -> Vec<u8> {
    let mut stream = stream.to_vec();
    let mut at = 0;
    while let Some(header) = stream.get(at..at + HEADER) {
        let length = u32::from_le_bytes([header[5], header[6], header[7], header[8]]) as usize;
        let payload =
            header.starts_with(MARK).then(|| stream.get(at + HEADER..at + HEADER + length)).flatten();
        let Some(payload) = payload else {
            at += 1;
            continue;
        };
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&header[4..5]);
        hasher.update(payload);
        stream[at + 9..at + HEADER].copy_from_slice(&hasher.finalize().to_le_bytes());
        at += HEADER + length;
    }
    stream
}

fn decoded<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, Vec<u8>) {
    let mut frames = Vec::new();
    let noise = lab::fuzz::decode_frames(pieces, |frame| frames.push(format!("{frame:?}")));
    (frames, noise)
}

fuzz_target!(|input: &[u8]| {
    let Some((&choice, stream)) = input.split_first() else { return };
    let stream = if choice & 0x80 == 0 { stream.to_vec() } else { repaired(stream) };
    let piece = usize::from(choice & 0x7f) + 1;
    let whole = decoded([stream.as_slice()]);
    assert_eq!(whole, decoded(stream.chunks(piece)), "split after every {piece} bytes");
    assert!(whole.0.len() * HEADER + whole.1.len() <= stream.len());
});
