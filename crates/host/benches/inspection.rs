//! How long it takes to look at a host: this machine, and a made-up one with 384 processors.

use criterion::Criterion;
use host::{Inspection, Root, fake};
use std::hint::black_box;

fn inspection(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("host/inspection");
    group.sample_size(20);
    group.bench_function("this machine", |bencher| {
        bencher.iter(|| black_box(Inspection::read(&Root::live())));
    });
    let zen4 = fake::host("zen4");
    if let Some(root) = &zen4 {
        group.bench_function("384 processors, from memory", |bencher| {
            bencher.iter(|| black_box(Inspection::read(root)));
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    inspection(&mut criterion);
    criterion.final_summary();
}
