use std::sync::Arc;

use exits::ExitReason;
use tracepoints::EventFormat;

use super::*;
use crate::perf::attribute::Attribute;

const EXIT: &str = include_str!("../../../tracepoints/tests/fixtures/kvm_exit.format");
/// The sample type of `perf kvm stat record`: identifier, instruction pointer, thread, time, CPU, period, raw.
const SAMPLE_TYPE: u64 = 1 << 16 | 1 | 1 << 1 | 1 << 2 | 1 << 7 | 1 << 8 | 1 << 10;

fn schema() -> Schema {
    schema_of(SAMPLE_TYPE, &[7])
}

/// The schema of exits with this sample type and these IDs.
fn schema_of(sample_type: u64, identities: &[u64]) -> Schema {
    let mut schema = Schema::new();
    schema.add(attribute_of(sample_type, 1635), identities.iter().copied());
    schema.learn(&[("kvm".into(), EventFormat::parse(EXIT).unwrap())]);
    schema
}

/// The tracepoint with this ID.
fn attribute_of(sample_type: u64, number: u64) -> Attribute {
    let mut bytes = [0; 64];
    bytes[0] = 2;
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes[24..32].copy_from_slice(&sample_type.to_le_bytes());
    // `sample_id_all`.
    bytes[40..48].copy_from_slice(&(1u64 << 18).to_le_bytes());
    Attribute::parse(&bytes).unwrap()
}

