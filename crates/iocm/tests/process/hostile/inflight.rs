//! Inflight memory, as a front-end passes it to the next daemon.

use super::stage::{Attacker, Neighbour, PLACE, Stage, memory};
use iocm::ring::RingFeatures;
use iocm::testing::{BlockDriver, Driver};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// The payload that describes inflight memory for one queue.
fn description(size: u64, queue_size: u16) -> Vec<u8> {
    [&size.to_ne_bytes()[..], &[0; 8], &1_u16.to_ne_bytes(), &queue_size.to_ne_bytes()].concat()
}

/// A packed ring's inflight memory in which each entry is a request in flight whose list goes through all entries.
pub(crate) fn looping_lists() {
    const SIZE: u16 = 8192;
    let mut stage = Stage::new(&["", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    let features = RingFeatures { packed: true, event_index: false, indirect: true };
    let driver = Driver::new(SIZE, features);
    let mut front = super::stage::connect(&stage.socket(0));
    front.negotiate(&driver, 0).unwrap();
    let mut bytes = vec![0; 32 + 32 * usize::from(SIZE)];
    // The version and the number of entries; the free list is empty.
    bytes[8..12].copy_from_slice(&[1_u16.to_ne_bytes(), SIZE.to_ne_bytes()].concat());
    bytes[12..16].copy_from_slice(&[SIZE.to_ne_bytes(); 2].concat());
    (bytes[20], bytes[21]) = (1, 1);
    for (index, entry) in bytes[32..].chunks_exact_mut(32).enumerate() {
        let next = (index as u16 + 1) % SIZE;
        entry[0] = 1;
        entry[2..4].copy_from_slice(&next.to_ne_bytes());
        entry[4..6].copy_from_slice(&(index as u16).to_ne_bytes());
        entry[6..8].copy_from_slice(&SIZE.to_ne_bytes());
        entry[16..18].copy_from_slice(&(index as u16).to_ne_bytes());
    }
    let size = (bytes.len() as u64).next_multiple_of(4096);
    let file = memory(size);
    file.write_all_at(&bytes, 0).unwrap();
    let description = description(size, SIZE);
    let before = stage.kib("VmHWM");
    assert!(front.tell(32, &description, &[file.as_fd()]).unwrap());
    let began = Instant::now();
    let started = front.start(0, &driver.layout(), SIZE.into(), 0x8000_8000);
    assert!(stage.is_alive(), "the daemon has died of it");
    let grown = stage.kib("VmHWM") - before;
    println!("lists that go through all of {SIZE} entries took {grown} KiB and {:?}", began.elapsed());
    assert!(grown < 16 << 10, "{grown} KiB");
    assert!(!started.unwrap(), "what cannot have been is taken for requests");
    assert!(neighbour.read(LIMIT).is_some());
}

/// A request that kills each daemon that handles it is not tried forever, and other requests are carried out.
pub(crate) fn a_request_that_kills() {
    for packed in [false, true] {
        kills(packed);
    }
}

fn kills(packed: bool) {
    const SIZE: u16 = 64;
    /// A type of request on which the worker panics, only in this test's daemon.
    const PANIC: u32 = iocm::testing::PANICS;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("disk"), vec![7; 1 << 20]).unwrap();
    let mut stage = Stage::in_directory(directory, &["path = \"HERE/disk\"", ""]);
    let features = RingFeatures { packed, event_index: false, indirect: true };
    let mut guest = BlockDriver::new(SIZE, features);
    let begin = if packed { 0x8000_8000 } else { 0 };
    let mut kept = None;
    let mut deaths = 0;
    let mut statuses = Vec::new();
    for turn in 0..6 {
        let mut front = super::stage::connect(&stage.socket(0));
        front.negotiate(&guest.driver, 0).unwrap();
        let (description, memory) = kept.take().unwrap_or_else(|| front.inflight(1, SIZE).unwrap());
        assert!(turn == 0 || front.tell(32, &description, &[memory.as_fd()]).unwrap());
        if turn == 0 {
            for sector in 0..4 {
                guest.submit(0, sector, &[], 512).unwrap();
            }
            guest.submit(PANIC, 0, &[], 512).unwrap();
            guest.submit(0, 9, &[], 512).unwrap();
        }
        let base = if packed || turn == 0 { begin } else { guest.driver.given_back().into() };
        // The daemon may die before it has answered everything.
        let _ = front.start(0, &guest.driver.layout(), SIZE.into(), base);
        let _ = front.kick();
        kept = Some((description, memory));
        let end = Instant::now() + LIMIT;
        while stage.is_alive() && statuses.len() < 6 && Instant::now() < end {
            while let Some((_, status, _)) = guest.ended() {
                statuses.push(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        while let Some((_, status, _)) = guest.ended() {
            statuses.push(status);
        }
        if stage.is_alive() {
            break;
        }
        deaths += 1;
        stage.again();
    }
    statuses.sort_unstable();
    println!("the request killed {deaths} daemons, and was an error for the next: {statuses:?}");
    assert_eq!((deaths, &statuses[..]), (2, &[0, 0, 0, 0, 0, 1][..]), "packed: {packed}");
    assert!(Neighbour::new(&stage.socket(1)).read(LIMIT).is_some());
}

/// Inflight memory that is truncated while it is used.
pub(crate) fn cut() {
    let mut stage = Stage::new(&["", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    let mut attacker = Attacker::new(&stage.socket(0), 64, None);
    let file = memory(0x2000);
    let description = description(0x2000, 64);
    assert!(attacker.front.tell(32, &description, &[file.as_fd()]).unwrap());
    assert!(attacker.start(64));
    file.set_len(0).unwrap();
    attacker.request(0, 0, &[(PLACE, 512, true)]);
    assert!(super::stage::wait_readable(&attacker.error, LIMIT), "the front-end is told");
    assert!(neighbour.read(LIMIT).is_some());
    assert!(stage.is_alive());
}
