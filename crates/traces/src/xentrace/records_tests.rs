use super::*;
use crate::xentrace::writing::Written;
use proptest::prelude::*;
use std::io;

/// Returns a few bytes at a time, with these lengths in turn.
struct Pieces {
    bytes: io::Cursor<Vec<u8>>,
    lengths: Vec<usize>,
    next: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.lengths[self.next % self.lengths.len()].min(buffer.len());
        self.next += 1;
        self.bytes.read(&mut buffer[..length])
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Window(u16),
    Record(u32, Option<u64>, usize),
    Gap(bool),
    Pause,
}

struct Walk {
    seen: Vec<Seen>,
    damage: Option<Damage>,
    broken: u64,
    skipped: u64,
    position: u64,
}

impl Walk {
    fn of(bytes: &[u8], lengths: &[usize]) -> Self {
        let bytes = io::Cursor::new(bytes.to_vec());
        let reader = Pieces { bytes, lengths: lengths.to_vec(), next: 0 };
        Self::through(Records::new(Box::new(reader), Failure::default()))
    }

    fn through(mut records: Records) -> Self {
        let mut seen = Vec::new();
        while let Some(item) = records.next() {
            seen.push(match item {
                Item::Window(window) => Seen::Window(window.cpu),
                Item::Record(record) => Seen::Record(record.event, record.ticks, record.len()),
                Item::Gap { all } => Seen::Gap(all),
                Item::Pause => Seen::Pause,
            });
        }
        let position = records.position();
        let Records { damage, broken, skipped, .. } = records;
        Self { seen, damage, broken, skipped, position }
    }

    fn records(&self) -> usize {
        self.seen.iter().filter(|seen| matches!(seen, Seen::Record(..))).count()
    }
}

/// Four windows of two CPUs with records of various lengths; 51 words.
fn sound() -> Written {
    Written::new()
        .window(0)
        .exit(100, 0x72)
        .then(0x0008_200e, &[1, 0, 0, 0, 0, 0])
        .entry(110)
        .window(1)
        .change(120, 1, 0, 0, 2)
        .window(0)
        .exit(130, 0x7c)
        .then(0x0008_200d, &[0x80b, 0, 0])
        .entry(140)
        .window(1)
        .at(150, 0x0001_f002, &[])
        .exit(160, 0x78)
}

#[test]
fn a_sound_recording_is_read_to_its_end() {
    let Written { bytes, .. } = sound();
    let walk = Walk::of(&bytes, &[usize::MAX]);
    assert_eq!(walk.damage, None);
    assert_eq!((walk.position, walk.records(), walk.seen.len()), (bytes.len() as u64, 9, 13));
    assert_eq!(
        walk.seen[..3],
        [Seen::Window(0), Seen::Record(0x0008_1103, Some(100), 3), Seen::Record(0x0008_200e, None, 6)]
    );
}

#[test]
fn it_does_not_matter_in_which_pieces_a_stream_comes() {
    let Written { bytes, .. } = sound();
    let whole = Walk::of(&bytes, &[usize::MAX]);
    for lengths in [&[1][..], &[3], &[1, 2, 5, 7], &[13, 1], &[41, 3, 1]] {
        assert_eq!(Walk::of(&bytes, lengths).seen, whole.seen, "{lengths:?}");
    }
}

#[test]
fn windows_longer_than_what_is_read_at_once() {
    let mut written = Written::new().window(3);
    for ticks in 0..40_000 {
        written = written.entry(ticks).then(0x0008_2013, &[1]);
    }
    assert!(written.bytes.len() > 2 * CHUNK);
    let walk = Walk::of(&written.bytes, &[usize::MAX]);
    assert_eq!((walk.records(), walk.damage), (80_000, None));
}

#[test]
fn a_recording_cut_anywhere_gives_the_whole_records_before_the_cut() {
    let Written { bytes, .. } = sound();
    let whole = Walk::of(&bytes, &[usize::MAX]);
    let mut ends_of_windows = 0;
    for cut in 0..bytes.len() {
        let walk = Walk::of(&bytes[..cut], &[usize::MAX]);
        let kept: Vec<_> = walk.seen.iter().filter(|seen| **seen != Seen::Gap(false)).cloned().collect();
        assert_eq!(kept, whole.seen[..kept.len()], "{cut}");
        match walk.damage {
            // A cut between two windows cannot be noticed.
            None => ends_of_windows += 1,
            Some(damage) => {
                assert!(damage.offset <= cut as u64 && cut as u64 - damage.offset < LONGEST as u64);
                assert!(damage.what.starts_with("it ends within"), "{}", damage.what);
                assert_eq!((walk.seen.last(), walk.broken), (Some(&Seen::Gap(false)), 1));
            }
        }
        assert_eq!(walk.position, cut as u64);
    }
    assert_eq!(ends_of_windows, 4);
    let damage = Walk::of(&bytes[..bytes.len() - 4], &[usize::MAX]).damage.unwrap();
    assert_eq!(damage.what, "it ends within a window of processor 1: 4 of its 36 bytes are missing");
}

