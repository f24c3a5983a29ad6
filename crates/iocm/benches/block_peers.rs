//! The back-end's cost of a request: shared workers, a worker for each device, `qemu-storage-daemon` in both
//! arrangements, and other back-ends that are named, one after another in each round, under the same load from
//! libblkio's front-end.
//!
//! `cargo bench -p iocm --bench block_peers [-- ROUNDS | moves] [PART]...`; `moves` only measures moving queues, and
//! only loads and peers whose names contain a PART are measured. Environment variables name programs by their paths:
//!
//! - `IOCM_BENCH_OLD`: an older build of this program, which is then a peer, too.
//! - `IOCM_BENCH_STORAGE_DAEMON`: another `qemu-storage-daemon`.
//! - `IOCM_BENCH_SPDK_VHOST`: SPDK's `vhost`, which is then a peer for each load.
//! - `IOCM_BENCH_VHOST_USER_BLOCK`: cloud-hypervisor's `vhost_user_block`, which is then a peer for files.
//!
//! The back-end runs on CPU 0 and the front-ends on CPU 1, so that no scheduler decides what is measured. CPU time is
//! that of all processes of the back-end. Latencies count from the time at which a request was due, so a stall delays
//! all requests after it. At the end, the medians over the rounds are compared with the aims of the daemon.

mod common;

mod block_peers {
    pub(crate) mod aims;
    pub(crate) mod front_end;
    pub(crate) mod load;
    pub(crate) mod moves;
    pub(crate) mod peer;
    pub(crate) mod wake_up;
}

use block_peers::front_end::drive;
use block_peers::load::Load;
use block_peers::peer::{Disk, Disks, Peer};
use common::{busy, keep_chosen, rounds, run_on};
use iocm::config::Config;
use iocm::daemon::Daemon;
use std::error::Error;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

/// The variable that makes this program a back-end.
pub(crate) const SERVE: &str = "IOCM_BENCH_SERVE";
/// The duration of each load, seconds.
pub(crate) const SECONDS: u64 = 2;
/// The time without I/O before each load on a disk, seconds. A virtual machine's disk may have a budget for bursts:
/// without a rest, the second back-end of a round had two thirds of the I/O of the first.
const REST_SECONDS: u64 = 8;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    if let Some(config) = std::env::var_os(SERVE) {
        return serve(Path::new(&config));
    }
    // `cargo test --benches` starts this too, and test runners ask it for a list of its tests.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let folder_in = |place: &Path| tempfile::Builder::new().prefix("exitless-bench-").tempdir_in(place);
    let memory = folder_in(Path::new("/dev/shm"))?;
    // The folder of this program is on a disk.
    let disk = folder_in(std::env::current_exe()?.parent().ok_or("a program without a folder")?)?;
    let images = |of| if of == Disk::Direct { disk.path() } else { memory.path() };
    if std::env::args().any(|argument| argument == "moves") {
        return moves(directory.path(), memory.path());
    }
    let mut peers = Peer::all_here();
    keep_chosen(&mut peers, |peer| peer.name().to_owned());
    let cost = block_peers::wake_up::wake_up()?;
    println!("{cost:.2} us of CPU for a thread that is woken every 80 us and does nothing");
    let mut results = Vec::new();
    let mut loads = Load::all();
    let is_whole = !keep_chosen(&mut loads, |(disk, load)| load.title(*disk));
    for (disk, load) in loads {
        println!("\n{}", load.title(disk));
        println!(
            "{:<30} {:>9} {:>8} {:>8} {:>8} {:>8} {:>9}  {:>4}",
            "", "I/O a s", "us CPU", "p50 us", "p99 us", "p99.9", "fairness", "load"
        );
        for peer in &peers {
            if let Some(why) = peer.lacks(disk) {
                println!("{:<30} not measured: {why}", peer.name());
            }
        }
        for round in 0..rounds() {
            // Alternate the order: disks and machines change their speed over time.
            peers.reverse();
            for &peer in peers.iter().filter(|peer| peer.lacks(disk).is_none()) {
                let disks =
                    Disks { disk, devices: load.devices, directory: directory.path(), images: images(disk) };
                if disk == Disk::Direct {
                    std::thread::sleep(Duration::from_secs(REST_SECONDS));
                }
                let seen = measure(peer, disks, load)?;
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

/// Runs a back-end until the parent closes standard input.
fn serve(config: &Path) -> Outcome<()> {
    let daemon = Daemon::start(&Config::read(config)?)?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(daemon);
    Ok(())
}

#[derive(Debug)]
pub(crate) struct Seen {
    /// Requests per second of all devices together.
    rate: f64,
    /// CPU time of the back-end per request.
    cpu_us: f64,
    /// The figure of the worst device, microseconds.
    p50: u32,
    p99: u32,
    p999: u32,
    /// The rate of the slowest device, as a share of that of the fastest.
    fairness: f64,
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rate, cpu_us, p50, p99, p999, fairness } = self;
        write!(f, "{rate:>9.0} {cpu_us:>8.2} {p50:>8} {p99:>8} {p999:>8} {:>7.0} %", fairness * 100.0)
    }
}

fn measure(peer: Peer, disks: Disks<'_>, load: Load) -> Outcome<Seen> {
    let back_end = peer.start(disks)?;
    let before = back_end.cpu()?;
    let drivers: Vec<_> = (0..load.devices)
        .map(|number| {
            let (socket, load) = (disks.socket(number), load.of_device(number));
            std::thread::spawn(move || drive(&socket, load, number).map_err(|error| error.to_string()))
        })
        .collect();
    let (mut latencies, mut connections) = (Vec::new(), Vec::new());
    for driver in drivers {
        let (of_device, connection) = driver.join().map_err(|_| "a front-end failed")??;
        latencies.push(of_device);
        connections.push(connection);
    }
    // The connections are still open: a back-end that ends with its front-end would have no CPU time any more.
    let used = back_end.cpu()? - before;
    drop(back_end);
    drop(connections);
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
