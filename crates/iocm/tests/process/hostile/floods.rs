//! Front-ends that repeat a request endlessly: the effect on the daemon, and on its other front-ends.

use super::stage::{Attacker, FAR, Neighbour, Stage, memory, wait_readable};
use iocm::testing::{DATA, Piece, SIZE, USER};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::{IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// The number of open files of the whole machine (`fs/file-nr`).
fn open_files() -> i64 {
    let text = std::fs::read_to_string("/proc/sys/fs/file-nr").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

fn entries(stage: &Stage, of: &str) -> usize {
    std::fs::read_dir(format!("/proc/{}/{of}", stage.daemon.0.id())).unwrap().count()
}

fn mappings(stage: &Stage) -> usize {
    std::fs::read_to_string(format!("/proc/{}/maps", stage.daemon.0.id())).unwrap().lines().count()
}

/// Waits until a count falls to `most`, because things are released a little later.
fn falls_to(what: &str, most: usize, mut count: impl FnMut() -> usize) {
    let end = Instant::now() + LIMIT;
    while count() > most {
        assert!(Instant::now() < end, "{} {what}, more than {most}", count());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One call eventfd after another, each full and blocking: none of them stays in the kernel.
pub(crate) fn full_eventfds() {
    const TIMES: i64 = 5000;
    let mut stage = Stage::new(&["", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    let mut attacker = Attacker::new(&stage.socket(0), 64, None);
    assert!(attacker.start(64));
    let before = open_files();
    for _ in 0..TIMES {
        let file = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&file, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        assert!(attacker.front.tell(13, &0_u64.to_ne_bytes(), &[file.as_fd()]).unwrap());
        // The front-end shares the flag.
        rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::RDWR).unwrap();
    }
    let most = usize::try_from(before + TIMES / 2).unwrap();
    falls_to("open files", most, || usize::try_from(open_files()).unwrap());
    println!("{TIMES} full eventfds left {} open files", open_files() - before);
    assert!(neighbour.read(LIMIT).is_some());
    assert!(stage.is_alive());
}

/// Endless connections, each with half a message.
pub(crate) fn half_messages() {
    const TIMES: usize = 2000;
    let mut stage = Stage::new(&["", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    let connect = || {
        let mut stream = UnixStream::connect(stage.socket(0)).unwrap();
        // The header of a message of 4 KiB, which never comes.
        let header = [5_u32, 1, 4096].map(u32::to_ne_bytes).concat();
        stream.write_all(&header[..header.len() - 5]).unwrap();
    };
    (0..50).for_each(|_| connect());
    std::thread::sleep(Duration::from_millis(200));
    let (files, threads, memory) = (entries(&stage, "fd"), entries(&stage, "task"), stage.kib("VmRSS"));
    (0..TIMES).for_each(|_| connect());
    falls_to("files", files, || entries(&stage, "fd"));
    falls_to("threads", threads, || entries(&stage, "task"));
    let grown = stage.kib("VmRSS").saturating_sub(memory);
    println!("{TIMES} connections left {grown} KiB");
    assert!(grown < 4096, "{grown} KiB");
    assert!(neighbour.read(LIMIT).is_some());
    assert!(stage.is_alive());
}

/// Messages with more descriptors than any message of the protocol has.
pub(crate) fn descriptors_without_number() {
    /// The most descriptors that the kernel passes with a message (`SCM_MAX_FD`).
    const MAX: usize = 253;
    let mut stage = Stage::new(&["", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    let file = memory(4096);
    let files: Vec<BorrowedFd<'_>> = vec![file.as_fd(); MAX];
    let before = entries(&stage, "fd");
    for _ in 0..50 {
        let stream = UnixStream::connect(stage.socket(0)).unwrap();
        for _ in 0..4 {
            let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX))];
            let mut control = SendAncillaryBuffer::new(&mut room);
            assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
            let message = [2_u32, 1, 8, 0, 0].map(u32::to_ne_bytes).concat();
            let _ = sendmsg(&stream, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL);
        }
    }
    falls_to("files", before + 1, || entries(&stage, "fd"));
    assert!(neighbour.read(LIMIT).is_some());
    assert!(stage.is_alive());
}

/// Memory that loses single pages far apart: each makes the process's list of mappings longer, which is limited for all
/// guests together (`vm.max_map_count`).
pub(crate) fn pages_lost_apart() {
    const PIECES: u64 = 510;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("disk"), vec![7; 1 << 20]).unwrap();
    let mut stage = Stage::in_directory(directory, &["path = \"HERE/disk\"\ndirect = true", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    let (before, mut most) = (mappings(&stage), 0);
    for _ in 0..20 {
        let far = memory(PIECES << 13);
        let mut attacker = Attacker::new(&stage.socket(0), 512, Some((&far, PIECES << 13)));
        assert!(attacker.start(512));
        far.set_len(0).unwrap();
        let mut pieces: Vec<Piece> = (0..PIECES).map(|at| (FAR + (at << 13) + 1, 1, false)).collect();
        pieces.push((FAR, 512 - (PIECES % 512) as u32, false));
        attacker.request(1, 0, &pieces);
        assert!(wait_readable(&attacker.error, LIMIT), "the front-end is told");
        most = most.max(mappings(&stage));
    }
    println!("{PIECES} pages that were lost made {} mappings more at most", most - before);
    assert!(most - before < 200, "{most}");
    falls_to("mappings", before + 40, || mappings(&stage));
    assert!(neighbour.read(LIMIT).is_some());
    assert!(stage.is_alive());
}

/// The same with packets: a turn of a transmit queue has as many pages as a process may have mappings.
pub(crate) fn pages_lost_in_packets() {
    const PACKETS: u64 = 16;
    const PIECES: u64 = 1023;
    let net = "type = \"net\"\nbackend = { switch = \"lan\" }";
    let mut stage = Stage::new(&[net, net, ""]);
    let mut neighbour = Neighbour::new(&stage.socket(2));
    let before = mappings(&stage);
    let size = (PACKETS * PIECES) << 13;
    let mut attackers = [0, 1].map(|number| {
        let far = memory(size);
        let mut attacker = Attacker::new(&stage.socket(number), 64, Some((&far, size)));
        // A header and an Ethernet header, to an unknown address: such a packet is copied before it is forwarded.
        let head = [&[0; 12][..], &[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, number as u8, 0x88, 0xb5]].concat();
        attacker.driver.write(DATA, &head);
        for packet in 0..PACKETS {
            let mut pieces: Vec<Piece> = vec![(DATA, head.len() as u32, false)];
            pieces.extend((0..PIECES).map(|at| (FAR + ((packet * PIECES + at) << 13), 1, false)));
            attacker.driver.add_indirect(&pieces).unwrap();
        }
        far.set_len(0).unwrap();
        attacker
    });
    for attacker in &mut attackers {
        // All packets become available at once when the queue is enabled: before that, packets are dropped. The second
        // queue of a network device transmits.
        let index = attacker.driver.layout().driver - USER + 2;
        attacker.driver.word(index).store(0, Ordering::Relaxed);
        assert!(attacker.start_queue(1, 64));
        attacker.driver.word(index).store(PACKETS as u16, Ordering::Release);
        attacker.front.kick().unwrap();
    }
    for attacker in &attackers {
        assert!(wait_readable(&attacker.error, LIMIT), "the front-end is told");
    }
    let most = mappings(&stage);
    println!("{} pages that were lost made {} mappings more", 2 * PACKETS * PIECES, most - before);
    assert!(most < 4096, "{most}");
    assert!(neighbour.read(LIMIT).is_some());
    assert!(stage.is_alive());
    drop(attackers);
    falls_to("mappings", before + 40, || mappings(&stage));
}

/// Endless requests to the device that stop and start its queue, and map and unmap memory.
pub(crate) fn messages_without_end() {
    const READS: usize = 200;
    let mut stage = Stage::new(&["", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    neighbour.read(LIMIT).unwrap();
    let mut attacker = Attacker::new(&stage.socket(0), 64, None);
    assert!(attacker.start(64));
    let far: Vec<File> = (0..7).map(|_| memory(1 << 30)).collect();
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut waits: Vec<Duration> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut table = [8_u32, 0].map(u32::to_ne_bytes).concat();
            table.extend([0, SIZE, USER, 0].iter().flat_map(|word: &u64| word.to_ne_bytes()));
            for number in 1..8 {
                let words = [FAR * number, 1 << 30, USER + FAR * number, 0];
                table.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
            }
            let files: Vec<BorrowedFd<'_>> = std::iter::once(attacker.driver.file.as_fd())
                .chain(far.iter().map(|file| file.as_fd()))
                .collect();
            let layout = attacker.driver.layout();
            let mut addresses = [0_u32, 0].map(u32::to_ne_bytes).concat();
            let parts = [layout.descriptors, layout.device, layout.driver, 0];
            addresses.extend(parts.iter().flat_map(|word| word.to_ne_bytes()));
            while !stop.load(Ordering::Relaxed) {
                assert!(attacker.front.tell(5, &table, &files).unwrap());
                assert!(attacker.front.tell(9, &addresses, &[]).unwrap());
                count.fetch_add(2, Ordering::Relaxed);
            }
        });
        let waits = (0..READS).map(|_| {
            std::thread::sleep(Duration::from_millis(2));
            neighbour.read(LIMIT).expect("another guest's read waits for the messages")
        });
        let waits = waits.collect();
        stop.store(true, Ordering::Relaxed);
        waits
    });
    waits.sort_unstable();
    let (median, worst) = (waits[READS / 2], waits[READS - 1]);
    println!(
        "beside {} messages, {READS} reads of another guest waited {median:?} in the median and {worst:?} at worst",
        count.load(Ordering::Relaxed)
    );
    assert!(median < Duration::from_millis(100), "{median:?}");
    assert!(stage.is_alive());
}
