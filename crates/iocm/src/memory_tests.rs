use super::*;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;

const USER: u64 = 0x7f00_0000_0000;

fn file(size: u64) -> File {
    crate::testing::memory_file(size)
}

fn region(guest: u64, size: u64, offset: u64) -> RegionDescription {
    RegionDescription { guest, size, user: USER.wrapping_add(guest), offset }
}

fn pieces(memory: &GuestMemory, guest: u64, size: u32) -> (Vec<(u64, u32)>, bool) {
    let mut found = Vec::new();
    let whole = memory.parts(guest, size, |part| found.push((part.guest, part.size)));
    (found, whole)
}

#[test]
fn what_spans_adjacent_regions_comes_in_pieces() {
    let memory = GuestMemory::map([
        (region(0x2000, 0x1000, 0), file(0x1000)),
        (region(0, 0x2000, 0), file(0x2000)),
        (region(0x8000, 0x1000, 0), file(0x1000)),
    ])
    .unwrap();
    assert_eq!(pieces(&memory, 0x1ff0, 0x20), (vec![(0x1ff0, 0x10), (0x2000, 0x10)], true));
    assert_eq!(pieces(&memory, 0x2ff0, 0x20), (vec![(0x2ff0, 0x10)], false), "a hole follows");
    assert_eq!(pieces(&memory, 0x4000, 1), (vec![], false));
    assert_eq!(pieces(&memory, 0x9000, 1), (vec![], false));
    assert_eq!(pieces(&memory, u64::MAX, 2), (vec![], false));
    assert_eq!(pieces(&memory, 0x4000, 0), (vec![], true));
    assert!(memory.one_part(0x1ff0, 0x20).is_none());
    assert!(memory.of_user(USER + 0x8000, 0x1000).is_some());
    assert!(memory.of_user(USER + 0x8000, 0x1001).is_none());
    assert!(memory.of_user(USER - 1, 1).is_none());
}

#[test]
fn addresses_are_found_in_any_number_of_regions() {
    let file = file(0x1000);
    for count in [1, 8, 9, 100] {
        // A hole follows each region.
        let regions = (0..count).map(|number| (region(number << 13, 0x1000, 0), file.try_clone().unwrap()));
        let memory = GuestMemory::map(regions).unwrap();
        for number in 0..count {
            let start = number << 13;
            assert_eq!(pieces(&memory, start + 0xfff, 1), (vec![(start + 0xfff, 1)], true));
            assert_eq!(pieces(&memory, start + 0x800, 0x801), (vec![(start + 0x800, 0x800)], false));
            assert_eq!(pieces(&memory, start + 0x1000, 1), (vec![], false));
        }
        assert_eq!(pieces(&memory, u64::MAX, 1), (vec![], false));
    }
    let high =
        GuestMemory::map((1..20).map(|number| (region(number << 13, 0x1000, 0), file.try_clone().unwrap())));
    assert_eq!(pieces(&high.unwrap(), 0, 1), (vec![], false), "before the first");
}

#[test]
fn an_offset_need_not_be_a_pages_begin() {
    let mut file = file(0x3000);
    file.seek(SeekFrom::Start(0x1234)).unwrap();
    file.write_all(b"here").unwrap();
    let memory = GuestMemory::default().with(region(0, 0x1000, 0x1230), &file).unwrap();
    let part = memory.one_part(4, 4).unwrap();
    // SAFETY: the part has four bytes, and `memory` lives.
    let bytes = unsafe { std::slice::from_raw_parts(part.pointer, 4) };
    assert_eq!(bytes, b"here");
}

#[test]
fn regions_that_cannot_be() {
    let memory = GuestMemory::map([(region(0x1000, 0x1000, 0), file(0x1000))]).unwrap();
    let with =
        |region: RegionDescription, size| memory.with(region, &file(size)).map(|memory| memory.regions());
    assert!(matches!(with(region(0x1800, 0x1000, 0), 0x1000), Err(RegionError::Overlap(0x1000, 0x1800))));
    assert!(matches!(with(region(0, 0x1001, 0), 0x2000), Err(RegionError::Overlap(..))));
    let elsewhere = RegionDescription { user: USER + 0x1800, ..region(0x4000, 0x1000, 0) };
    assert!(matches!(with(elsewhere, 0x1000), Err(RegionError::Overlap(..))), "in the front-end's addresses");
    assert!(matches!(with(region(0, 0, 0), 0x1000), Err(RegionError::Shape { .. })));
    assert!(matches!(with(region(u64::MAX, 2, 0), 0x1000), Err(RegionError::Shape { .. })));
    assert!(matches!(with(region(0x4000, 0x1000, 0), 0xfff), Err(RegionError::Map(MapError::Short { .. }))));
    assert_eq!(with(region(0x2000, 0x1000, 0), 0x1000).unwrap(), 2);
    assert!(memory.without(&region(0x1000, 0x800, 0)).is_err());
    assert_eq!(memory.without(&region(0x1000, 0x1000, 0)).unwrap().regions(), 0);
}

#[test]
fn pages_that_were_written_are_marked() {
    let bitmap = file(0x1000);
    let log = Arc::new(DirtyLog::of_file(&bitmap, 0, 2).unwrap());
    let memory = GuestMemory::default().logged(Some(log));
    memory.wrote(0x0fff, 2);
    memory.wrote(0x9000, 0);
    memory.wrote(0xf000, 0x10_0000);
    memory.wrote(u64::MAX, 8);
    let mut bytes = [0; 3];
    bitmap.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [0b11, 0b1000_0000, 0], "pages beyond the log's end are left out");
    assert!(matches!(DirtyLog::of_file(&bitmap, 0, 0), Err(LogError::Map(MapError::Empty))));
    assert!(!memory.logged(None).is_logged());
}

#[test]
fn no_guest_takes_the_addresses_of_all_others() {
    let file = file(1 << 62);
    let most = most_of_a_guest();
    let memory = GuestMemory::default().with(region(0, most / 2, 0), &file).unwrap();
    let more = memory.with(region(1 << 50, most, 0), &file);
    assert!(matches!(more, Err(RegionError::TooMuch { .. })));
    assert!(memory.with(region(1 << 50, most / 4, 0), &file).is_ok());
    assert!(matches!(DirtyLog::of_file(&file, 0, 1 << 40), Err(LogError::TooLarge(_))));
}
