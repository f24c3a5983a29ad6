//! The cost of a hostile guest to honest ones: seven disks that read at a fixed rate, and an eighth device on the same I/O
//! worker whose guest or front-end does its worst.
//!
//! `cargo bench -p iocm --bench block_attacks [-- ROUNDS] [PART]...`; only attacks whose names contain a PART are
//! measured. The daemon runs on CPU 0, and all front-ends on CPU 1, where the attacker only gets what the honest ones
//! leave (`SCHED_IDLE`): the bench measures the daemon, not the scheduler of CPU 1. Latencies count from the time at
//! which a request was due. Each attack is compared with the run without an attack before it.

mod common;

use common::{busy, parts, rounds, run_on};
use iocm::config::Config;
use iocm::control::client::Client;
use iocm::ring::RingFeatures;
use iocm::running::Ready;
use iocm::testing::{BlockDriver, DATA, Driver, FrontEnd, NetDriver, Piece, SIZE, USER, connect_within};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::error::Error;
use std::fmt::Write as _;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The variable that makes this program the daemon.
const SERVE: &str = "IOCM_BENCH_SERVE";
/// The number of honest guests.
const HONEST: usize = 7;
/// The requests per second of each.
const RATE: f64 = 500.0;
/// The duration of each measurement.
const TIME: Duration = Duration::from_secs(3);
/// The aim: honest guests wait at most this many times as long as without an attack.
const AIM: f64 = 2.0;

const FEATURES: RingFeatures = RingFeatures { packed: false, event_index: false, indirect: true };

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The attack of the eighth guest or its front-end, repeated as often as it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attack {
    Nothing,
    /// Reads of 4 KiB.
    Reads,
    /// Reads of 4 MiB.
    LargeReads,
    /// Reads whose chains have as many pieces as a queue allows.
    LongChains,
    /// The same with pieces of a byte, in memory of as many regions as are possible.
    Regions,
    /// Writes of 4 KiB, each with a flush.
    Flushes,
    Discards,
    ZeroWrites,
    /// Requests whose header is too short.
    Malformed,
    /// Frames with a new source address each.
    Addresses,
    /// Connections that negotiate, and disconnect.
    Connections,
    /// Messages that ask for the device's configuration.
    ConfigReads,
    /// Reads of the control tree.
    ControlReads,
}

const ATTACKS: &[(Attack, &str)] = &[
    (Attack::Reads, "4 KiB reads"),
    (Attack::LargeReads, "4 MiB reads"),
    (Attack::LongChains, "chains of 1,024"),
    (Attack::Regions, "509 regions"),
    (Attack::Flushes, "writes and flushes"),
    (Attack::Discards, "discards"),
    (Attack::ZeroWrites, "write zeroes"),
    (Attack::Malformed, "malformed requests"),
    (Attack::Addresses, "source addresses"),
    (Attack::Connections, "connections"),
    (Attack::ConfigReads, "GET_CONFIG"),
    (Attack::ControlReads, "control socket"),
];

fn main() -> Outcome<()> {
    if let Some(config) = std::env::var_os(SERVE) {
        let running = Ready::open(&Config::read(Path::new(&config))?)?.run()?;
        std::io::stdin().read_to_end(&mut Vec::new())?;
        drop(running);
        return Ok(());
    }
    // `cargo test --benches` starts this too, and test runners ask it for a list of its tests.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let (rounds, parts) = (rounds(), parts());
    println!("{HONEST} disks in memory, {RATE} reads of 4 KiB a second each, one I/O worker");
    println!(
        "{:<20} {:>5} {:>9} {:>9} {:>9} {:>9} {:>12} {:>6}",
        "attack", "round", "p50 us", "p99 us", "without", "times", "attacks/s", "load"
    );
    let mut missed = Vec::new();
    for &(attack, name) in ATTACKS {
        if !parts.is_empty() && !parts.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let mut times = Vec::new();
        for round in 1..=rounds {
            let (without, with) = (measure(Attack::Nothing)?, measure(attack)?);
            let ratio = f64::from(with.p99) / f64::from(without.p99.max(1));
            println!(
                "{name:<20} {round:>5} {:>9} {:>9} {:>9} {ratio:>9.2} {:>12.0} {:>6}",
                with.p50,
                with.p99,
                without.p99,
                with.attacks,
                busy()
            );
            times.push(ratio);
        }
        times.sort_by(f64::total_cmp);
        if times[times.len() / 2] > AIM {
            missed.push(format!("{name} ({:.1} times)", times[times.len() / 2]));
        }
    }
    match missed.is_empty() {
        true => println!("the medians meet the aim: at most {AIM} times the p99 without an attack"),
        false => println!("above {AIM} times the p99 without an attack: {}", missed.join(", ")),
    }
    Ok(())
}

/// Latencies of the honest guests, microseconds, and the repetitions of the attack per second.
struct Seen {
    p50: u32,
    p99: u32,
    attacks: f64,
}