fn record(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend([0; 2]);
    bytes.extend(((HEADER + body.len()) as u16).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// An exit for HLT of this thread.
fn exit(thread: u32, time_ns: u64, cpu: u32) -> Vec<u8> {
    sample(&[7, 0, u64::from(thread) << 32 | 40, time_ns, u64::from(cpu), 1])
}

/// A sample of an exit with these words before the raw data.
fn sample(words: &[u64]) -> Vec<u8> {
    let mut raw = vec![0; 60];
    raw[..2].copy_from_slice(&1635u16.to_le_bytes());
    raw[8] = 12;
    raw[24] = 1;
    let mut body: Vec<_> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    body.extend((raw.len() as u32).to_le_bytes());
    body.extend(raw);
    record(kind::SAMPLE, &body)
}

/// A record with identification after `body`, as with `sample_id_all`.
fn identified(kind: u32, body: &[u8], cpu: u32) -> Vec<u8> {
    let mut bytes = body.to_vec();
    for word in [0, 0, u64::from(cpu), 7] {
        bytes.extend(u64::to_le_bytes(word));
    }
    record(kind, &bytes)
}

/// Decodes records twice: with memory after them, which allows the fast path, and without.
fn decoded(records: &[Vec<u8>]) -> [Batch; 2] {
    decoded_by(&schema().shared(), records)
}

fn decoded_by(schema: &Arc<Schema>, records: &[Vec<u8>]) -> [Batch; 2] {
    let bytes = records.concat();
    let length = bytes.len();
    [0, 300].map(|behind| {
        let mut bytes = bytes.clone();
        bytes.resize(length + behind, 0xaa);
        let mut batch = Batch::default();
        decode(&Chunk { bytes, length, schema: Some(Arc::clone(schema)) }, &mut batch);
        batch
    })
}

#[test]
fn both_ways_give_the_same_runs() {
    for mut batch in decoded(&[exit(5, 10, 0), exit(6, 11, 1), exit(5, 12, 0)]) {
        assert_eq!(batch.counts, [3]);
        assert_eq!([0, 1, 2].map(|cpu| batch.last_of_cpu.get(cpu)), [Some(12), Some(11), None]);
        let runs: Vec<_> = batch
            .runs()
            .iter()
            .map(|run| (run.thread.thread(), run.thread.process(), run.events.len()))
            .collect();
        assert_eq!(runs, [(5, Some(40), 2), (6, Some(40), 1)]);
        let event = batch.runs()[0].events[1];
        assert_eq!((event.time_ns, event.cpu, event.reason()), (12, 0, ExitReason::vmx(12)));
    }
}

#[test]
fn the_short_way_is_gone_whatever_samples_hold() {
    let (identifier, ip, period) = (1 << 16, 1, 1 << 8);
    let who = 5u64 << 32 | 40;
    for (left_out, words, identities) in [
        (0, vec![7, 0, who, 10, 1, 1], vec![7, 9]),
        // An ID that is assigned long after boot.
        (0, vec![1 << 40, 0, who, 10, 1, 1], vec![1 << 40]),
        // IDs further apart than the table.
        (0, vec![7, 0, who, 10, 1, 1], vec![7, 1 << 40]),
        // An event that is not in the header.
        (0, vec![8, 0, who, 10, 1, 1], vec![7, 9]),
        (ip, vec![7, who, 10, 1, 1], vec![7]),
        (identifier, vec![0, who, 10, 1, 1], vec![]),
        (identifier | ip | period, vec![who, 10, 1], vec![]),
    ] {
        let schema = schema_of(SAMPLE_TYPE & !left_out, &identities).shared();
        for mut batch in decoded_by(&schema, &[sample(&words), sample(&words)]) {
            assert_eq!((batch.counts.clone(), batch.undecoded), (vec![2], 0), "{words:?}");
            let run = &batch.runs()[0];
            assert_eq!((run.thread.thread(), run.thread.process(), run.events.len()), (5, Some(40), 2));
            assert_eq!((run.events[1].time_ns, run.events[1].cpu), (10, 1), "{words:?}");
        }
    }
}

#[test]
fn notes_keep_their_place() {
    let lost = identified(kind::LOST, &[7u64.to_le_bytes(), 9u64.to_le_bytes()].concat(), 1);
    let round = record(kind::FINISHED_ROUND, &[]);
    for mut batch in decoded(&[exit(5, 10, 1), lost, exit(5, 12, 1), round]) {
        assert_eq!(batch.runs().len(), 2);
        let expected = [(1, Note::Lost { cpu: 1, count: 9, after_ns: Some(10) }), (2, Note::Round)];
        assert_eq!(batch.notes, expected);
    }
}

#[test]
fn a_loss_is_that_of_its_own_processor_however_high_its_number() {
    let lost = |cpu| identified(kind::LOST, &[7u64.to_le_bytes(), 9u64.to_le_bytes()].concat(), cpu);
    let records = [exit(5, 10, 1500), lost(476), exit(6, 20, 476), lost(1500)];
    for batch in decoded(&records) {
        let after = |note: &Note| match note {
            Note::Lost { cpu, after_ns, .. } => (*cpu, *after_ns),
            _ => unreachable!(),
        };
        let found: Vec<_> = batch.notes.iter().map(|(_, note)| after(note)).collect();
        assert_eq!(found, [(476, None), (1500, Some(10))]);
        assert_eq!(batch.last_of_cpu.iter().collect::<Vec<_>>(), [(476, 20), (1500, 10)]);
    }
}

#[test]
fn an_event_is_found_by_its_identity_whatever_the_end_of_records_holds() {
    let (id, identifier) = (1 << 6, 1 << 16);
    // The order of `perf_event__synthesize_id_sample` in perf: thread, time, and the rest.
    for (sample_type, words) in [
        (SAMPLE_TYPE & !identifier | id, vec![0, 0, 9, 3]),
        (SAMPLE_TYPE | id, vec![0, 0, 9, 3, 9]),
        (SAMPLE_TYPE, vec![0, 0, 3, 9]),
    ] {
        // Two events, of which the second is the exit.
        let mut schema = Schema::new();
        let other = attribute_of(sample_type, 1);
        schema.add(other, [8].into_iter());
        schema.add(attribute_of(sample_type, 1635), [9].into_iter());
        schema.learn(&[("kvm".into(), EventFormat::parse(EXIT).unwrap())]);
        let body: Vec<u8> = [4].iter().chain(&words).flat_map(|word: &u64| word.to_le_bytes()).collect();
        for batch in decoded_by(&schema.shared(), &[record(kind::LOST_SAMPLES, &body)]) {
            assert_eq!(batch.notes, [(0, Note::LostSamples { exits: true, count: 4 })], "{sample_type:#x}");
        }
    }
}

#[test]
fn names_of_processes_and_losses_by_event() {
    let name = |process: u32, thread: u32| {
        identified(
            kind::COMM,
            &[&process.to_le_bytes()[..], &thread.to_le_bytes(), b"qemu\0\0\0\0"].concat(),
            0,
        )
    };
    let samples = identified(kind::LOST_SAMPLES, &4u64.to_le_bytes(), 0);
    let mut filtered = samples.clone();
    filtered[5] = 0x80;
    for batch in decoded(&[name(40, 40), name(40, 41), samples, filtered]) {
        let notes: Vec<_> = batch.notes.iter().map(|(_, note)| note.clone()).collect();
        let named = Note::Name { process: 40, name: "qemu".into(), time_ns: 0 };
        assert_eq!(notes, [named, Note::LostSamples { exits: true, count: 4 }]);
    }
}

#[test]
fn what_is_no_exit_is_counted_apart() {
    let mut foreign = exit(5, 10, 0);
    // The instruction set is at offset 24 of the raw data, which has 60 bytes.
    let isa = foreign.len() - 60 + 24;
    foreign[isa] = 9;
    let mut unknown = exit(5, 10, 0);
    let id = unknown.len() - 60;
    unknown[id] ^= 1;
    for batch in decoded(&[foreign, unknown]) {
        assert_eq!((batch.undecoded, batch.counts.clone()), (1, vec![1]));
    }
}

#[test]
fn samples_without_an_exit_have_times_too() {
    let other = |time_ns| {
        let mut other = exit(5, time_ns, 0);
        let id = other.len() - 60;
        other[id] ^= 1;
        other
    };
    for batch in decoded(&[other(0), other(4), exit(5, 10, 0), other(90)]) {
        assert_eq!(batch.observed, Some(exits::Span { first_ns: 4, last_ns: 90 }));
    }
    assert!(decoded(&[other(0), exit(5, 10, 0)]).iter().all(|batch| batch.observed.is_none()));
}
