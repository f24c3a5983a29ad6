//! The back-end's cost of a request: shared workers, a worker for each device, and `qemu-storage-daemon` in both
//! arrangements, one after another in each round, under the same load by libblkio's front-end.
//!
//! `cargo bench -p iocm --bench block_peers [-- ROUNDS | moves] [PART]...`; `moves` measures moving queues alone, and a
//! PART of the titles of loads or of the names of peers leaves out the others. `IOCM_BENCH_OLD` names an older build of
//! this program, which is then a peer too, and `IOCM_BENCH_STORAGE_DAEMON` another `qemu-storage-daemon`. The back-end
//! runs on CPU 0 and the front-ends on CPU 1, so that no scheduler decides what is measured. CPU time is that of the whole
//! back-end process. Latencies count from the moment at which a request was due, so that a stall delays all requests after
//! it. At the end the medians over the rounds are compared with the aims of the daemon.

mod common;

mod block_peers {
    pub(crate) mod aims;
    pub(crate) mod front_end;
    pub(crate) mod load;
    pub(crate) mod moves;
    pub(crate) mod wake_up;
}

use block_peers::front_end::drive;
use block_peers::load::Load;
use common::{busy, cpu, run_on};
use iocm::config::Config;
use iocm::daemon::Daemon;
use std::error::Error;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Asks this program to be a back-end.
const SERVE: &str = "IOCM_BENCH_SERVE";
/// Names an older build of this program.
const OLD: &str = "IOCM_BENCH_OLD";
/// Names a `qemu-storage-daemon` other than the first of `PATH`.
const STORAGE_DAEMON: &str = "IOCM_BENCH_STORAGE_DAEMON";
/// The duration of each load.
pub(crate) const SECONDS: u64 = 2;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    if let Some(config) = std::env::var_os(SERVE) {
        return serve(Path::new(&config));
    }
    // `cargo test --benches` starts this too, and test runners ask it for its tests.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let rounds = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(3);
    let directory = tempfile::tempdir()?;
    let folder_in = |place: &Path| tempfile::Builder::new().prefix("exitless-bench-").tempdir_in(place);
    let memory = folder_in(Path::new("/dev/shm"))?;
    // Where this program is, there is a disk.
    let disk = folder_in(std::env::current_exe()?.parent().ok_or("a program without a folder")?)?;
    let images = |of| if of == Disk::Direct { disk.path() } else { memory.path() };
    if std::env::args().any(|argument| argument == "moves") {
        return moves(directory.path(), memory.path());
    }
    let mut peers =
        vec![Peer::Shared, Peer::Old, Peer::PerDevice, Peer::StorageDaemonShared, Peer::StorageDaemonEach];
    if std::env::var_os(OLD).is_none() {
        peers.retain(|peer| *peer != Peer::Old);
    }
    match Command::new(storage_daemon()).arg("--version").output() {
        Ok(said) if said.status.success() => {
            println!("{}", String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default());
        }
        _ => {
            println!(
                "not compared: there is no qemu-storage-daemon (package qemu-system-common or qemu-utils)"
            );
            peers.retain(|peer| !peer.is_foreign());
        }
    }
    let is_part = |word: &String| !word.starts_with('-') && word.parse::<u32>().is_err();
    let parts: Vec<String> = std::env::args().skip(1).filter(is_part).collect();
    let chosen = |name: &str| parts.iter().any(|part| name.contains(part.as_str()));
    if peers.iter().any(|peer| chosen(peer.name())) {
        peers.retain(|peer| chosen(peer.name()));
    }
    let cost = block_peers::wake_up::wake_up()?;
    println!("{cost:.2} us of CPU for a thread that is woken every 80 us and does nothing");
    let mut results = Vec::new();
    let all = Load::all().into_iter();
    let (some, others): (Vec<_>, Vec<_>) = all.partition(|(disk, load)| chosen(&load.title(*disk)));
    let is_whole = some.is_empty();
    for (disk, load) in if is_whole { others } else { some } {
        println!("\n{}", load.title(disk));
        println!(
            "{:<30} {:>9} {:>8} {:>8} {:>8} {:>8} {:>9}  {:>4}",
            "", "I/O a s", "us CPU", "p50 us", "p99 us", "p99.9", "fairness", "load"
        );
        for round in 0..rounds {
            // Each comes before the others as often as after them: disks and machines change their speed.
            peers.reverse();
            for &peer in &peers {
                let seen = measure(peer, disk, load, directory.path(), images(disk))?;
                println!("{:<30} {seen}  {:>4}", format!("{} ({})", peer.name(), round + 1), busy());
                results.push(Measured { peer, disk, load, seen });
            }
        }
    }
    block_peers::aims::print(&results);
    if is_whole { moves(directory.path(), memory.path()) } else { Ok(()) }
}

