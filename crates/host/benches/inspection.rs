//! Benchmarks of the inspection of a host: this machine, and a fake one with 384 processors.

use divan::Bencher;
use host::{Error, Inspection, Root, fake};

#[divan::bench(sample_count = 20)]
fn this_machine() -> Result<Inspection, Error> {
    Inspection::read(&Root::live())
}

#[divan::bench(sample_count = 20)]
fn processors_384_from_memory(bencher: Bencher<'_, '_>) {
    let root = fake::host("zen4").expect("this host comes along");
    bencher.bench_local(|| Inspection::read(&root));
}

fn main() {
    divan::main();
}
