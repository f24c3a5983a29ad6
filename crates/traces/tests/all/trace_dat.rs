//! Real recordings of trace-cmd, intact and damaged. `fixtures/TRACE-CMD.md` tells how they were made.

use std::num::NonZeroUsize;

use crate::truth::{Truth, assert_true, bytes, packed, read, read_bytes, truths};
use exits::Vcpu;
use proptest::prelude::*;
use traces::{Error, Format, Options, Reading, Source};

/// All recordings, with the offset of the first event.
const RECORDINGS: [(&str, usize); 9] = [
    ("kvm.dat", 0x156000),
    ("zstd.dat", 0x4000),
    ("plain.dat", 0x18000),
    ("v6-instance.dat", 0x19000),
    ("instances.dat", 0x1000),
    ("tsc2nsec.dat", 0x1000),
    ("pages-16k.dat", 0x4000),
    ("losses.dat", 0x1000),
    ("zlib-extract.dat", 0x1000),
];

fn path(name: &str) -> String {
    format!("trace-cmd/{name}")
}

fn find(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).position(|window| window == what).unwrap()
}

fn replace(bytes: &mut [u8], what: &[u8], by: &[u8]) {
    let at = find(bytes, what);
    bytes[at..at + by.len()].copy_from_slice(by);
}

/// The offset of the last options, which refer to the last buffer, from the option that ends those before.
fn last_options(bytes: &[u8]) -> usize {
    let done = [0, 0, 8, 0, 0, 0];
    let at = (0..bytes.len() - 14).filter(|&at| bytes[at..].starts_with(&done));
    let offsets = at.map(|at| u64::from_le_bytes(*bytes[at + 6..].first_chunk().unwrap()));
    offsets.filter(|&offset| offset < bytes.len() as u64).max().unwrap() as usize
}

fn error(bytes: &[u8]) -> String {
    read_bytes(bytes).unwrap_err().to_string()
}

#[test]
fn a_recording_lasts_from_its_first_event_to_its_last_of_interest_or_not() {
    // `kvm_update_master_clock` and `kvm_unmap_hva_range`, 10 ms after the last exit.
    let span = Some(exits::Span { first_ns: 19_476_169_715, last_ns: 19_784_304_225 });
    for name in ["plain.dat", "plain.report-t.txt"] {
        assert_eq!(read(&path(name)).profile.span, span, "{name}");
    }
}

#[test]
fn counts_times_and_losses_are_those_that_trace_cmd_reports() {
    let truths = truths();
    for (name, _) in RECORDINGS {
        let reading = read(&path(name));
        assert_true(name, &reading, &truths[name]);
        assert_eq!(reading.profile.losses.out_of_order, 0, "{name}");
        assert_eq!(reading.origin.format, Format::TraceDat);
        assert_eq!(reading.origin.bytes, bytes(&path(name)).len() as u64);
        assert!(reading.origin.kernel.unwrap().ends_with("+deb13-cloud-amd64"));
        assert_eq!(reading.origin.version.as_deref(), Some("3.3.1 not-a-git-repo"));
    }
}

#[test]
fn every_event_is_counted() {
    // The counts by event in the output of `trace-cmd report`.
    let counts = [
        ("kvm:kvm_exit", 3665),
        ("kvm:kvm_entry", 3665),
        ("kvm:kvm_emulate_insn", 2803),
        ("kvm:kvm_fpu", 1882),
        ("kvm:kvm_msr", 1263),
        ("kvm:kvm_apic", 1052),
        ("kvm:kvm_userspace_exit", 941),
        ("kvm:kvm_mmio", 637),
        ("kvm:kvm_pio", 535),
        ("kvm:kvm_page_fault", 415),
        ("kvm:kvm_apicv_inhibit_changed", 1),
    ];
    let reading = read(&path("kvm.dat"));
    for (event, count) in counts {
        assert_eq!(reading.profile.events[event], count, "{event}");
    }
    assert!(reading.profile.losses.is_whole());
    let vcpus: Vec<_> = reading.profile.vcpus().iter().map(|exits| exits.vcpu).collect();
    assert_eq!(
        vcpus,
        [(0, 801), (1, 802)].map(|(number, thread)| Vcpu {
            vm: None,
            number: Some(number),
            thread: Some(thread)
        })
    );
}

