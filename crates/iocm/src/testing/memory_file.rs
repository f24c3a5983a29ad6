//! Memory that a front-end shares.

use std::fs::File;

/// A file in memory of so many bytes, which can be made shorter.
///
/// # Panics
/// When the kernel gives none.
#[must_use]
pub fn memory_file(size: u64) -> File {
    if cfg!(miri) {
        // What is mapped there is no file's.
        return File::open("/dev/null").expect("a file");
    }
    let file = rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC);
    let file = File::from(file.expect("a file in memory"));
    file.set_len(size).expect("room");
    file
}