fn measure(attack: Attack) -> Outcome<Seen> {
    let directory = tempfile::Builder::new().prefix("exitless-bench-").tempdir_in("/dev/shm")?;
    let mut daemon = start(directory.path())?;
    let stop = AtomicBool::new(false);
    let attacks = AtomicU64::new(0);
    let latencies = std::thread::scope(|scope| -> Outcome<Vec<u32>> {
        let attacker = scope.spawn(|| storm(attack, directory.path(), &stop, &attacks));
        let honest: Vec<_> = (0..HONEST)
            .map(|number| {
                let socket = directory.path().join(format!("d{number}"));
                scope.spawn(move || read_at_rate(&socket))
            })
            .collect();
        let all: Vec<_> = honest.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        attacker.join().map_err(|_| "the attacker failed")??;
        let mut latencies = Vec::new();
        for one in all {
            latencies.extend(one.map_err(|_| "an honest guest failed")??);
        }
        Ok(latencies)
    });
    drop(daemon.stdin.take());
    if !daemon.wait()?.success() {
        return Err(format!("the daemon failed under {attack:?}").into());
    }
    let mut latencies = latencies?;
    latencies.sort_unstable();
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
    let attacks = attacks.load(Ordering::Relaxed) as f64 / TIME.as_secs_f64();
    Ok(Seen { p50: at(0.5), p99: at(0.99), attacks })
}

fn start(directory: &Path) -> Outcome<Child> {
    let at = |name: &str| directory.join(name);
    let mut text = format!("[control]\nsocket = {:?}\nmount = \"\"\n", at("control"));
    for number in 0..=HONEST {
        let (socket, path) = (at(&format!("d{number}")), at(&format!("disk{number}")));
        std::fs::write(&path, vec![1; 16 << 20])?;
        write!(
            text,
            "[[device]]\nname = \"d{number}\"\ntype = \"block\"\nsocket = {socket:?}\npath = {path:?}\n"
        )?;
    }
    let socket = at("net");
    write!(
        text,
        "[[device]]\nname = \"net\"\ntype = \"net\"\nsocket = {socket:?}\nbackend = {{ switch = \"lan\" }}\n"
    )?;
    std::fs::write(at("config.toml"), text)?;
    run_on(&[0]);
    let mut command = Command::new(std::env::current_exe()?);
    // It logs what it refuses.
    command.env(SERVE, at("config.toml")).stdin(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn()?;
    run_on(&[1]);
    Ok(child)
}

fn connect(socket: &Path) -> Outcome<FrontEnd> {
    Ok(FrontEnd::new(connect_within(Duration::from_secs(20), socket)?)?)
}

/// An honest guest: reads at its rate, and waits for each answer. Returns the latencies, microseconds.
fn read_at_rate(socket: &Path) -> Outcome<Vec<u32>> {
    let mut driver = BlockDriver::new(64, FEATURES);
    let mut front = connect(socket)?;
    front.negotiate(&driver.driver, 0)?;
    if !front.start(0, &driver.driver.layout(), 64, 0)? {
        return Err("the queue was refused".into());
    }
    // SAFETY: the call only changes the timer slack of this thread (PR_SET_TIMERSLACK); timers would be 50 us late.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_usize) };
    let (begin, mut latencies) = (Instant::now(), Vec::new());
    for number in 0_u32.. {
        let due = begin + Duration::from_secs_f64(f64::from(number) / RATE);
        if due > begin + TIME {
            break;
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        driver.driver.enable_calls(true);
        driver.submit(0, u64::from(number % 4096) * 8, &[], 4096).ok_or("the queue is full")?;
        front.kick()?;
        let status = loop {
            if let Some((_, status, _)) = driver.ended() {
                break status;
            }
            if due.elapsed() > Duration::from_secs(20) {
                return Err("a read does not end".into());
            }
            let limit = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            poll(&mut [PollFd::new(&front.call, PollFlags::IN)], Some(&limit))?;
            let _ = rustix::io::read(&front.call, &mut [0; 8]);
        };
        latencies.push(u32::try_from(due.elapsed().as_micros()).unwrap_or(u32::MAX));
        if status != 0 {
            return Err(format!("a read failed: {status}").into());
        }
    }
    Ok(latencies)
}

fn storm(attack: Attack, directory: &Path, stop: &AtomicBool, attacks: &AtomicU64) -> Outcome<()> {
    let goes_on = || !stop.load(Ordering::Relaxed);
    let did = |times: u64| attacks.fetch_add(times, Ordering::Relaxed);
    let idle = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call only changes this thread, and the structure is alive.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const idle) };
    let socket = directory.join(format!("d{HONEST}"));
    match attack {
        Attack::Nothing => Ok(()),
        Attack::Addresses => send_from_everywhere(&directory.join("net"), goes_on, did),
        Attack::Connections => {
            let driver = Driver::new(64, FEATURES);
            while goes_on() {
                // The back-end may still be busy with the last one.
                let _ = connect(&socket)?.negotiate(&driver, 0);
                did(1);
            }
            Ok(())
        }
        Attack::ConfigReads => {
            let mut front = connect(&socket)?;
            front.negotiate(&Driver::new(64, FEATURES), 0)?;
            // VHOST_USER_GET_CONFIG: offset, size, flags, and as many bytes.
            let payload = [&[0_u32, 60, 0].map(u32::to_ne_bytes).concat()[..], &[0; 60]].concat();
            while goes_on() {
                front.send(24, 1, &payload, &[])?;
                front.receive()?;
                did(1);
            }
            Ok(())
        }
        Attack::ControlReads => {
            let path: PathBuf = directory.join("control");
            while goes_on() {
                let Ok(mut client) = Client::connect(&path) else { continue };
                for _ in 0..100 {
                    client.list("/")?;
                    client.get("/")?;
                    did(2);
                }
            }
            Ok(())
        }
        requests => request(requests, &socket, goes_on, did),
    }
}

