//! Requests that try to use too many resources.

use super::stage::{Attacker, FAR, Neighbour, PLACE, Stage, disk, memory};
use iocm::testing::{DATA, Driver, Piece};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

/// A read of 112 GiB with one misaligned piece, from a disk that needs alignment.
pub(crate) fn as_large_as_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    disk(directory.path(), "disk", 128 << 30);
    let mut stage = Stage::in_directory(directory, &["path = \"HERE/disk\"\ndirect = true", ""]);
    let far = memory(4 << 30);
    let mut attacker = Attacker::new(&stage.socket(0), 64, Some((&far, 4 << 30)));
    assert!(attacker.start(64));
    let mut pieces: Vec<Piece> = vec![(PLACE + 1, 512, true)];
    pieces.extend((0..28).map(|_| (FAR, 0xffff_f000, true)));
    attacker.request(0, 0, &pieces);
    let status = attacker.ended(20 * SECOND);
    assert!(stage.is_alive(), "the daemon has died of it");
    assert_eq!(status, Some(1), "it is an error");
    println!("the daemon's memory was {} KiB at most", stage.kib("VmHWM"));
    assert!(Neighbour::new(&stage.socket(1)).read(20 * SECOND).is_some());
}

/// A misaligned buffer is read correctly, without memory for all of it.
pub(crate) fn not_aligned() {
    const SIZE: u32 = 12 << 20;
    let directory = tempfile::tempdir().unwrap();
    let data: Vec<u8> = (0..SIZE).map(|byte| (byte % 251) as u8).collect();
    std::fs::write(directory.path().join("disk"), &data).unwrap();
    let mut stage = Stage::in_directory(directory, &["path = \"HERE/disk\"\ndirect = true"]);
    let mut attacker = Attacker::new(&stage.socket(0), 512, None);
    assert!(attacker.start(512));
    let before = stage.kib("VmHWM");
    for turn in 0..4 {
        let first = 512 * (turn + 1) + 511;
        let rest = PLACE + 0x1_0001;
        attacker.request(0, 0, &[(PLACE + 1, first, true), (rest, SIZE - first, true)]);
        assert_eq!(attacker.ended(20 * SECOND), Some(0));
        let first = first as usize;
        assert!(attacker.driver.read(PLACE + 1, first) == data[..first]);
        assert!(attacker.driver.read(rest, data.len() - first) == data[first..]);
    }
    // Mapped pages of the guest's memory are not buffers.
    let buffers = (stage.kib("VmHWM") - before).saturating_sub(stage.kib("RssShmem"));
    println!("reads of 12 MiB that were not aligned took {buffers} KiB of buffers");
    assert!(buffers < 2048, "{buffers} KiB of buffers");
    assert!(stage.is_alive());
}

/// Zeroes on a file system that cannot zero ranges itself, while another guest reads.
pub(crate) fn zeroes_without_end() {
    let shm = rustix::fs::statvfs("/dev/shm").unwrap();
    if shm.f_bavail.saturating_mul(shm.f_frsize) < 5 << 28 {
        println!("not tested: /dev/shm has no room for 1 GiB");
        return;
    }
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    disk(directory.path(), "disk", 2 << 30);
    let mut stage = Stage::in_directory(directory, &["path = \"HERE/disk\"", ""]);
    let mut attacker = Attacker::new(&stage.socket(0), 64, None);
    assert!(attacker.start(64));
    let mut neighbour = Neighbour::new(&stage.socket(1));
    neighbour.read(20 * SECOND).unwrap();
    let range = [&0_u64.to_le_bytes()[..], &(1_u32 << 21).to_le_bytes(), &[0; 4]].concat();
    attacker.driver.write(PLACE, &range);
    let began = Instant::now();
    attacker.request(13, 0, &[(PLACE, 16, false)]);
    std::thread::sleep(Duration::from_millis(2));
    let mut waits = Vec::new();
    let status = loop {
        waits.push(neighbour.read(60 * SECOND).unwrap());
        if let Some(status) = attacker.ended(Duration::from_millis(1)) {
            break status;
        }
    };
    let (whole, worst) = (began.elapsed(), *waits.iter().max().unwrap());
    println!("1 GiB of zeroes took {whole:?}; the worst of {} reads beside them took {worst:?}", waits.len());
    assert_eq!(status, 0);
    assert!(stage.is_alive());
}

/// Ranges beyond the advertised limit are refused.
pub(crate) fn ranges_beyond_the_limit() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    disk(directory.path(), "disk", 1 << 40);
    let stage = Stage::in_directory(directory, &["path = \"HERE/disk\""]);
    let mut attacker = Attacker::new(&stage.socket(0), 64, None);
    assert!(attacker.start(64));
    for (kind, sectors, status) in
        [(11, u32::MAX, 1), (13, u32::MAX, 1), (11, (1 << 22) + 1, 1), (11, 1 << 22, 0)]
    {
        let range = [&0_u64.to_le_bytes()[..], &sectors.to_le_bytes(), &[0; 4]].concat();
        attacker.driver.write(PLACE, &range);
        attacker.request(kind, 0, &[(PLACE, 16, false)]);
        assert_eq!(attacker.ended(20 * SECOND), Some(status), "kind {kind}, {sectors} sectors");
    }
}

