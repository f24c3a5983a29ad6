//! Unpacking a bzImage and laying its ELF kernel out in memory.

#![no_main]

use libfuzzer_sys::fuzz_target;

// Smaller than the real ones, for speed.
const LARGEST: usize = 4 << 20;
const WINDOW: usize = 8 << 20;

fn lay_out(elf: &[u8]) {
    if let Ok((address, bytes, _entry)) = lab::fuzz::flatten(elf, WINDOW) {
        assert!(bytes.len() <= WINDOW);
        assert!(bytes.is_empty() || address < WINDOW as u64);
        assert!(bytes.last() != Some(&0));
    }
}

fuzz_target!(|input: &[u8]| {
    match lab::fuzz::unpack_bzimage(input, LARGEST) {
        Ok(elf) => {
            assert!(elf.len() <= LARGEST);
            lay_out(&elf);
        }
        Err(_) => lay_out(input),
    }
});
