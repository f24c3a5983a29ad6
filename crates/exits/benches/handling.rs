//! Adding handling times to their histogram, and quantiles out of it.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use exits::HandlingTime;

const TIMES: u64 = 10_000;

/// Times as exits have them: most between 400 ns and 2 us, one in a hundred up to a millisecond.
fn times() -> Vec<u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..TIMES)
        .map(|number| {
            // xorshift64, so that no crate is needed for it.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            if number % 100 == 0 { state % 1_000_000 } else { 400 + state % 1_600 }
        })
        .collect()
}

fn of(times: &[u64]) -> HandlingTime {
    let mut all = HandlingTime::new();
    times.iter().for_each(|&ns| all.add(ns));
    all
}

fn handling(criterion: &mut Criterion) {
    let times = times();
    let all = of(&times);
    let mut group = criterion.benchmark_group("handling time");
    group.throughput(Throughput::Elements(TIMES));
    group.bench_function("add", |bencher| bencher.iter(|| of(black_box(&times))));
    group.throughput(Throughput::Elements(1));
    group.bench_function("p99", |bencher| bencher.iter(|| black_box(&all).quantile_ns(black_box(0.99))));
    group.bench_function("merge", |bencher| {
        bencher.iter(|| {
            let mut sum = black_box(&all).clone();
            sum.merge(black_box(&all));
            sum
        });
    });
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    handling(&mut criterion);
    criterion.final_summary();
}
