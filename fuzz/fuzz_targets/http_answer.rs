//! What a web server answers, whole and in pieces, of as many bytes as the first byte says.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&piece, bytes)) = input.split_first() else { return };
    let pieces = vec![piece.max(1); bytes.len() / usize::from(piece.max(1))];
    load::fuzzing::http_answers(bytes, &pieces);
});
