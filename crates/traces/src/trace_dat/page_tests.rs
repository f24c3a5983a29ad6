use super::*;
use proptest::prelude::*;

/// A page of 4096 bytes with these words as records.
fn page(time: u64, flags: u64, words: &[u32]) -> Vec<u8> {
    let mut bytes = time.to_le_bytes().to_vec();
    bytes.extend((flags | (4 * words.len() as u64)).to_le_bytes());
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

fn full(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(4096, 0);
    bytes
}

fn events(bytes: &[u8]) -> (Vec<(u64, usize)>, Result<(), usize>) {
    let mut found = Vec::new();
    let outcome = Page::parse(bytes, 4096).unwrap().events(|time, record| found.push((time, record.len())));
    (found, outcome)
}

const fn head(kind: u32, difference: u32) -> u32 {
    kind | difference << 5
}

#[test]
fn every_kind_of_record() {
    let words = [
        head(2, 5),
        0,
        0,
        // 2^27 * 3 + 7 ticks later, and an event at the same time.
        head(TIME_EXTEND, 7),
        3,
        head(1, 0),
        0,
        // Seven bytes of data, with the length in a separate word.
        head(0, 1),
        11,
        0,
        0,
        // A discarded event of eight bytes.
        head(PADDING, 2),
        8,
        0,
        head(1, 1),
        0,
        head(TIME_STAMP, 1),
        0x100,
        head(1, 2),
        0,
        head(PADDING, 0),
        77,
    ];
    let (found, outcome) = events(&full(page(1000, 0, &words)));
    let extended = 1005 + (3 << 27) + 7;
    let expected =
        [(1005, 8), (extended, 4), (extended + 1, 7), (extended + 4, 4), ((0x100 << 27) + 1 + 2, 4)];
    assert_eq!(found, expected);
    assert_eq!(outcome, Ok(()));
}

#[test]
fn absolute_times_keep_the_highest_bits() {
    let high = 0x10 << 56;
    let words = [head(TIME_STAMP, 9), 0, head(1, 0), 0];
    assert_eq!(events(&full(page(high + 5, 0, &words))).0, [(high + 9, 4)]);
    // The lower bits have wrapped since the time before.
    assert_eq!(events(&full(page(high + 50, 0, &words))).0, [(high + (1 << 59) + 9, 4)]);
}

#[test]
fn losses_are_told_with_or_without_a_number() {
    let words = [head(1, 0), 0];
    assert_eq!(Page::parse(&full(page(1, 0, &words)), 4096).unwrap().lost, None);
    let (missed, both) = (u64::from(MISSED), u64::from(MISSED | MISSED_STORED));
    // Most kernels extend the sign of the flag; recent ones do not.
    for upper in [0, 0xffff_ffff_u64 << 32] {
        let page = |flags: u64| page(1, upper | flags, &words);
        assert_eq!(Page::parse(&full(page(missed)), 4096).unwrap().lost, Some(0));
        let mut stored = page(both);
        stored.extend(42u64.to_le_bytes());
        assert_eq!(Page::parse(&full(stored), 4096).unwrap().lost, Some(42));
    }
    for unknown in 27..30 {
        assert_eq!(Page::parse(&full(page(1, missed | 1 << unknown, &words)), 4096), None);
    }
}

#[test]
fn what_is_whole_of_a_broken_page_is_kept() {
    let words = [head(1, 0), 0, head(5, 1), 0];
    assert_eq!(events(&full(page(1, 0, &words))), (vec![(1, 4)], Err(HEADER + 8)));
    assert_eq!(Page::parse(&full(page(1, 4096, &[])), 4096), None);
    assert_eq!(Page::parse(&[0; 15], 4096), None);
    let cut = page(1, 8, &words);
    let page = Page::parse(&cut, 4096).unwrap();
    assert!(!page.whole && page.events(|_, _| ()).is_err());
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), kinds in proptest::collection::vec(0..32u32, 0..40)) {
        if let Some(page) = Page::parse(&bytes, 4096) {
            let _ = page.events(|_, _| ());
        }
        let words: Vec<_> = kinds.iter().map(|&kind| head(kind, 3)).collect();
        let _ = Page::parse(&page(u64::MAX - 5, 0, &words), 4096).unwrap().events(|_, _| ());
    }
}
