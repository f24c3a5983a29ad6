//! The `format` file of a tracepoint: its fields, its tables of names, and the numbering of inhibit reasons in it.

#![no_main]

use exits::InhibitNumbering;
use libfuzzer_sys::fuzz_target;
use live::EventFormat;

fuzz_target!(|text: &str| {
    let Ok(format) = EventFormat::parse(text) else { return };
    for field in &format.fields {
        // Any bytes do as a record.
        if let Some(value) = field.read(text.as_bytes()) {
            assert!(
                field.signed || field.size == 8 || value >> (8 * field.size) == 0,
                "{field:?}: {value:#x}"
            );
        }
        assert_eq!(format.field(&field.name).map(|first| &first.name), Some(&field.name));
    }
    let symbols = format.symbols().count();
    assert!(symbols <= text.len() / 2);
    if let Some(numbering) = InhibitNumbering::from_print_fmt(&format.print_fmt) {
        assert!(numbering.is_stated());
        for number in 0..64 {
            if let Some(reason) = numbering.reason(number) {
                assert!(numbering.number(reason).is_some());
            }
        }
    }
});
