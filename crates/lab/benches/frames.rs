//! The speed of finding frames in the output of an emulated host.

use std::hint::black_box;

use divan::Bencher;
use divan::counter::BytesCount;
use lab::fuzz::{decode_frames, frame};

const STREAM: usize = 1 << 20;
/// The most bytes that one read of the emulator's output returns.
const READ: usize = 64 << 10;

/// Complete frames, about [`STREAM`] bytes in total.
fn stream(payload: usize) -> Vec<u8> {
    let one = frame(&vec![b'x'; payload]);
    one.repeat(STREAM.div_ceil(one.len()))
}

fn decode(bytes: &[u8], piece: usize) -> (usize, usize) {
    let mut frames = 0;
    let noise = decode_frames(bytes.chunks(piece), |_| frames += 1);
    (frames, noise.len())
}

#[divan::bench(args = [16, 512, 32 << 10, 1 << 20], consts = [READ, 100, STREAM * 2], sample_count = 20)]
fn frames_in_reads_of<const PIECE: usize>(bencher: Bencher<'_, '_>, payload: usize) {
    let bytes = stream(payload);
    assert_eq!(decode(&bytes, READ), (bytes.len() / (payload + 13), 0));
    bencher.counter(BytesCount::new(bytes.len())).bench_local(|| decode(black_box(&bytes), PIECE));
}

#[divan::bench(sample_count = 20)]
fn noise_only(bencher: Bencher<'_, '_>) {
    let noise = b"[    1.234567] kernel: XL no frame in sight\n".repeat(STREAM / 44);
    bencher.counter(BytesCount::new(noise.len())).bench_local(|| decode(black_box(&noise), READ));
}

fn main() {
    divan::main();
}