/// A guest that always has 1024 reads outstanding, while another one reads now and then.
pub(crate) fn never_quiet() {
    for size in [4 << 10, 64 << 10, 1 << 20] {
        beside_a_busy_one(size);
    }
}

fn beside_a_busy_one(size: u32) {
    const READS: usize = 20;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("disk"), vec![1; 1 << 20]).unwrap();
    let disks = ["path = \"HERE/disk\"", "path = \"HERE/disk\"\nread-only = true"];
    let mut stage = Stage::in_directory(directory, &disks);
    let mut quiet = Neighbour::new(&stage.socket(1));
    quiet.read(20 * SECOND).unwrap();
    let mut busy = Attacker::new(&stage.socket(0), 1024, None);
    assert!(busy.start(1024));
    let (stop, ended) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut waits: Vec<(Duration, u64)> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let read = (PLACE, size, true);
            for _ in 0..1024 {
                busy.request(0, 0, &[read]);
            }
            while !stop.load(Ordering::Relaxed) {
                while busy.driver.take().is_some() {
                    // Like `request`, but header and status are there already.
                    let before = busy.driver.offered();
                    busy.driver.add_indirect(&[(DATA, 16, false), read, (DATA + 0x100, 1, true)]).unwrap();
                    ended.fetch_add(1, Ordering::Relaxed);
                    if busy.driver.must_kick(before) {
                        busy.front.kick().unwrap();
                    }
                }
                std::thread::yield_now();
            }
        });
        let one = |_| {
            std::thread::sleep(Duration::from_millis(5));
            let before = ended.load(Ordering::Relaxed);
            let wait = quiet.read(10 * SECOND).expect("a quiet guest's read waits for 10 s and more");
            (wait, ended.load(Ordering::Relaxed) - before)
        };
        let waits = (0..READS).map(one).collect();
        stop.store(true, Ordering::Relaxed);
        waits
    });
    waits.sort_unstable();
    let (median, worst) = (waits[READS / 2].0, waits[READS - 1].0);
    // By the median: the worker is not to blame for what the busy guest gets until this thread has a CPU again.
    waits.sort_unstable_by_key(|(_, others)| *others);
    let bytes = waits[READS / 2].1 * u64::from(size);
    println!(
        "beside 1024 reads of {} KiB, a quiet guest's waited {median:?} in the median and {worst:?} at worst, for {} KiB of \
         the others' in the median",
        size >> 10,
        bytes >> 10
    );
    // A whole ring of smaller reads completes before this thread has a CPU again.
    assert!(size < 1 << 20 || bytes < 256 << 20, "a read waited for {bytes} bytes of the busy guest's");
    assert!(stage.is_alive());
}

/// Requests with as many descriptors as a table can have, all but two of them empty: walking them is work that no limit
/// counts.
pub(crate) fn pieces_of_nothing() {
    const ENTRIES: u64 = 32_768;
    let mut stage = Stage::new(&["", ""]);
    let mut quiet = Neighbour::new(&stage.socket(1));
    quiet.read(20 * SECOND).unwrap();
    let mut attacker = Attacker::new(&stage.socket(0), 64, None);
    assert!(attacker.start(64));
    let table = PLACE + 0xf000;
    for entry in 0..ENTRIES {
        let (size, flags) = match entry {
            0 => (16, 1),
            _ if entry == ENTRIES - 1 => (1, 2),
            _ => (0, 1 | 2),
        };
        attacker.driver.descriptor(table + 16 * entry, DATA, size, [flags, entry as u16 + 1]);
    }
    for head in 0..64 {
        attacker.driver.descriptor(Driver::slot(head), table, 16 * ENTRIES as u32, [4, 0]);
        attacker.driver.offer(head);
    }
    attacker.front.kick().unwrap();
    let (mut waits, mut made) = (Vec::new(), 0);
    for _ in 0..50 {
        while let Some((head, _)) = attacker.driver.take() {
            made += 1;
            attacker.driver.offer(head);
        }
        let _ = attacker.front.kick();
        waits.push(quiet.read(20 * SECOND).unwrap());
    }
    waits.sort_unstable();
    println!(
        "beside {made} requests of {ENTRIES} descriptors, 50 reads of another guest waited {:?} in the median and {:?} at worst",
        waits[25], waits[49]
    );
    assert!(
        super::stage::wait_readable(&attacker.error, SECOND),
        "the queue is given up, and the front-end told"
    );
    assert_eq!(made, 0);
    assert!(stage.is_alive());
}

/// Malformed requests, with a limit.
pub(crate) fn nonsense_against_a_limit() {
    let stage = Stage::new(&["requests-per-second = 100"]);
    let mut attacker = Attacker::new(&stage.socket(0), 64, None);
    assert!(attacker.start(64));
    let began = Instant::now();
    let mut count = 0;
    while began.elapsed() < SECOND {
        attacker.request(99, 0, &[(PLACE, 512, true)]);
        while attacker.driver.take().is_none() {
            assert!(began.elapsed() < 20 * SECOND);
            std::thread::yield_now();
        }
        count += 1;
    }
    println!("{count} requests of no known kind in {:?} at a limit of 100 a second", began.elapsed());
    assert!(count <= 110, "{count}");
}
