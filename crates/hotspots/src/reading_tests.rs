use exits::ExitReason;
use proptest::prelude::*;

use super::*;
use crate::object_symbols::LONGEST_GIVEN;
use crate::{Activity, Away, Event, Frame, Head, Losses, Space, write};

fn frame(name: &str) -> Frame {
    Frame { space: Space::Kernel, symbol: Some(name.to_owned()), object: "kvm".to_owned(), address: None }
}

fn sample() -> Recording {
    let mut recording = Recording::new(Head {
        kernel: Some("6.12".to_owned()),
        event: Event::CpuClock,
        frequency_hz: 997,
        cpus: 2,
        duration_ns: 10_000_000_000,
        away: true,
        notes: vec!["a note".to_owned()],
    });
    recording.names.insert(7, "web".to_owned());
    let reason = ExitReason::svm(0x7b);
    let away = Away { times: 3, away_ns: 500, waited_ns: 200 };
    recording.measured.insert((Some(7), reason), Measured { exits: 9, handling_ns: 9000, away });
    let numbers: Vec<_> =
        ["io_interception", "svm_handle_exit"].map(|name| recording.number(frame(name))).into();
    let nameless = Frame { symbol: None, address: Some(u64::MAX), space: Space::User, ..frame("") };
    let nameless = recording.number(nameless);
    for (activity, frames, samples) in [
        (Activity::Exit(reason), numbers, 40),
        (Activity::Monitor, vec![nameless], 3),
        (Activity::Guest, Vec::new(), 100),
    ] {
        let (vm, thread, cut) = (Some(7), Some(8), samples == 3);
        recording.stacks.push(Stack { vm, thread, activity, frames, samples, away, cut });
    }
    recording.losses = Losses { ticks: 200, lost: 1, lost_exits: 2, without_user_stack: 3 };
    recording
}

fn written(recording: &Recording) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(recording, &mut bytes).unwrap();
    bytes
}

#[test]
fn what_was_written_is_read() {
    let recording = sample();
    let bytes = written(&recording);
    assert!(is_recording(&bytes));
    let reading = read("file", &bytes).unwrap();
    assert_eq!(reading.damage, Vec::<String>::new());
    assert_eq!(reading.recording, recording);
}

#[test]
fn damage_costs_the_lines_that_it_hits() {
    let mut bytes = written(&sample());
    let at = bytes.windows(9).position(|window| window == b"\"symbol\":").unwrap();
    bytes[at] = 0xff;
    let reading = read("file", &bytes).unwrap();
    // The line of the first frame, and the one stack that refers to it.
    assert_eq!(reading.recording.stacks.len(), 2);
    assert_eq!(reading.damage.len(), 2);
    let line = bytes[..at].iter().rposition(|&byte| byte == b'\n').unwrap() + 1;
    assert!(reading.damage[0].starts_with(&format!("At byte {line}:")), "{:?}", reading.damage);
    assert_eq!(reading.recording.losses, sample().losses);
}

#[test]
fn many_damaged_lines_are_counted() {
    let mut bytes = written(&sample());
    bytes.extend(b"x\n".repeat(10));
    let reading = read("file", &bytes).unwrap();
    assert_eq!(reading.damage.len(), TOLD + 1);
    assert_eq!(reading.damage[TOLD], "6 more lines are left out");
}

#[test]
fn a_stack_that_is_deeper_than_any_recorder_keeps_is_damage() {
    for (frames, damaged) in [(MOST_FRAMES, 0), (MOST_FRAMES + 1, 1)] {
        let mut recording = sample();
        recording.stacks[0].frames = vec![0; frames];
        let reading = read("file", &written(&recording)).unwrap();
        assert_eq!(reading.damage.len(), damaged, "{:?}", reading.damage);
        assert_eq!(reading.recording.stacks.len(), 3 - damaged);
    }
}

#[test]
fn names_that_no_recorder_writes_are_cut() {
    let (fits, long) = ("x".repeat(LONGEST_GIVEN), "x".repeat(100_000));
    let mut recording = sample();
    recording.names.insert(8, long.clone());
    recording.number(Frame { object: long.clone(), ..frame(&long) });
    let fitting = Frame { object: fits.clone(), ..frame(&fits) };
    recording.number(fitting.clone());
    let recording = read("file", &written(&recording)).unwrap().recording;
    let [.., cut, whole] = &recording.frames[..] else { panic!("{:?}", recording.frames) };
    assert_eq!(**whole, fitting);
    for name in [&recording.names[&8], &cut.object, cut.symbol.as_ref().unwrap()] {
        assert_eq!((name.chars().count(), name.ends_with('…')), (LONGEST_GIVEN, true), "{name}");
    }
}

#[test]
fn other_files_and_later_formats_are_refused() {
    assert!(matches!(read("f", b"PERFILE2"), Err(ReadError::NotThis { .. })));
    assert!(matches!(read("f", b"{\"exitless_hot_spots\":9}"), Err(ReadError::Newer { found: 9, .. })));
    assert!(matches!(read("f", b"{\"exitless_hot_spots\":1}"), Err(ReadError::Head { .. })));
}

#[test]
fn lines_and_fields_of_later_versions_are_let_pass() {
    let text = String::from_utf8(written(&sample())).unwrap();
    let newer = text.replacen("\"cpus\":2", "\"cpus\":2,\"moon\":\"full\"", 1);
    assert_eq!(read("f", newer.as_bytes()).unwrap().recording, sample());
}

proptest! {
    #[test]
    fn whatever_is_cut_off_the_rest_is_kept(cut in 0.0..1.0_f64) {
        let bytes = written(&sample());
        let length = (bytes.len() as f64 * cut) as usize;
        if let Ok(reading) = read("f", &bytes[..length]) {
            // Only the end of the last line may be missing.
            prop_assert_eq!(reading.damage.is_empty(), length + 1 >= bytes.len());
            let stacks = reading.recording.stacks;
            prop_assert_eq!(&stacks[..], &sample().stacks[..stacks.len()]);
        }
    }

    #[test]
    fn no_bytes_are_too_strange(tail in proptest::collection::vec(any::<u8>(), 0..300), from in 0usize..2000) {
        let mut bytes = written(&sample());
        let from = from.min(bytes.len());
        bytes.splice(from.., tail);
        let _ = read("f", &bytes);
    }
}
