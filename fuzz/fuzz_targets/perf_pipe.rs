//! `perf.data` from a pipe: whole, or records behind sound ones that describe the events.

#![no_main]

use exitless_fuzz::read_recording;
use libfuzzer_sys::fuzz_target;

const MAGIC: &[u8] = b"PERFILE2";
const SOUND: &[u8] = include_bytes!("../seeds/perf_pipe/pipe");

fuzz_target!(|bytes: &[u8]| {
    if bytes.starts_with(MAGIC) { read_recording(bytes) } else { read_recording(&[SOUND, bytes].concat()) }
});
