//! Type information of a kernel, and of a module that goes on where the kernel's ends.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], &[u8])| {
    live::read_type_information(input.0, input.1);
    live::read_type_information(input.0, input.0);
});