#[test]
fn the_recording_and_its_text_give_the_same_profile() {
    let (recording, text) = (read(&path("plain.dat")), read(&path("plain.report-t.txt")));
    assert_eq!(text.origin.format, Format::TracefsText);
    assert_eq!(text.profile.vcpus(), recording.profile.vcpus());
    assert_eq!(text.profile.span, recording.profile.span);
    assert_eq!(text.profile.losses, recording.profile.losses);
    assert!(recording.profile.accesses().len() > 5);
}

#[test]
fn any_number_of_threads_reads_the_same() {
    for (name, _) in RECORDINGS {
        let read = |threads| {
            let options = Options { threads: NonZeroUsize::new(threads), ..Options::default() };
            traces::read(&Source::from(packed(&path(name)).as_path()), &options, &mut ()).unwrap()
        };
        let one = read(1);
        for threads in [2, 5] {
            assert_eq!(read(threads), one, "{name}");
        }
    }
}

/// Asserts that a cut recording has a part of the exits, and reports that it is incomplete.
fn assert_part(name: &str, part: &Result<Reading, Error>, whole: &Reading, length: usize, first: usize) {
    match part {
        Ok(part) => {
            assert!(part.profile.total() <= whole.profile.total(), "{name} at {length}");
            let same = part.profile.total() == whole.profile.total();
            assert!(same || part.damage.is_some(), "{name} at {length}");
        }
        // The buffer with the exits is missing completely.
        Err(Error::Header { offset, .. }) => assert!(*offset <= length as u64, "{name} at {length}"),
        Err(other) => panic!("{name} at {length}: {other}"),
    }
    if length > first + (first / 2).max(0x8000) {
        assert!(part.is_ok(), "{name} at {length}: {part:?}");
    }
}

#[test]
fn a_recording_that_was_cut_anywhere_gives_what_is_whole() {
    for (name, first) in RECORDINGS {
        let whole = bytes(&path(name));
        let reading = read_bytes(&whole).unwrap();
        let ends = [1, 2, 50, 100, 101, 150, 216, 217, 500, 1000].map(|missing| whole.len() - missing);
        let evenly = (1..40).map(|part| whole.len() * part / 40);
        for length in ends.into_iter().chain(evenly) {
            assert_part(name, &read_bytes(&whole[..length]), &reading, length, first);
        }
    }
}

#[test]
fn pages_are_found_without_the_part_that_tells_where_they_are() {
    let truths = truths();
    for (name, missing) in [("plain.dat", 0), ("zstd.dat", 0), ("instances.dat", 1)] {
        let whole = bytes(&path(name));
        let last = last_options(&whole);
        let mut reading = read_bytes(&whole[..last]).unwrap();
        assert_eq!(reading.damage.take().unwrap().offset, last as u64, "{name}");
        assert!(reading.warnings.iter().any(|warning| warning.contains("numbered in its order")), "{name}");
        if missing == 0 {
            assert_true(name, &reading, &truths[name]);
        }
    }
}

#[test]
fn a_buffer_beyond_the_limits_is_damage_that_names_option_and_limit() {
    let whole = bytes(&path("plain.dat"));
    // After the header of the section and of the option: the offset, no name, "local" and the size of a page.
    let option = last_options(&whole) + 16 + 6;
    let count = option + 8 + 1 + 6 + 4;
    let mut many = whole.clone();
    many[count..count + 4].copy_from_slice(&8193u32.to_le_bytes());
    let mut reading = read_bytes(&many).unwrap();
    let damage = reading.damage.take().unwrap();
    assert_eq!(damage.what, "option BUFFER: a buffer of 8193 CPUs (at most 8192)");
    assert_eq!(damage.offset, count as u64 + 4);
    // The pages were found without it.
    assert_true("plain.dat", &reading, &truths()["plain.dat"]);
    let section = u64::from_le_bytes(*many[option..].first_chunk().unwrap()) as usize;
    many[section] = 63;
    let nothing = error(&many);
    let named = format!("option BUFFER: a buffer of 8193 CPUs (at most 8192) at byte {}", count + 4);
    assert!(nothing.contains(&named), "{nothing}");

    let mut high = whole.clone();
    high[count + 4..count + 8].copy_from_slice(&70_000u32.to_le_bytes());
    let reading = read_bytes(&high).unwrap();
    assert_eq!(reading.damage.unwrap().what, "option BUFFER: data of CPU 70000 (at most 65535)");
    assert!(reading.profile.total() > read_bytes(&whole).unwrap().profile.total() / 2);
}

