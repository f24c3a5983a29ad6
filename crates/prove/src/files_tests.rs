//! Tests of the files of a proof: written files can be read, and errors name the reason.

use crate::synthetic::recording;
use crate::{Plan, ReadError, Recording, write_samples};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

fn small() -> Recording {
    recording(Plan { blocks: 2, samples: 10, counted_samples: 10, ..Plan::quick() }, 3)
}

fn bytes(recording: &Recording) -> Vec<u8> {
    let mut bytes = Vec::new();
    recording.write(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_recording_comes_back_as_it_was() {
    let recording = small();
    assert_eq!(Recording::read(&bytes(&recording)[..]).unwrap(), recording);
}

#[test]
fn a_recording_that_was_cut_off_says_so() {
    let bytes = bytes(&small());
    for length in [0, 1, bytes.len() / 2, bytes.len() - 2] {
        let error = Recording::read(&bytes[..length]).unwrap_err();
        assert!(matches!(error, ReadError::Truncated { .. }), "{length}: {error:?}");
    }
}

#[test]
fn a_later_format_is_refused_by_its_number() {
    let error = Recording::read(&br#"{"format": 2, "whatever": []}"#[..]).unwrap_err();
    assert!(matches!(error, ReadError::Newer { found: 2 }), "{error:?}");
    assert!(error.to_string().contains("format 2"));
}

#[test]
fn another_file_is_refused() {
    for other in [&b"hello"[..], b"[1, 2]", br#"{"format": 1}"#] {
        assert!(matches!(Recording::read(other).unwrap_err(), ReadError::Malformed(_)));
    }
}

#[test]
fn every_sample_is_a_row_of_the_table() {
    let recording = small();
    let mut table = tempfile::tempfile().unwrap();
    write_samples(&recording, &mut table).unwrap();
    let reader = SerializedFileReader::new(table).unwrap();
    let metadata = reader.metadata().file_metadata();
    let samples: usize = recording.timed.iter().map(|timed| timed.run.cycles.len()).sum();
    assert_eq!(metadata.num_rows() as usize, samples);
    let facts = metadata.key_value_metadata().unwrap();
    let fact = |key: &str| facts.iter().find(|fact| fact.key == key).and_then(|fact| fact.value.as_deref());
    assert_eq!(fact("exitless.format"), Some("prove-samples"));
    assert_eq!(fact("exitless.format_version"), Some("1"));
    assert_eq!(fact("exitless.version"), Some(recording.version.as_str()));
    assert!(fact("exitless.fingerprint").is_some() && fact("exitless.plan").is_some());

    let mut rows = reader.get_row_iter(None).unwrap();
    for timed in &recording.timed {
        for (place, &cycles) in timed.run.cycles.iter().enumerate() {
            let row = rows.next().unwrap().unwrap();
            assert_eq!(row.get_string(0).unwrap(), timed.run.measure.name());
            assert_eq!(row.get_uint(2).unwrap(), timed.position);
            assert_eq!(row.get_ushort(4).ok(), timed.run.target);
            assert_eq!(row.get_uint(5).unwrap() as usize, place);
            assert_eq!(row.get_ulong(6).unwrap(), cycles);
        }
    }
}
