//! What an MQTT broker sends, whole and in pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], &[u8])| {
    experiment::load::fuzzing::mqtt_packets(input.1, input.0);
});