/// Floods the attacker's queue with requests.
fn request(
    attack: Attack,
    socket: &Path,
    goes_on: impl Fn() -> bool,
    did: impl Fn(u64) -> u64,
) -> Outcome<()> {
    const QUEUE: u16 = 1024;
    const HEADER: u64 = DATA;
    const STATUS: u64 = DATA + 0x100;
    const RANGE: u64 = DATA + 0x200;
    const ROOM: u64 = DATA + 0x1000;
    /// VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_DISCARD and VIRTIO_BLK_F_WRITE_ZEROES.
    const MORE: u64 = 1 << 9 | 1 << 13 | 1 << 14;
    let mut driver = Driver::new(QUEUE, FEATURES);
    let mut front = connect(socket)?;
    front.negotiate(&driver, MORE)?;
    // VHOST_USER_ADD_MEM_REG: pages above the memory that the driver uses.
    for number in 1..if attack == Attack::Regions { 509 } else { 1 } {
        let at = SIZE + (number << 12);
        let payload = [0, at, 4096, USER + at, 0].map(u64::to_ne_bytes).concat();
        if !front.tell(37, &payload, &[driver.file.as_fd()])? {
            return Err("a region was refused".into());
        }
    }
    if !front.start(0, &driver.layout(), QUEUE.into(), 0)? {
        return Err("the attacker's queue was refused".into());
    }
    // VIRTIO 1.3, 5.2.6: the type of a request; 5.2.6.2 the range of a discard: sector, sectors, flags.
    let kind: u32 = match attack {
        Attack::Flushes => 1,
        Attack::Discards => 11,
        Attack::ZeroWrites => 13,
        _ => 0,
    };
    driver.write(HEADER, &[&kind.to_le_bytes()[..], &[0; 12]].concat());
    driver.write(HEADER + 0x40, &[&4_u32.to_le_bytes()[..], &[0; 12]].concat());
    driver.write(RANGE, &[&0_u64.to_le_bytes()[..], &(4_u32 << 11).to_le_bytes(), &[0; 4]].concat());
    let data: Vec<Piece> = match attack {
        Attack::LargeReads => vec![(ROOM, 4 << 20, true)],
        Attack::LongChains => (0..1022).map(|piece| (ROOM + piece * 512, 512, true)).collect(),
        Attack::Regions => vec![(ROOM, 1, false); 1022],
        Attack::Flushes => vec![(ROOM, 4096, false)],
        Attack::Discards | Attack::ZeroWrites => vec![(RANGE, 16, false)],
        Attack::Malformed => Vec::new(),
        _ => vec![(ROOM, 4096, true)],
    };
    let mut pieces: Vec<Piece> = vec![(HEADER, if attack == Attack::Malformed { 3 } else { 16 }, false)];
    pieces.extend(data);
    pieces.push((STATUS, 1, true));
    let flush: [Piece; 2] = [(HEADER + 0x40, 16, false), (STATUS, 1, true)];
    while goes_on() {
        let mut added = false;
        while driver.add_indirect(&pieces).is_some() {
            added = true;
            if attack == Attack::Flushes {
                driver.add_indirect(&flush);
            }
        }
        if added {
            front.kick()?;
        }
        let mut ended = 0;
        while driver.take().is_some() {
            ended += 1;
        }
        did(ended);
    }
    Ok(())
}

/// Sends frames to the switch, each from a new source address.
fn send_from_everywhere(socket: &Path, goes_on: impl Fn() -> bool, did: impl Fn(u64) -> u64) -> Outcome<()> {
    let mut driver = NetDriver::new(64, FEATURES);
    let mut front = connect(socket)?;
    front.negotiate(&driver.receive, 0)?;
    for (index, layout) in [(0, driver.receive.layout()), (1, driver.transmit.layout())] {
        if !front.start(index, &layout, 64, 0)? {
            return Err("the attacker's queue was refused".into());
        }
    }
    let mut frame = [0_u8; 64];
    frame[..6].fill(0xff);
    let mut number = 0_u64;
    while goes_on() {
        let mut added = false;
        loop {
            frame[6..12].copy_from_slice(&number.to_be_bytes()[2..]);
            frame[6] = 2;
            if driver.send([0; 10], &frame).is_none() {
                break;
            }
            (number, added) = (number + 1, true);
        }
        if added {
            front.kick()?;
        }
        while driver.sent().is_some() {
            did(1);
        }
    }
    Ok(())
}
