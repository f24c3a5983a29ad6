//! libvirt's XML: read, changed in one way that the first two bytes choose.

#![no_main]

use domain::libvirt::{apply, read};
use domain::{NoFiles, Text};
use exitless_fuzz::definitions::change;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let [kind, device, bytes @ ..] = bytes else { return };
    let text = Text::new("fuzzed", bytes);
    let Ok(before) = read(&text, &NoFiles) else { return };
    for device in &before.devices {
        assert!(device.place.start <= device.place.end && device.place.end <= bytes.len());
    }
    let change = change(*kind, *device);
    let edited = apply(&text, std::slice::from_ref(&change)).expect("what can be read can be changed");
    assert!(edited.refused.is_empty() || edited.bytes == bytes, "{change:?}: a refusal changed the text");
    let mut rebuilt = bytes.to_vec();
    for edit in edited.edits.iter().rev() {
        rebuilt.splice(edit.start..edit.end, edit.new.iter().copied());
    }
    assert_eq!(rebuilt, edited.bytes, "{change:?}");
    read(&Text::new("changed", edited.bytes), &NoFiles).expect("changed XML is XML still");
});
