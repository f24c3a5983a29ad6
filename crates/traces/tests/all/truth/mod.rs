//! Recordings with known contents, see `fixtures/TRACE-CMD.md`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use exits::ExitReason;
use traces::{Error, Options, Reading, Source};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The path of a compressed recording.
pub(crate) fn packed(name: &str) -> PathBuf {
    folder().join(format!("{name}.zst"))
}

/// The decompressed recording.
pub(crate) fn bytes(name: &str) -> Vec<u8> {
    zstd::decode_all(&std::fs::read(packed(name)).unwrap()[..]).unwrap()
}

/// Reads a compressed recording.
pub(crate) fn read(name: &str) -> Reading {
    traces::read(&Source::from(packed(name).as_path()), &Options::default(), &mut ()).unwrap()
}

/// Reads bytes that may be a recording.
pub(crate) fn read_bytes(bytes: &[u8]) -> Result<Reading, Error> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    traces::read(&Source::from(file.path()), &Options::default(), &mut ())
}

/// The numbers that an independent program found in trace-cmd's text output for a recording.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) lost: u64,
    /// The number of exits; of those that are followed by an entry, their number and their total handling time.
    pub(crate) reasons: BTreeMap<ExitReason, (u64, Option<(u64, u128)>)>,
}

/// The known numbers of all recordings, by name.
pub(crate) fn truths() -> BTreeMap<String, Truth> {
    let mut truths: BTreeMap<String, Truth> = BTreeMap::new();
    for line in std::fs::read_to_string(folder().join("trace-cmd/truth.txt")).unwrap().lines() {
        let words: Vec<_> = line.split(' ').collect();
        let truth = truths.entry(words[0].to_owned()).or_default();
        if words[1] == "lost" {
            truth.lost = words[2].parse().unwrap();
        } else {
            let times = words[3].parse().ok().zip(words[4].parse().ok());
            truth.reasons.insert(
                words[1].replace("_excp", " excp").parse().unwrap(),
                (words[2].parse().unwrap(), times),
            );
        }
    }
    truths
}

/// Compares a reading with the known numbers.
pub(crate) fn assert_true(name: &str, reading: &Reading, truth: &Truth) {
    let reasons: BTreeMap<_, _> = reading.profile.reasons().into_iter().collect();
    assert_eq!(reasons.keys().collect::<Vec<_>>(), truth.reasons.keys().collect::<Vec<_>>(), "{name}");
    for (reason, (count, times)) in &truth.reasons {
        let exits = &reasons[reason];
        assert_eq!(exits.count, *count, "{name}: {reason}");
        if let Some((pairs, total_ns)) = *times {
            let handling = &exits.handling;
            assert_eq!(
                (handling.count(), u128::from(handling.total_ns())),
                (pairs, total_ns),
                "{name}: {reason}"
            );
        }
    }
    assert_eq!(reading.profile.losses.lost_events, truth.lost, "{name}");
    assert_eq!(reading.profile.losses.undecoded, 0, "{name}");
    assert_eq!(reading.damage, None, "{name}");
}
