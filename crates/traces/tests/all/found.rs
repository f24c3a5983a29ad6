//! Files found by fuzzing: each is read without a panic, with the same result on any number of threads.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use traces::{Error, Options, Reading, Source};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/found")
}

fn read(path: &Path, threads: usize) -> Result<Reading, Error> {
    let options = Options { threads: NonZeroUsize::new(threads), ..Options::default() };
    traces::read(&Source::from(path), &options, &mut ())
}

fn found(name: &str) -> Reading {
    read(&folder().join(name), 1).unwrap()
}

#[test]
fn all_of_them_are_read_to_the_same_end() {
    let files: Vec<_> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty());
    for file in files {
        let [one, two] = [1, 2].map(|threads| read(&file, threads).map_err(|error| error.to_string()));
        assert_eq!(one, two, "{}", file.display());
    }
}

/// Rounding the length of a section up to a multiple of eight overflowed 32 bits.
#[test]
fn a_section_of_almost_4_gib_is_missing() {
    let damage = found("perf-section-of-4-gib").damage.unwrap();
    assert!(damage.what.contains("bytes of a section are missing"), "{damage}");
}

/// The start of a section is beyond the end of the file. An option before it is damaged too, and so is the first place.
#[test]
fn no_damage_lies_behind_the_end_of_the_file() {
    let reading = found("trace-dat-section-behind-the-end");
    let damage = reading.damage.unwrap();
    assert!(damage.offset < reading.origin.bytes, "{damage}");
    assert!(damage.what.contains("a buffer of 196608 CPUs"), "{damage}");
}
