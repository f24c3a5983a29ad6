//! Text of tracefs or of `trace-cmd report`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| exitless_fuzz::read_recording(bytes));
