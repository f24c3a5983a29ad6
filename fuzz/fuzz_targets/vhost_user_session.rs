//! A hostile front-end: any messages in any order, with any memory, descriptors and inflight memory, to a session of a
//! real device with a real worker. Afterwards an honest front-end of the same worker is served.

#![no_main]

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use iocm::device::block::{BlockDevice, BlockOptions};
use iocm::pool::Pool;
use iocm::ring::RingFeatures;
use iocm::session::{Backend, Session};
use iocm::testing::{BlockDriver, FrontEnd, SIZE, USER, memory_file};
use iocm::worker::WorkerOptions;
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input {
    packed: bool,
    steps: Vec<Step>,
}

#[derive(Debug, Arbitrary)]
enum Step {
    /// Any bytes.
    Raw {
        code: u8,
        flags: u8,
        payload: Vec<u8>,
        files: Vec<Kind>,
    },
    /// The negotiation with which a front-end begins.
    Agree,
    Features(u64),
    Protocol(u64),
    Memory {
        regions: Vec<(u8, u16, u8)>,
        files: Vec<Kind>,
    },
    AddRegion {
        guest: u8,
        size: u16,
        file: Kind,
    },
    RemoveRegion {
        guest: u8,
        size: u16,
    },
    Size {
        ring: u8,
        size: u16,
    },
    Base {
        ring: u8,
        base: u32,
    },
    Addresses {
        ring: u8,
        shift: u16,
        flags: u8,
        log: Option<u64>,
    },
    Kick {
        ring: u8,
        file: Kind,
    },
    Call {
        ring: u8,
        file: Kind,
    },
    Error {
        ring: u8,
        file: Kind,
    },
    Enable {
        ring: u8,
        on: bool,
    },
    Stop {
        ring: u8,
    },
    MakeInflight {
        queues: u8,
        size: u16,
    },
    SetInflight {
        size: u32,
        queues: u8,
        queue_size: u16,
        words: Vec<u16>,
        file: Kind,
    },
    Log {
        size: u16,
        file: Kind,
    },
    BackendRequests(Kind),
    Config {
        offset: u8,
        bytes: Vec<u8>,
    },
    Status(u8),
    /// Starts the first ring as an honest front-end does.
    Start,
    /// Makes requests available, and kicks.
    Request {
        kind: u8,
        sector: u32,
        size: u16,
    },
    Offer(u16),
    Cut(u16),
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Kind {
    Guest,
    Memory(u16),
    Eventfd,
    Full,
    Pipe,
    Null,
    Socket,
    None,
}

struct World {
    pool: Arc<Pool>,
    attacked: Arc<Backend>,
    neighbour: Mutex<(BlockDriver, FrontEnd)>,
}

fn disk() -> Arc<Backend> {
    let device = BlockDevice::open(BlockOptions { queues: 2, ..BlockOptions::default() });
    Backend::new("d", Box::new(device.expect("a null disk")))
}

fn connect(backend: &Arc<Backend>, pool: &Arc<Pool>) -> (UnixStream, std::thread::JoinHandle<()>) {
    let (ours, theirs) = UnixStream::pair().expect("a socket");
    let mut session = Session::new(Arc::clone(backend), Arc::clone(pool));
    (ours, std::thread::spawn(move || drop(session.run(theirs))))
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let pool = Pool::new();
        pool.add_worker(&WorkerOptions::default()).expect("a worker");
        let driver = BlockDriver::new(64, RingFeatures { packed: false, event_index: false, indirect: true });
        let (stream, _session) = connect(&disk(), &pool);
        let mut front = FrontEnd::new(stream).expect("files");
        front.negotiate(&driver.driver, 0).expect("it negotiates");
        assert!(front.start(0, &driver.driver.layout(), 64, 0).expect("it is there"));
        World { pool, attacked: disk(), neighbour: Mutex::new((driver, front)) }
    })
}

