//! A recording of hot spots, and all that is made of it.

#![no_main]

use hotspots::{Selection, Summary, Weight};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(reading) = hotspots::read("fuzz", bytes) else { return };
    let all = Selection::default();
    let summary = Summary::of(&reading.recording, &all);
    let view = report::hot_spots::HotSpotsView { width: 80, colour: false, top: 3, reasons: 3 };
    let _ = report::hot_spots::terminal("fuzz", &reading.recording, &summary, view);
    let root = hotspots::tree(&reading.recording, &all, Weight::Samples);
    let _ = report::hot_spots::flame_graph(&reading.recording, &root, Weight::Samples);
    let _ = hotspots::folded(&reading.recording, &all, Weight::Away, &mut std::io::sink());
    if reading.damage.is_empty() {
        // What was read whole is written, and read again, as it is.
        let mut again = Vec::new();
        hotspots::write(&reading.recording, &mut again).expect("memory can be written to");
        let again = hotspots::read("again", &again).expect("our own recording");
        assert_eq!(again.recording, reading.recording);
    }
});
