//! libvirt's XML: read, changed in one way that the first two bytes choose, converted to QEMU's arguments and back.

#![no_main]

use domain::convert::{to_arguments, to_xml};
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
    let arguments = to_arguments(&text).expect("what can be read can be converted");
    let process = Text::new("process", format!("{}\0", arguments.arguments.join("\0")));
    // A program of any name may stand in the XML, and what is not called QEMU is not read as such.
    if let Ok(back) = to_xml(&process, &NoFiles) {
        read(&Text::new("back", back.text), &NoFiles).expect("what is written is XML");
    }
});