fn file(kind: Kind, guest: &File) -> Option<OwnedFd> {
    use rustix::event::{EventfdFlags, eventfd};
    Some(match kind {
        Kind::Guest => guest.try_clone().ok()?.into(),
        Kind::Memory(pages) => memory_file(u64::from(pages) * 512).into(),
        Kind::Eventfd => eventfd(0, EventfdFlags::NONBLOCK).ok()?,
        Kind::Full => {
            let file = eventfd(0, EventfdFlags::empty()).ok()?;
            rustix::io::write(&file, &(u64::MAX - 1).to_ne_bytes()).ok()?;
            file
        }
        Kind::Pipe => std::io::pipe().ok()?.1.into(),
        Kind::Null => File::open("/dev/null").ok()?.into(),
        Kind::Socket => UnixStream::pair().ok()?.0.into(),
        Kind::None => return None,
    })
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn halves(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The message of a step: code, payload and files.
fn message(step: &Step, guest: &File, driver: &BlockDriver) -> Option<(u32, Vec<u8>, Vec<OwnedFd>)> {
    let one = |kind: &Kind| file(*kind, guest).into_iter().collect::<Vec<_>>();
    let region = |guest: u8, size: u16| {
        let (at, size) = (u64::from(guest) << 20, u64::from(size) << 12);
        [at, size, USER + at, 0]
    };
    let eventfd = |ring: &u8, kind: &Kind| {
        let none = if matches!(kind, Kind::None) { 1 << 8 } else { 0 };
        (words(&[u64::from(*ring % 3) | none]), one(kind))
    };
    let number = |ring: &u8| u32::from(*ring % 3);
    Some(match step {
        Step::Raw { code, payload, files, .. } => {
            let files = files.iter().take(8).filter_map(|kind| file(*kind, guest)).collect();
            (u32::from(*code) % 48, payload.clone(), files)
        }
        Step::Features(features) => (2, words(&[*features]), vec![]),
        Step::Protocol(features) => (16, words(&[*features]), vec![]),
        Step::Memory { regions, files } => {
            let files: Vec<_> = files.iter().take(8).filter_map(|kind| file(*kind, guest)).collect();
            let mut payload = halves(&[regions.len().min(8) as u32, 0]);
            for (at, size, offset) in regions.iter().take(8) {
                let mut words_of = region(*at, *size);
                words_of[3] = u64::from(*offset) << 10;
                payload.extend(words(&words_of));
            }
            (5, payload, files)
        }
        Step::AddRegion { guest: at, size, file } => {
            (37, [words(&[0]), words(&region(*at, *size))].concat(), one(file))
        }
        Step::RemoveRegion { guest: at, size } => {
            (38, [words(&[0]), words(&region(*at, *size))].concat(), vec![])
        }
        Step::Size { ring, size } => (8, halves(&[number(ring), u32::from(*size)]), vec![]),
        Step::Base { ring, base } => (10, halves(&[number(ring), *base]), vec![]),
        Step::Addresses { ring, shift, flags, log } => {
            let layout = driver.driver.layout();
            let by = u64::from(*shift) << 2;
            let log = log.unwrap_or(0);
            let addresses = [layout.descriptors + (by << 2), layout.device + by, layout.driver + by, log];
            (9, [halves(&[number(ring), u32::from(*flags) & 1]), words(&addresses)].concat(), vec![])
        }
        Step::Kick { ring, file } => {
            let (payload, files) = eventfd(ring, file);
            (12, payload, files)
        }
        Step::Call { ring, file } => {
            let (payload, files) = eventfd(ring, file);
            (13, payload, files)
        }
        Step::Error { ring, file } => {
            let (payload, files) = eventfd(ring, file);
            (14, payload, files)
        }
        Step::Enable { ring, on } => (18, halves(&[number(ring), u32::from(*on)]), vec![]),
        Step::Stop { ring } => (11, halves(&[number(ring), 0]), vec![]),
        Step::MakeInflight { queues, size } => {
            let counts = u32::from(*queues % 4) | u32::from(*size) << 16;
            (31, [words(&[0, 0]), halves(&[counts, 0])].concat(), vec![])
        }
        Step::SetInflight { size, queues, queue_size, words: content, file: kind } => {
            use std::os::unix::fs::FileExt as _;
            let counts = u32::from(*queues % 4) | u32::from(*queue_size) << 16;
            let files = one(kind);
            if let Some(file) = files.first().filter(|_| matches!(kind, Kind::Memory(_))) {
                let bytes: Vec<u8> = content.iter().flat_map(|word| word.to_ne_bytes()).collect();
                let file = File::from(file.try_clone().ok()?);
                let room = file.metadata().map_or(0, |data| data.len()) as usize;
                file.write_all_at(&bytes[..bytes.len().min(room)], 0).ok()?;
            }
            (32, [words(&[u64::from(*size), 0]), halves(&[counts, 0])].concat(), files)
        }
        Step::Log { size, file } => (6, words(&[u64::from(*size), 0]), one(file)),
        Step::BackendRequests(file) => (21, vec![], one(file)),
        Step::Config { offset, bytes } => {
            let size = bytes.len().min(60) as u32;
            let head = halves(&[u32::from(*offset), size, 0]);
            (25, [head, bytes[..size as usize].to_vec()].concat(), vec![])
        }
        Step::Status(status) => (39, words(&[u64::from(*status)]), vec![]),
        _ => return None,
    })
}

fuzz_target!(|input: Input| {
    let world = world();
    let ring = RingFeatures { packed: input.packed, event_index: false, indirect: true };
    let mut driver = BlockDriver::new(64, ring);
    let guest = driver.driver.file.try_clone().expect("a descriptor");
    let (stream, session) = connect(&world.attacked, &world.pool);
    // Answers are read and dropped, so that the session continues.
    let reader = stream.try_clone().expect("a descriptor");
    let mut front = FrontEnd::new(stream).expect("files");
    let drain = || {
        while rustix::net::recv(&reader, &mut [0; 4096], rustix::net::RecvFlags::DONTWAIT)
            .is_ok_and(|(count, _)| count > 0)
        {}
    };
    for step in input.steps.iter().take(64) {
        let flags = if let Step::Raw { flags, .. } = step { u32::from(*flags) } else { 1 };
        match step {
            Step::Agree => {
                let features = 1 << 32 | 1 << 30 | 1 << 28 | u64::from(input.packed) << 34;
                let files = [guest.as_fd()];
                let table = [halves(&[1, 0]), words(&[0, SIZE, USER, 0])].concat();
                let _ = front.send(16, 1, &words(&[0x1_9e2b]), &[]);
                let _ = front.send(2, 1, &words(&[features]), &[]);
                let _ = front.send(5, 1, &table, &files);
            }
            Step::Start => {
                let layout = driver.driver.layout();
                let base = if input.packed { 0x8000_8000 } else { 0 };
                let (kick, call) = (
                    front.kick.try_clone().expect("a descriptor"),
                    front.call.try_clone().expect("a descriptor"),
                );
                let _ = front.send(8, 1, &halves(&[0, 64]), &[]);
                let _ = front.send(10, 1, &halves(&[0, base]), &[]);
                let addresses = words(&[layout.descriptors, layout.device, layout.driver, 0]);
                let _ = front.send(9, 1, &[halves(&[0, 0]), addresses].concat(), &[]);
                let _ = front.send(13, 1, &words(&[0]), &[call.as_fd()]);
                let _ = front.send(12, 1, &words(&[0]), &[kick.as_fd()]);
                let _ = front.send(18, 1, &halves(&[0, 1]), &[]);
            }
            Step::Request { kind, sector, size } => {
                let _ =
                    driver.submit(u32::from(*kind) % 16, u64::from(*sector), &[], u32::from(*size) % 0x8000);
                let _ = front.kick();
            }
            Step::Offer(head) if !input.packed => {
                driver.driver.offer(*head);
                let _ = front.kick();
            }
            Step::Cut(pages) => drop(guest.set_len(u64::from(*pages) << 8)),
            step => {
                if let Some((code, payload, files)) = message(step, &guest, &driver) {
                    let files: Vec<BorrowedFd<'_>> = files.iter().map(|file| file.as_fd()).collect();
                    let _ = front.send(code, flags, &payload, &files);
                }
            }
        }
        drain();
        // The driver's own memory may be gone: this process must not touch it.
        if matches!(step, Step::Cut(_)) {
            break;
        }
    }
    let _ = world.attacked.config_changed();
    drain();
    drop((front, reader));
    let began = Instant::now();
    while !session.is_finished() {
        assert!(began.elapsed() < Duration::from_secs(20), "the session hangs");
        std::thread::yield_now();
    }
    assert!(session.join().is_ok(), "the session has panicked");
    let mut neighbour = world.neighbour.lock().expect("one at a time");
    let (driver, front) = &mut *neighbour;
    let before = driver.driver.offered();
    driver.submit(0, 0, &[], 512).expect("a place");
    if driver.driver.must_kick(before) {
        front.kick().expect("it can be kicked");
    }
    let began = Instant::now();
    while driver.ended().is_none() {
        assert!(began.elapsed() < Duration::from_secs(20), "the neighbour is not served");
        std::thread::yield_now();
    }
});
