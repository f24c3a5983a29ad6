//! Reading and analysing a recording of the full plan.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use experiment::prove::{Plan, Recording, analyse, synthetic};

const SEED: u64 = 1;

fn analysis(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("recording");
    group.sample_size(10);
    for (name, plan) in [("quick", Plan::quick()), ("full", Plan::full())] {
        let recording = synthetic::recording(plan, SEED);
        let samples: usize = recording.timed.iter().map(|timed| timed.run.cycles.len()).sum();
        let mut written = Vec::new();
        recording.write(&mut written).expect("a vector takes everything");

        group.throughput(Throughput::Elements(samples as u64));
        group.bench_function(format!("analyse, {name} plan"), |bencher| {
            bencher.iter(|| analyse(black_box(&recording)));
        });
        group.throughput(Throughput::Bytes(written.len() as u64));
        group.bench_function(format!("read, {name} plan"), |bencher| {
            bencher.iter(|| Recording::read(black_box(written.as_slice())));
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    analysis(&mut criterion);
    criterion.final_summary();
}
