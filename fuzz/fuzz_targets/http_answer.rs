//! What a web server answers, whole and in pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], &[u8])| {
    experiment::load::fuzzing::http_answers(input.1, input.0);
});
