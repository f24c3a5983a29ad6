use super::*;
use crate::input::Failure;
use crate::tracing_data::written::tracing_data;
use proptest::prelude::*;

const EXIT: &str = include_str!("../../../tracepoints/tests/fixtures/kvm_exit.format");

fn record(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend([0; 2]);
    bytes.extend(((HEADER + body.len()) as u16).to_le_bytes());
    bytes.extend(body);
    bytes
}

fn records(bytes: &[u8], length: Option<u64>) -> Records {
    let reader = Box::new(std::io::Cursor::new(bytes.to_vec()));
    Records::new(reader, Failure::default(), 100, length, Schema::new())
}

/// All bytes of the chunks.
fn all(records: &mut Records) -> Vec<u8> {
    let (mut chunk, mut all) = (Chunk::default(), Vec::new());
    while records.next(&mut chunk) {
        all.extend_from_slice(&chunk.bytes[..chunk.length]);
    }
    assert!(records.is_done());
    all
}

fn packed(plain: &[u8], pieces: usize) -> Vec<Vec<u8>> {
    let stream = zstd::encode_all(plain, 1).unwrap();
    stream.chunks(stream.len().div_ceil(pieces)).map(|piece| record(kind::COMPRESSED, piece)).collect()
}

#[test]
fn records_come_out_as_they_went_in() {
    let bytes: Vec<u8> = (0..60_000).flat_map(|n: u32| record(9, &n.to_le_bytes())).collect();
    let mut records = records(&bytes, Some(bytes.len() as u64));
    assert!(all(&mut records) == bytes);
    assert_eq!(records.damage, None);
    assert_eq!(records.position(), 100 + bytes.len() as u64);
}

#[test]
fn sections_in_the_stream_are_taken_out() {
    let block = tracing_data("kvm", &[EXIT]);
    let mut bytes = record(9, &[1; 8]);
    bytes.extend(record(kind::HEADER_TRACING_DATA, &(block.len() as u32).to_le_bytes()));
    bytes.extend(&block);
    bytes.resize(bytes.len() + block.len().next_multiple_of(8) - block.len(), 0);
    bytes.extend(record(kind::AUXTRACE, &20u64.to_le_bytes()));
    bytes.extend([0xee; 20]);
    bytes.extend(record(9, &[2; 8]));
    let mut records = records(&bytes, None);
    assert_eq!(all(&mut records), [record(9, &[1; 8]), record(9, &[2; 8])].concat());
    assert_eq!(records.damage, None);
    assert!(records.schema.decoder.has_exits());
}

#[test]
fn descriptions_that_cannot_be_read_are_told_once() {
    let section = |block: &[u8]| {
        let mut bytes = record(kind::HEADER_TRACING_DATA, &(block.len() as u32).to_le_bytes());
        bytes.extend(block);
        bytes.resize(bytes.len() + block.len().next_multiple_of(8) - block.len(), 0);
        bytes
    };
    let whole = tracing_data("kvm", &["nonsense", EXIT]);
    let cut = &whole[..whole.len() - 40];
    let mut records = records(&[section(b"foreign"), section(cut), section(&whole)].concat().repeat(3), None);
    assert!(all(&mut records).is_empty());
    assert_eq!(records.damage, None);
    let [foreign, early] = &records.warnings[..] else { panic!("{:?}", records.warnings) };
    assert!(foreign.contains("64-bit x86") && early.contains("end early"), "{foreign}, {early}");
    assert!(records.misunderstood.told().unwrap().ends_with(" and 1 more"));
}

#[test]
fn packed_records_come_out_between_those_around_them() {
    let inner: Vec<u8> = (0..90_000).flat_map(|n: u32| record(9, &n.to_le_bytes())).collect();
    let round = record(kind::FINISHED_ROUND, &[]);
    let mut bytes = Vec::new();
    for piece in packed(&inner, 7) {
        bytes.extend(piece);
        bytes.extend(&round);
    }
    let mut records = records(&bytes, None);
    let out = all(&mut records);
    assert_eq!(records.damage, None);
    let rounds = out.chunks(12).count();
    assert!(rounds > 90_000);
    let mut rest = &out[..];
    let (mut samples, mut rounds) = (Vec::new(), 0);
    while let Some((kind, size)) = record_at(rest) {
        let (record, behind) = rest.split_at(size);
        if kind == 9 {
            samples.extend_from_slice(record);
        } else {
            rounds += 1;
        }
        rest = behind;
    }
    assert!(samples == inner);
    assert_eq!(rounds, 7);
}

