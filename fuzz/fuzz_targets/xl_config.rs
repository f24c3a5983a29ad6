//! A definition for `xl create`: read and judged.

#![no_main]

use domain::Text;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = Text::new("fuzzed", bytes);
    let Ok(vm) = domain::xl::read(&text) else { return };
    let devices = vm.devices.iter().map(|device| &device.place);
    for place in devices.chain(vm.other.iter().map(|set| &set.place)) {
        assert!(place.start < place.end && place.end <= bytes.len());
    }
});
