//! Archives of hosts: unpacked bytes, so that what is inside can be changed; and the inspection of what is in them.

#![no_main]

use std::path::Path;

use host::Inspection;
use host::snapshot::{self, Snapshot};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let packed = zstd::encode_all(bytes, 1).expect("memory");
    let Ok(opened) = snapshot::read(packed.as_slice(), Path::new("archive")) else { return };
    let first = Inspection::read(&opened.root).expect("a host");
    // What was read of it is enough to find the same again.
    let again = Snapshot::take(opened.root, "fuzz").expect("a host");
    assert_eq!(again.inspection(), &first);
    let mut written = Vec::new();
    again.write(&mut written).expect("memory");
    let opened = snapshot::read(written.as_slice(), Path::new("again")).expect("an archive of our own");
    assert!(opened.warnings.is_empty(), "{:?}", opened.warnings);
    if again.manifest().removed.is_empty() {
        assert_eq!(Inspection::read(&opened.root).expect("a host"), first);
    }
});
