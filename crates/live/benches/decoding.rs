//! From the bytes of a ring buffer to records and fields, and from a `format` file to its fields.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use live::{EventFormat, Record, records};

const EXIT: &str = include_str!("../../tracepoints/tests/fixtures/kvm_exit.format");
const ALL: &str = include_str!("../../tracepoints/tests/fixtures/all-of-kvm.formats");

/// Exits and entries in one drain.
const SAMPLES: u32 = 20_000;

const PERF_RECORD_SAMPLE: u32 = 9;

/// What the kernel writes for `count` exits: header, pid, tid, time, length, the tracepoint's record, padding.
fn ring(format: &EventFormat, count: u32) -> Vec<u8> {
    let raw_size = format.fields.iter().map(|field| field.offset + field.size).max().unwrap_or(0);
    let size = (28 + raw_size).next_multiple_of(8);
    let mut bytes = Vec::new();
    for number in 0..count {
        let end = bytes.len() + size;
        bytes.extend(PERF_RECORD_SAMPLE.to_ne_bytes());
        bytes.extend(0u16.to_ne_bytes());
        bytes.extend(u16::try_from(size).expect("a record of 16 bits").to_ne_bytes());
        bytes.extend([7u32, 7].map(u32::to_ne_bytes).concat());
        bytes.extend((u64::from(number) * 700).to_ne_bytes());
        bytes.extend(u32::try_from(end - bytes.len() - 4).expect("a length of 32 bits").to_ne_bytes());
        bytes.extend(format.id.to_ne_bytes());
        bytes.resize(end, 1);
    }
    bytes
}

fn decode(criterion: &mut Criterion) {
    let format = EventFormat::parse(EXIT).expect("the fixture is a format");
    let field = |name| format.field(name).expect("kvm_exit has it");
    let wanted = ["common_type", "exit_reason", "isa"].map(field);
    let bytes = ring(&format, SAMPLES);
    assert_eq!(
        records(&bytes).filter(|record| matches!(record, Record::Sample(_))).count(),
        SAMPLES as usize
    );

    let mut group = criterion.benchmark_group("perf ring");
    group.throughput(Throughput::Elements(u64::from(SAMPLES)));
    group.bench_function("records", |bencher| bencher.iter(|| records(black_box(&bytes)).count()));
    group.bench_function("records and three fields each", |bencher| {
        bencher.iter(|| {
            let mut sum = 0u64;
            for record in records(black_box(&bytes)) {
                if let Record::Sample(sample) = record {
                    for field in wanted {
                        sum = sum.wrapping_add(field.read(sample.raw).unwrap_or(0));
                    }
                }
            }
            sum
        });
    });
    group.finish();
}

fn parse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("event format");
    group.throughput(Throughput::Bytes(EXIT.len() as u64));
    group.bench_function("kvm_exit", |bencher| bencher.iter(|| EventFormat::parse(black_box(EXIT))));
    let each: Vec<String> = ALL
        .split("name: ")
        .filter(|text| !text.trim().is_empty())
        .map(|text| format!("name: {text}"))
        .collect();
    assert!(each.iter().all(|text| EventFormat::parse(text).is_ok()));
    group.throughput(Throughput::Elements(each.len() as u64));
    group.bench_function("every event of KVM", |bencher| {
        bencher.iter(|| black_box(&each).iter().filter_map(|text| EventFormat::parse(text).ok()).count());
    });
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    decode(&mut criterion);
    parse(&mut criterion);
    criterion.final_summary();
}
