//! A recording from anywhere: read, analysed, shown, and written again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use prove::{Recording, analyse};

fuzz_target!(|input: &[u8]| {
    let Ok(recording) = Recording::read(input) else { return };
    for counted in &recording.counted {
        for time in counted.handling.values() {
            // Figures in a file may contradict each other.
            let _ = time.quantile_ns(0.5);
        }
    }
    if let Ok(outcome) = analyse(&recording) {
        assert!(!report::prove::terminal(&outcome, 80, false).is_empty());
        assert!(!report::prove::page(&outcome, &recording).is_empty());
    }
    let mut written = Vec::new();
    recording.write(&mut written).expect("a vector takes everything");
    assert_eq!(Recording::read(written.as_slice()).expect("what was written can be read"), recording);
});
