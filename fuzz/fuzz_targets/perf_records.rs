//! Records of a perf ring buffer, and the fields of `kvm_exit` in them.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use live::{EventFormat, Record, records};

/// `struct perf_event_header`.
const HEADER: usize = 8;

static EXIT: LazyLock<EventFormat> = LazyLock::new(|| {
    EventFormat::parse(include_str!("../../crates/tracepoints/tests/fixtures/kvm_exit.format"))
        .expect("a format")
});

fuzz_target!(|bytes: &[u8]| {
    let all: Vec<_> = records(bytes).collect();
    assert!(all.len() <= bytes.len() / HEADER + 1);
    for (index, record) in all.iter().enumerate() {
        match record {
            Record::Malformed { offset } => {
                assert!(*offset < bytes.len());
                assert_eq!(index + 1, all.len(), "nothing follows bytes that cannot be read");
            }
            Record::Sample(sample) => {
                assert!(bytes.as_ptr_range().contains(&sample.raw.as_ptr()) || sample.raw.is_empty());
                for field in &EXIT.fields {
                    let fits = field.is_number() && field.offset + field.size <= sample.raw.len();
                    assert_eq!(field.read(sample.raw).is_some(), fits, "{field:?}");
                }
            }
            Record::Lost(_) | Record::Other(_) => {}
        }
    }
});
