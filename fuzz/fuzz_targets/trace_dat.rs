//! A recording of trace-cmd, or anything else, from its first byte on.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| exitless_fuzz::read_recording(bytes));