#[test]
fn every_kind_of_end_is_told() {
    let mut bytes = record(9, &[1; 8]);
    bytes.extend(&record(9, &[2; 8])[..10]);
    let mut cut = records(&bytes, None);
    assert_eq!(all(&mut cut), record(9, &[1; 8]));
    assert_eq!(cut.damage.unwrap(), Damage { offset: 116, what: "a record is cut off".into() });
    let mut short = records(&bytes[..16], Some(50));
    all(&mut short);
    assert_eq!(short.damage.unwrap().what, "it ends here, 34 bytes of records are missing");
    let mut zeros = records(&[record(9, &[1; 8]), vec![0; 32]].concat(), None);
    assert_eq!(all(&mut zeros).len(), 16);
    assert_eq!(zeros.damage.unwrap().offset, 116);
    let mut lying = records(&record(kind::AUXTRACE, &u64::MAX.to_le_bytes()), None);
    all(&mut lying);
    assert!(lying.damage.unwrap().what.contains("bytes of a section are missing"));
}

proptest! {
    #[test]
    fn no_bytes_panic_or_never_end(
        kinds in proptest::collection::vec((60u32..90, proptest::collection::vec(any::<u8>(), 0..40)), 0..20),
        tail in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut bytes: Vec<u8> = kinds.iter().flat_map(|(kind, body)| record(*kind, body)).collect();
        bytes.extend(tail);
        all(&mut records(&bytes, None));
    }
}

#[test]
fn a_packed_record_that_ends_in_the_middle_of_another_is_told() {
    let mut packed = packed(&record(9, &[7; 40])[..30], 1);
    let mut records = records(&packed.remove(0), None);
    assert!(all(&mut records).is_empty());
    assert_eq!(records.damage.unwrap().what, "a record is cut off");
}

#[test]
fn many_sections_between_records_are_taken_out() {
    let (sample, empty) = (record(9, &[1; 8]), record(kind::AUXTRACE, &0u64.to_le_bytes()));
    let bytes = [sample.clone(), empty.repeat(40_000)].concat().repeat(2);
    let mut records = records(&bytes, None);
    assert_eq!(all(&mut records), sample.repeat(2));
    assert_eq!(records.damage, None);
}

/// A record that describes an event with these IDs.
fn described(identities: &[u64]) -> Vec<u8> {
    let mut body = [0; 64];
    body[0] = 2;
    body[4] = 64;
    let identities = identities.iter().flat_map(|identity| identity.to_le_bytes());
    record(kind::HEADER_ATTR, &body.into_iter().chain(identities).collect::<Vec<u8>>())
}

#[test]
fn descriptions_of_events_are_copied_once_for_a_chunk() {
    let mut bytes: Vec<u8> = (0..5_000).flat_map(|identity| described(&[identity])).collect();
    bytes.extend(record(9, &[1; 8]));
    let mut records = records(&bytes, None);
    let mut chunk = Chunk::default();
    while records.next(&mut chunk) {}
    assert_eq!(records.damage, None);
    assert_eq!(records.schema.attributes.len(), 5_000);
    assert!(records.copies <= 1 + bytes.len() / CHUNK, "{}", records.copies);
    // The last chunk's schema has all events.
    let last = chunk.schema.unwrap();
    assert_eq!((last.attributes.len(), last.identities()), (5_000, 5_000));
}

#[test]
fn more_events_than_any_recording_has_are_damage() {
    let many = described(&[]).repeat(MOST_ATTRIBUTES);
    let mut fits = records(&many, None);
    all(&mut fits);
    assert_eq!(fits.damage, None);
    let mut too_many = records(&[many.clone(), described(&[]), record(9, &[1; 8])].concat(), None);
    assert_eq!(all(&mut too_many), many);
    let damage = too_many.damage.unwrap();
    assert_eq!(
        (damage.offset, &damage.what[..]),
        (100 + many.len() as u64, "it describes more than 65,536 events")
    );

    const EACH: u64 = 8_000;
    let identities = |event: u64| described(&(event * EACH..(event + 1) * EACH).collect::<Vec<u64>>());
    let fit = MOST_IDENTITIES as u64 / EACH;
    let mut bytes: Vec<u8> = (0..fit).flat_map(identities).collect();
    bytes.extend(identities(fit));
    let mut records = records(&bytes, None);
    all(&mut records);
    assert_eq!(records.damage.unwrap().what, "its events have more than 1,048,576 identities");
    assert_eq!(records.schema.attributes.len() as u64, fit);
}

#[test]
fn events_described_between_all_other_records_are_damage() {
    // The bytes after a section are a new chunk.
    let round = [described(&[1]), record(9, &[1; 8]), record(kind::AUXTRACE, &0u64.to_le_bytes())].concat();
    let mut records = records(&round.repeat(2 * MOST_COPIES), None);
    all(&mut records);
    assert_eq!(records.damage.unwrap().what, "it describes events over and over again");
    assert!(records.copies <= MOST_COPIES);
}
