//! Finding frames in what an emulated host sends.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use lab::fuzz::{decode_frames, frame};

const STREAM: usize = 1 << 20;
/// What one read of the emulator's output gives at most.
const READ: usize = 64 << 10;

/// Whole frames, about [`STREAM`] bytes of them.
fn stream(payload: usize) -> Vec<u8> {
    let one = frame(&vec![b'x'; payload]);
    one.repeat(STREAM.div_ceil(one.len()))
}

fn decode(bytes: &[u8], piece: usize) -> (usize, usize) {
    let mut frames = 0;
    let noise = decode_frames(bytes.chunks(piece), |_| frames += 1);
    (frames, noise.len())
}

fn frames(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("frames");
    group.sample_size(20);
    for payload in [16, 512, 32 << 10, 1 << 20] {
        let bytes = stream(payload);
        assert_eq!(decode(&bytes, READ), (bytes.len() / (payload + 13), 0));
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        for (how, piece) in
            [("in reads of 64 KiB", READ), ("in reads of 100 bytes", 100), ("at once", STREAM * 2)]
        {
            group.bench_with_input(BenchmarkId::new(how, payload), &bytes, |bencher, bytes| {
                bencher.iter(|| decode(black_box(bytes), piece));
            });
        }
    }
    let noise = b"[    1.234567] kernel: XL no frame in sight\n".repeat(STREAM / 44);
    group.throughput(Throughput::Bytes(noise.len() as u64));
    group.bench_function("noise only", |bencher| bencher.iter(|| decode(black_box(&noise), READ)));
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    frames(&mut criterion);
    criterion.final_summary();
}
