//! Benchmarks of adding handling times to the histogram, and of quantiles.

use std::hint::black_box;

use divan::Bencher;
use divan::counter::ItemsCount;
use exits::HandlingTime;

const TIMES: u64 = 10_000;

/// Times like those of real exits: most from 400 ns to 2 us, one in a hundred up to 1 ms.
fn times() -> Vec<u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..TIMES)
        .map(|number| {
            // xorshift64, to avoid a dependency.
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

#[divan::bench]
fn add(bencher: Bencher<'_, '_>) {
    let times = times();
    bencher.counter(ItemsCount::new(times.len())).bench_local(|| of(black_box(&times)));
}

#[divan::bench]
fn p99(bencher: Bencher<'_, '_>) {
    let all = of(&times());
    bencher.bench_local(|| black_box(&all).quantile_ns(black_box(0.99)));
}

#[divan::bench]
fn merge(bencher: Bencher<'_, '_>) {
    let all = of(&times());
    bencher.bench_local(|| {
        let mut sum = black_box(&all).clone();
        sum.merge(black_box(&all));
        sum
    });
}

fn main() {
    divan::main();
}
