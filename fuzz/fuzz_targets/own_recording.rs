//! exitless's own recordings: Arrow streams of exits, and profiles.

#![no_main]

use exitless_fuzz::consistent;
use libfuzzer_sys::fuzz_target;
use traces::exitless::{Header, Packing, Summary, Writer, write_profile};
use traces::{AccessRecord, ExitRecord, Options, Sink, read_bytes};

/// Writes what it is given anew.
struct Copy {
    writer: Writer<Vec<u8>>,
    exits: u64,
}

impl Sink for Copy {
    const WANTS_EXITS: bool = false;
    const WANTS_ACCESSES: bool = true;

    fn exit(&mut self, exit: &ExitRecord) {
        self.exit_with(exit, &[]);
    }

    fn exit_with(&mut self, exit: &ExitRecord, accesses: &[AccessRecord]) {
        self.exits += 1;
        self.writer.exit_with(exit, accesses);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let header = Header::default();
    let mut copy = Copy { writer: Writer::new(Vec::new(), &header).expect("memory takes it"), exits: 0 };
    let Ok(reading) = read_bytes(bytes, &Options::default(), &mut copy) else { return };
    let packed = bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || bytes.starts_with(&[0x1f, 0x8b]);
    if let Some(damage) = reading.damage.as_ref().filter(|_| !packed) {
        assert!(damage.offset <= bytes.len() as u64, "{damage} of {} bytes", bytes.len());
    }
    let profile = &reading.profile;
    // A profile says what it likes; exits that were read one by one add up.
    if reading.origin.format == traces::Format::Exits {
        assert_eq!(profile.total(), copy.exits, "the sink gets every exit");
        consistent(profile);
    }
    copy.writer.finish(Summary::default()).expect("memory takes it");
    let mut written = Vec::new();
    write_profile(&mut written, &header, profile, Packing::None).expect("memory takes it");
    let again = read_bytes(&written, &Options::default(), &mut ()).expect("what was written can be read");
    assert!(again.profile == *profile, "a profile is read as it was written");
});
