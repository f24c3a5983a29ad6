//! Benchmarks: from the bytes of a ring buffer to records and fields, and from a `format` file to its fields.

use std::hint::black_box;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use live::{EventFormat, Record, records};

const EXIT: &str = include_str!("../../tracepoints/tests/fixtures/kvm_exit.format");
const ALL: &str = include_str!("../../tracepoints/tests/fixtures/all-of-kvm.formats");

/// The number of exits and entries in one drain.
const SAMPLES: u32 = 20_000;

const PERF_RECORD_SAMPLE: u32 = 9;

/// The kernel's records for `count` exits: header, pid, tid, time, length, the tracepoint's record, padding.
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

fn exit_format() -> EventFormat {
    EventFormat::parse(EXIT).expect("the fixture is a format")
}

/// A ring that holds [`SAMPLES`] samples.
fn full_ring(format: &EventFormat) -> Vec<u8> {
    let bytes = ring(format, SAMPLES);
    let samples = records(&bytes).filter(|record| matches!(record, Record::Sample(_))).count();
    assert_eq!(samples, SAMPLES as usize);
    bytes
}

#[divan::bench]
fn ring_to_records(bencher: Bencher<'_, '_>) {
    let bytes = full_ring(&exit_format());
    bencher.counter(ItemsCount::new(SAMPLES)).bench_local(|| records(black_box(&bytes)).count());
}

#[divan::bench]
fn ring_to_records_and_three_fields_each(bencher: Bencher<'_, '_>) {
    let format = exit_format();
    let wanted =
        ["common_type", "exit_reason", "isa"].map(|name| format.field(name).expect("kvm_exit has it"));
    let bytes = full_ring(&format);
    bencher.counter(ItemsCount::new(SAMPLES)).bench_local(|| {
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
}

#[divan::bench]
fn format_of_kvm_exit(bencher: Bencher<'_, '_>) {
    bencher.counter(BytesCount::new(EXIT.len())).bench_local(|| EventFormat::parse(black_box(EXIT)));
}

#[divan::bench]
fn formats_of_every_event_of_kvm(bencher: Bencher<'_, '_>) {
    let each: Vec<String> = ALL
        .split("name: ")
        .filter(|text| !text.trim().is_empty())
        .map(|text| format!("name: {text}"))
        .collect();
    assert!(each.iter().all(|text| EventFormat::parse(text).is_ok()));
    bencher
        .counter(ItemsCount::new(each.len()))
        .bench_local(|| black_box(&each).iter().filter_map(|text| EventFormat::parse(text).ok()).count());
}

fn main() {
    divan::main();
}
