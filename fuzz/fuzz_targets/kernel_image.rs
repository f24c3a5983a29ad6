//! Unpacking a bzImage, laying its ELF kernel or a hypervisor out in memory, and taking the signature off a module.

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

fn lay_out_hypervisor(elf: &[u8]) {
    let Ok(parts) = lab::fuzz::lay_out_hypervisor(elf, 1024) else { return };
    let information = parts[0].0;
    let segments = &parts[1..parts.len() - 2];
    assert!(segments.iter().all(|(address, length)| address + *length as u64 <= information));
}

fuzz_target!(|input: &[u8]| {
    assert!(input.starts_with(&lab::fuzz::without_signature(input)));
    lay_out_hypervisor(input);
    match lab::fuzz::unpack_bzimage(input, LARGEST) {
        Ok(elf) => {
            assert!(elf.len() <= LARGEST);
            lay_out(&elf);
        }
        Err(_) => lay_out(input),
    }
});
