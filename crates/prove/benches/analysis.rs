//! Benchmarks of reading and analysing a recording of each plan.

use std::hint::black_box;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use prove::{Plan, Recording, analyse, synthetic};

const SEED: u64 = 1;
const PLANS: [&str; 2] = ["quick", "full"];

fn recording(plan: &str) -> Recording {
    synthetic::recording(if plan == "quick" { Plan::quick() } else { Plan::full() }, SEED)
}

#[divan::bench(args = PLANS, sample_count = 10)]
fn analyses(bencher: Bencher<'_, '_>, plan: &str) {
    let recording = recording(plan);
    let samples: usize = recording.timed.iter().map(|timed| timed.run.cycles.len()).sum();
    bencher.counter(ItemsCount::new(samples)).bench_local(|| analyse(black_box(&recording)));
}

#[divan::bench(args = PLANS, sample_count = 10)]
fn reads(bencher: Bencher<'_, '_>, plan: &str) {
    let mut written = Vec::new();
    recording(plan).write(&mut written).expect("a vector takes everything");
    bencher
        .counter(BytesCount::new(written.len()))
        .bench_local(|| Recording::read(black_box(written.as_slice())));
}

fn main() {
    divan::main();
}
