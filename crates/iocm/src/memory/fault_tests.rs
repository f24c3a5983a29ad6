use crate::memory::{GuestMemory, RegionDescription, lost_pages};
use crate::testing::memory_file;
use std::os::unix::fs::FileExt as _;

fn memory(file: &std::fs::File, size: u64) -> GuestMemory {
    let description = RegionDescription { guest: 0, size, user: 0, offset: 0 };
    GuestMemory::default().with(description, file).unwrap()
}

fn byte(memory: &GuestMemory, at: u64) -> u8 {
    let part = memory.one_part(at, 1).unwrap();
    // SAFETY: one mapped byte.
    unsafe { part.pointer.read_volatile() }
}

fn write(memory: &GuestMemory, at: u64, value: u8) {
    let part = memory.one_part(at, 1).unwrap();
    // SAFETY: one mapped byte.
    unsafe { part.pointer.write_volatile(value) };
}

#[test]
fn a_page_that_is_lost_is_marked_and_no_other_page_is_touched() {
    let file = memory_file(0x4000);
    let memory = memory(&file, 0x4000);
    write(&memory, 0x10, 7);
    write(&memory, 0x2010, 8);
    write(&memory, 0x3010, 9);
    file.set_len(0x1000).unwrap();
    assert!(!memory.is_cut(), "nobody touched it");
    let before = lost_pages();
    assert_eq!((byte(&memory, 0x10), byte(&memory, 0x2010)), (7, 0));
    assert!(memory.is_cut() && lost_pages() > before);
    // Pages that were not replaced show what the file has now.
    file.set_len(0x4000).unwrap();
    file.write_all_at(&[5], 0x3010).unwrap();
    assert_eq!((byte(&memory, 0x3010), byte(&memory, 0x10)), (5, 7));
}

/// The mappings of this process within these addresses.
fn mappings(start: usize, end: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let starts = maps.lines().filter_map(|line| usize::from_str_radix(line.split_once('-')?.0, 16).ok());
    starts.filter(|at| (start..end).contains(at)).count()
}

#[test]
fn a_mapping_that_has_lost_many_pages_is_one_mapping_of_empty_pages() {
    const PAGES: u64 = 512;
    let file = memory_file(PAGES << 12);
    let memory = memory(&file, PAGES << 12);
    let start = memory.one_part(0, 1).unwrap().pointer.addr();
    let count = || mappings(start, start + (PAGES << 12) as usize);
    file.set_len(0).unwrap();
    let mut lost = (0..PAGES).step_by(2);
    lost.by_ref().take(super::ONE_BY_ONE as usize).for_each(|page| assert_eq!(byte(&memory, page << 12), 0));
    assert_eq!(count(), 2 * super::ONE_BY_ONE as usize);
    lost.for_each(|page| assert_eq!(byte(&memory, page << 12), 0));
    assert_eq!(count(), 1);
    write(&memory, 0x1010, 7);
    assert!(byte(&memory, 0x1010) == 7 && memory.is_cut());
}

#[test]
fn pages_that_many_mappings_lose_use_up_no_mappings() {
    const PAGES: u64 = 2 * super::ONE_BY_ONE as u64;
    let files: Vec<_> =
        (0..=super::MOST_ONE_BY_ONE / super::ONE_BY_ONE).map(|_| memory_file(PAGES << 12)).collect();
    let memories: Vec<_> = files.iter().map(|file| memory(file, PAGES << 12)).collect();
    let lose = || {
        let lost = (0..PAGES).step_by(2);
        memories
            .iter()
            .for_each(|memory| lost.clone().for_each(|page| assert_eq!(byte(memory, page << 12), 0)));
        let start = memories.last().unwrap().one_part(0, 1).unwrap().pointer.addr();
        mappings(start, start + (PAGES << 12) as usize)
    };
    files.iter().for_each(|file| file.set_len(0).unwrap());
    assert_eq!(lose(), 1, "it would have been many alone");
    drop(memories);
    let file = memory_file(PAGES << 12);
    let memory = memory(&file, PAGES << 12);
    file.set_len(0).unwrap();
    let start = memory.one_part(0, 1).unwrap().pointer.addr();
    assert_eq!(byte(&memory, 0x1000), 0);
    assert_eq!(mappings(start, start + (PAGES << 12) as usize), 3, "mappings that are gone count no more");
}

#[test]
fn there_are_guards_for_as_many_mappings_as_there_are() {
    let file = memory_file(0x1000);
    let many: Vec<_> = (0..5000).map(|_| memory(&file, 0x1000)).collect();
    file.set_len(0).unwrap();
    let last = many.last().unwrap();
    assert_eq!(byte(last, 0), 0);
    assert!(last.is_cut() && !many[0].is_cut());
}

#[test]
fn mappings_that_come_and_go_do_not_confuse_the_handler() {
    let file = memory_file(0x4000);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let churn = || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                drop(memory(&memory_file(0x10_0000), 0x10_0000));
            }
        };
        scope.spawn(churn);
        for _ in 0..500 {
            let memory = memory(&file, 0x4000);
            write(&memory, 0x10, 7);
            file.set_len(0x1000).unwrap();
            assert_eq!((byte(&memory, 0x3000), byte(&memory, 0x10)), (0, 7));
            assert!(memory.is_cut());
            file.set_len(0x4000).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn an_error_that_the_machine_found_by_itself_leaves_the_handler() {
    let guarded = memory(&memory_file(0x1000), 0x1000);
    // SAFETY: all zeros are a valid siginfo_t.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    info.si_code = super::FOUND_OUT;
    super::on_fault(libc::SIGBUS, &raw mut info, std::ptr::null_mut());
    // SAFETY: all zeros are a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is valid for writes.
    assert_eq!(unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut action) }, 0);
    assert_ne!(action.sa_sigaction, libc::SIG_DFL);
    drop(guarded);
}