#[test]
fn a_cut_of_a_thousand_bytes_loses_the_last_page_at_most() {
    let whole = bytes(&path("v6-instance.dat"));
    let [all, part] = [0, 1000].map(|missing| read_bytes(&whole[..whole.len() - missing]).unwrap());
    let damage = part.damage.unwrap();
    assert_eq!(damage.offset, whole.len() as u64 - 1000);
    assert!(damage.what.starts_with("the file ends 1000 bytes before the data of CPU"), "{damage}");
    assert!(part.profile.total() + 60 > all.profile.total());
}

#[test]
fn a_broken_page_takes_nothing_else_along() {
    let mut bytes = bytes(&path("plain.dat"));
    let whole = read_bytes(&bytes).unwrap();
    let pages: Vec<_> = (0x18000..bytes.len() - 4096).step_by(4096).collect();
    let page = pages[pages.len() / 2];
    // The length of a page's records, and the length of a record in another page.
    bytes[page + 8..page + 12].fill(0xff);
    let reading = read_bytes(&bytes).unwrap();
    let damage = reading.damage.unwrap();
    assert_eq!(damage.offset, page as u64);
    assert!(damage.what.contains("a page of CPU"), "{damage}");
    let lost = whole.profile.total() - reading.profile.total();
    assert!((1..60).contains(&lost), "{lost}");
    assert_eq!(reading.profile.losses.out_of_order, 0);

    let other = pages[pages.len() / 2 + 1];
    bytes[other + 16..other + 20].fill(0);
    let reading = read_bytes(&bytes).unwrap();
    assert_eq!(reading.damage.unwrap().offset, page as u64);
    assert!(reading.warnings.iter().any(|warning| warning.starts_with("2 places are damaged")));
    assert!(reading.profile.total() < whole.profile.total() - lost);
}

#[test]
fn a_page_after_a_loss_is_read_whatever_is_above_the_flag() {
    let mut bytes = bytes(&path("plain.dat"));
    let whole = read_bytes(&bytes).unwrap();
    let pages: Vec<_> = (0x18000..bytes.len() - 4096).step_by(4096).collect();
    let page = pages[pages.len() / 2];
    // `local_add(RB_MISSED_EVENTS, &bpage->commit)` with an `int` that is negative.
    bytes[page + 11] |= 0x80;
    bytes[page + 12..page + 16].fill(0xff);
    let reading = read_bytes(&bytes).unwrap();
    assert_eq!(reading.damage, None);
    assert_eq!(reading.profile.total(), whole.profile.total());
}

#[test]
fn packed_parts_that_do_not_unpack_are_passed_over() {
    let mut bytes = bytes(&path("zstd.dat"));
    let whole = read_bytes(&bytes).unwrap();
    // After the number of parts and the sizes of the first one.
    bytes[0x4000 + 12 + 40..0x4000 + 12 + 60].fill(0xa5);
    let reading = read_bytes(&bytes).unwrap();
    let damage = reading.damage.unwrap();
    assert_eq!(damage.offset, 0x4004);
    assert!(damage.what.contains("a packed part"), "{damage}");
    assert!((whole.profile.total() / 2..whole.profile.total()).contains(&reading.profile.total()));
}

#[test]
fn recordings_of_other_machines_are_refused_by_name() {
    let original = bytes(&path("v6-instance.dat"));
    let changed = |what: &[u8], by: &[u8]| {
        let mut bytes = original.clone();
        replace(&mut bytes, what, by);
        bytes
    };
    assert!(matches!(read_bytes(&changed(b"6\0\0", b"6\0\x01")), Err(Error::ByteOrder { .. })));
    let narrow = error(&changed(b"commit;\toffset:8;\tsize:8", b"commit;\toffset:8;\tsize:4"));
    assert!(narrow.contains("a kernel of 32 bits"), "{narrow}");
    let other = error(&changed(b"cloud-amd64 x86_64", b"cloud-amd64 ppc64l"));
    assert!(other.contains("was recorded on ppc64l"), "{other}");
    let at = find(&original, b"name: kvm_exit\n");
    let isa = at + find(&original[at..], b" isa;");
    let mut without = original.clone();
    without[isa + 1..isa + 4].copy_from_slice(b"ret");
    let without = error(&without);
    assert!(without.contains("no field `isa`"), "{without}");
}