fn moves(directory: &Path, images: &Path) -> Outcome<()> {
    run_on(&[0, 1]);
    block_peers::moves::print(directory, &images.join("moved"))?;
    block_peers::moves::print_many(directory)
}

/// The figures of one peer under one load.
#[derive(Debug)]
pub(crate) struct Measured {
    peer: Peer,
    disk: Disk,
    load: Load,
    seen: Seen,
}

/// The storage of the measured disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    Null,
    /// A file in memory.
    File,
    /// A file on a disk, past the host's page cache.
    Direct,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Shared,
    /// [`Self::Shared`] of an older build.
    Old,
    PerDevice,
    StorageDaemonShared,
    StorageDaemonEach,
}

impl Peer {
    const fn name(self) -> &'static str {
        match self {
            Self::Shared => "one shared worker",
            Self::Old => "an older build, shared worker",
            Self::PerDevice => "a worker each",
            Self::StorageDaemonShared => "storage daemon, one iothread",
            Self::StorageDaemonEach => "storage daemon, one each",
        }
    }

    const fn is_foreign(self) -> bool {
        matches!(self, Self::StorageDaemonShared | Self::StorageDaemonEach)
    }

    fn start(self, disk: Disk, devices: usize, directory: &Path, images: &Path) -> Outcome<Child> {
        let socket = |number: usize| directory.join(format!("s{number}"));
        let image = |number: usize| -> Outcome<PathBuf> {
            let path = images.join(number.to_string());
            if !path.exists() {
                let mut file = File::create(&path)?;
                file.write_all(&vec![1; 16 << 20])?;
                // Or it is written to the disk while that is measured.
                file.sync_all()?;
            }
            Ok(path)
        };
        let mut command = if self.is_foreign() {
            let mut command = Command::new(storage_daemon());
            let threads = if self == Self::StorageDaemonShared { 1 } else { devices };
            for number in 0..threads {
                command.arg("--object").arg(format!("iothread,id=io{number}"));
            }
            for number in 0..devices {
                let node = match disk {
                    Disk::Null => format!("null-co,node-name=n{number},size=1073741824,read-zeroes=off"),
                    Disk::File | Disk::Direct => {
                        let (path, direct) =
                            (image(number)?, if disk == Disk::Direct { "on" } else { "off" });
                        format!(
                            "file,node-name=n{number},filename={},aio=io_uring,cache.direct={direct}",
                            path.display()
                        )
                    }
                };
                command.arg("--blockdev").arg(node).arg("--export").arg(format!(
                    "vhost-user-blk,id=e{number},node-name=n{number},addr.type=unix,addr.path={},writable=on,\
                     num-queues=1,iothread=io{}",
                    socket(number).display(),
                    number % threads
                ));
            }
            command
        } else {
            let arrangement = if self == Self::PerDevice { "per-device" } else { "shared" };
            let mut text = format!("[workers]\narrangement = \"{arrangement}\"\n");
            for number in 0..devices {
                let socket = socket(number);
                write!(text, "[[device]]\nname = \"d{number}\"\ntype = \"block\"\nsocket = {socket:?}\n")?;
                if disk != Disk::Null {
                    writeln!(text, "path = {:?}\ndirect = {}", image(number)?, disk == Disk::Direct)?;
                }
            }
            let config = directory.join("config.toml");
            std::fs::write(&config, text)?;
            let program = match std::env::var_os(OLD).filter(|_| self == Self::Old) {
                Some(old) => PathBuf::from(old),
                None => std::env::current_exe()?,
            };
            let mut command = Command::new(program);
            command.env(SERVE, config);
            command
        };
        run_on(&[0]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        run_on(&[1]);
        let begin = Instant::now();
        while !(0..devices).all(|number| socket(number).exists()) {
            if begin.elapsed() > Duration::from_secs(20) {
                return Err("the back-end does not begin".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(child)
    }
}

/// Is a back-end until the other side of standard input is gone.
fn serve(config: &Path) -> Outcome<()> {
    let daemon = Daemon::start(&Config::read(config)?)?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(daemon);
    Ok(())
}

fn storage_daemon() -> PathBuf {
    std::env::var_os(STORAGE_DAEMON).map_or_else(|| "qemu-storage-daemon".into(), PathBuf::from)
}

#[derive(Debug)]
pub(crate) struct Seen {
    /// Requests a second of all devices.
    rate: f64,
    /// CPU time of the back-end for a request.
    cpu_us: f64,
    /// The figure of the worst device, microseconds.
    p50: u32,
    p99: u32,
    p999: u32,
    /// The slowest device's share of the fastest one's.
    fairness: f64,
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rate, cpu_us, p50, p99, p999, fairness } = self;
        write!(f, "{rate:>9.0} {cpu_us:>8.2} {p50:>8} {p99:>8} {p999:>8} {:>7.0} %", fairness * 100.0)
    }
}

fn measure(peer: Peer, disk: Disk, load: Load, directory: &Path, images: &Path) -> Outcome<Seen> {
    for number in 0..load.devices {
        let _ = std::fs::remove_file(directory.join(format!("s{number}")));
    }
    let mut child = peer.start(disk, load.devices, directory, images)?;
    let before = cpu(child.id())?;
    let drivers: Vec<_> = (0..load.devices)
        .map(|number| {
            let socket = directory.join(format!("s{number}"));
            let load = load.of_device(number);
            std::thread::spawn(move || drive(&socket, load).map_err(|error| error.to_string()))
        })
        .collect();
    let mut latencies = Vec::new();
    for driver in drivers {
        latencies.push(driver.join().map_err(|_| "a front-end failed")??);
    }
    let used = cpu(child.id())? - before;
    drop(child.stdin.take());
    if peer.is_foreign() {
        child.kill()?;
    }
    child.wait()?;
    let total = latencies.iter().map(|one| one.len() as f64).sum::<f64>();
    if load.is_busy(0) {
        latencies.remove(0);
    }
    let counts: Vec<f64> = latencies.iter().map(|one| one.len() as f64).collect();
    let worst = |share: f64| {
        let at = |all: &mut Vec<u32>| {
            all.sort_unstable();
            all.get(((all.len() as f64 * share) as usize).min(all.len().saturating_sub(1)))
                .copied()
                .unwrap_or(0)
        };
        latencies.clone().iter_mut().map(at).max().unwrap_or(0)
    };
    let slowest = counts.iter().copied().fold(f64::INFINITY, f64::min);
    let fastest = counts.iter().copied().fold(0.0, f64::max);
    Ok(Seen {
        rate: total / SECONDS as f64,
        cpu_us: used * 1e6 / total.max(1.0),
        p50: worst(0.5),
        p99: worst(0.99),
        p999: worst(0.999),
        fairness: slowest / fastest.max(1.0),
    })
}