/// The recording with one word changed.
fn with(at: usize, word: u32) -> Vec<u8> {
    let Written { mut bytes, .. } = sound();
    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    bytes
}

#[test]
fn reading_goes_on_with_the_next_window() {
    // The second record of the first window, and the only one of the second window.
    let walk = Walk::of(&with(36, 0), &[usize::MAX]);
    let damage = Damage { offset: 36, what: "no record begins with 0x00000000".into() };
    assert_eq!(walk.damage, Some(damage));
    assert_eq!(walk.seen[2..5], [Seen::Gap(false), Seen::Window(1), Seen::Record(0x0002_1021, Some(120), 1)]);
    assert_eq!((walk.broken, walk.skipped, walk.records()), (1, 40, 7));
}

#[test]
fn windows_whose_length_is_wrong() {
    let whole = Walk::of(&sound().bytes, &[usize::MAX]);
    // The first window has 64 bytes. If it claims more, the next header reveals it.
    let walk = Walk::of(&with(8, 68), &[usize::MAX]);
    assert_eq!((walk.records(), walk.skipped), (9, 0));
    assert_eq!(walk.damage.unwrap().what, "a window begins 4 bytes before the one before it ends");
    // If it ends within a record, the rest of the record is lost.
    let walk = Walk::of(&with(8, 60), &[usize::MAX]);
    assert_eq!((walk.records(), walk.skipped, walk.broken), (8, 12, 1));
    assert_eq!(walk.seen[3..], [&[Seen::Gap(true)], &whole.seen[4..]].concat()[..]);
    assert_eq!(walk.damage.unwrap().what, "a record of 12 bytes in the last 8 of its window");
    // If it lacks a record.
    let walk = Walk::of(&with(8, 52), &[usize::MAX]);
    let damage = Damage { offset: 64, what: "a window ends here, but no other begins".into() };
    assert_eq!((walk.damage, walk.skipped), (Some(damage), 12));
}

#[test]
fn bytes_that_were_lost_are_noticed() {
    let Written { mut bytes, .. } = sound();
    bytes.drain(30..61);
    let walk = Walk::of(&bytes, &[usize::MAX]);
    assert!(walk.damage.is_some() && walk.seen.contains(&Seen::Gap(true)));
    let end = &Walk::of(&sound().bytes, &[usize::MAX]).seen[5..];
    assert!(walk.seen.ends_with(end), "{:?}", walk.seen);
}

#[test]
fn what_follows_the_last_window_is_not_taken_for_one() {
    let Written { mut bytes, .. } = sound();
    let length = bytes.len();
    bytes.extend([0xee; 1000]);
    let walk = Walk::of(&bytes, &[usize::MAX]);
    assert_eq!((walk.records(), walk.skipped, walk.broken), (9, 1000, 1));
    assert_eq!(walk.damage.unwrap().offset, length as u64);
}

struct Failing(usize);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Written { bytes, .. } = sound();
        let rest = &bytes[self.0..76];
        if rest.is_empty() {
            return Err(io::Error::other("the disk is gone"));
        }
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        self.0 += length;
        Ok(length)
    }
}

#[test]
fn a_failing_reader_ends_the_recording() {
    let walk = Walk::through(Records::new(Box::new(Failing(0)), Failure::default()));
    let damage = Damage { offset: 76, what: "it cannot be read further (the disk is gone)".into() };
    assert_eq!((walk.records(), walk.damage), (3, Some(damage)));
}

proptest! {
    #[test]
    fn any_bytes_are_walked_over_once(
        start in 0..200usize,
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        lengths in proptest::collection::vec(1..50usize, 1..4),
    ) {
        let Written { bytes: mut all, .. } = sound();
        all.truncate(start);
        all.extend(&bytes);
        all.extend(sound().bytes);
        let walk = Walk::of(&all, &lengths);
        prop_assert_eq!(walk.position, all.len() as u64);
        prop_assert!(walk.skipped <= all.len() as u64);
        prop_assert!(walk.seen.len() <= all.len());
        prop_assert_eq!(walk.damage.is_some(), walk.broken > 0);
    }

    #[test]
    fn a_flipped_bit_costs_a_window_at_most(at in 0..204usize, bit in 0..8u8) {
        let Written { mut bytes, .. } = sound();
        bytes[at] ^= 1 << bit;
        let walk = Walk::of(&bytes, &[usize::MAX]);
        prop_assert_eq!(walk.position, bytes.len() as u64);
        prop_assert!(walk.records() >= 4, "{:?}", walk.seen);
    }
}