#[test]
fn forms_that_are_not_read_are_refused_by_name() {
    let text = {
        let mut bytes = bytes(&path("v6-instance.dat"));
        replace(&mut bytes, b"flyrecord\0", b"latency  \0");
        error(&bytes)
    };
    assert!(text.contains("latency tracer") && text.contains("trace-cmd report"), "{text}");
    let mut newer = bytes(&path("zlib-extract.dat"));
    replace(&mut newer, b"7\0\0", b"8\0\0");
    assert!(error(&newer).contains("a trace.dat of version 8"));
    let mut packed = bytes(&path("zlib-extract.dat"));
    replace(&mut packed, b"zlib\0", b"lzma\0");
    assert!(error(&packed).contains("packed with lzma"));
}

#[test]
fn recordings_without_exits_say_what_they_have() {
    let mut bytes = bytes(&path("v6-instance.dat"));
    replace(&mut bytes, b"name: kvm_exit\n", b"name: kvm_exot\n");
    let without = error(&bytes);
    assert!(
        without.contains("has no kvm:kvm_exit events") && without.contains("those of sched, kvm"),
        "{without}"
    );
    // The exits are described, but none was recorded.
    let at = find(&bytes, b"name: kvm_exot\n");
    bytes[at..at + 23].copy_from_slice(b"name: kvm_exit\nID: 9999");
    let none = error(&bytes);
    assert!(none.contains("kvm:kvm_entry") && none.contains("and"), "{none}");
}

#[test]
fn a_recorder_that_was_killed_leaves_a_header_and_advice() {
    let mut bytes = bytes(&path("plain.dat"));
    bytes.truncate(0x16a00);
    // The offset of the options is written last.
    let at = find(&bytes, b"none\0\0") + 6;
    bytes[at..at + 8].fill(0);
    let killed = error(&bytes);
    assert!(killed.contains("trace-cmd restore"), "{killed}");
    let cut = error(&bytes[..300]);
    assert!(cut.contains("at byte 300") && cut.contains("copy the file once more"), "{cut}");
}

#[test]
fn ticks_of_unknown_length_are_called_ticks() {
    let mut bytes = bytes(&path("tsc2nsec.dat"));
    assert_eq!(read_bytes(&bytes).unwrap().warnings, [""; 0]);
    // Gives an unknown number to the option with the rate.
    replace(&mut bytes, &[14, 0, 16, 0, 0, 0], &[50, 0, 16, 0, 0, 0]);
    let reading = read_bytes(&bytes).unwrap();
    let [warning] = &reading.warnings[..] else { panic!("{:?}", reading.warnings) };
    assert!(warning.contains("handling times are ticks") && warning.contains("--tsc2nsec"), "{warning}");
    let Truth { reasons, .. } = &truths()["tsc2nsec.dat"];
    assert_eq!(reading.profile.reasons().len(), reasons.len());
}

#[test]
fn events_in_several_buffers_count_once() {
    let reading = read(&path("instances.dat"));
    let [warning] = &reading.warnings[..] else { panic!("{:?}", reading.warnings) };
    assert!(warning.contains("events of the buffer `all` left out"), "{warning}");
    assert!(reading.profile.losses.is_whole());
}

#[test]
fn the_time_begins_with_the_oldest_event_of_any_processor() {
    let span = read(&path("zstd.dat")).profile.span.unwrap();
    assert!(span.first_ns < 13_371_454_242, "where that of the first one begins: {span:?}");
}

#[test]
fn two_vms_are_kept_apart_by_their_threads() {
    let reading = read(&path("zstd.dat"));
    let vcpus: Vec<_> = reading.profile.vcpus().iter().map(|exits| exits.vcpu).collect();
    let first = |vcpu: &&Vcpu| vcpu.number == Some(0);
    assert_eq!(vcpus.iter().filter(first).count(), 2, "{vcpus:?}");
    assert!(reading.profile.losses.is_whole());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_change_of_bytes_panics(
        which in 0..2usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        near_the_start: bool,
    ) {
        let name = ["zlib-extract.dat", "zstd.dat"][which];
        let mut bytes = bytes(&path(name));
        let room = if near_the_start { 400 } else { bytes.len() };
        for (at, value) in changes {
            bytes[at.index(room)] = value;
        }
        let _ = read_bytes(&bytes);
    }
}
