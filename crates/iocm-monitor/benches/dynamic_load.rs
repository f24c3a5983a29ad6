//! A changing load (small requests, bulk, rest, both at once) on a thread for each device, on each fixed number of
//! shared workers, and on workers that follow the monitor.
//!
//! `cargo bench -p iocm-monitor --bench dynamic_load [-- FRONT_ENDS...]`; the default is 8 and 64.
//! `DYNAMIC_LOAD_JSON=FILE` writes the figures to a file, from which `exitless iocm report FILE` makes a page with
//! charts. `DYNAMIC_LOAD_SECONDS` is the length of a phase, by default 6. Latencies count from the time at which a
//! request was due. The back-end is a process of its own, on the same processors as the front-ends: with two of them,
//! the arrangements compete with the load itself.

use blkio::{Blkio, Completion, ReqFlags};
use iocm::config::Config;
use iocm::control::Access;
use iocm::control::socket::BoundSocket;
use iocm::daemon::Daemon;
use iocm_monitor::actuator::Workers;
use iocm_monitor::evaluation::{Arrangement, EVALUATION_FORMAT, Evaluation, Measured};
use iocm_monitor::{Monitor, Settings};
use std::error::Error;
use std::fmt::Write as _;
use std::io::Read as _;
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The environment variable that makes this program a back-end.
const SERVE: &str = "IOCM_BENCH_SERVE";
const KEPT: &str = "DYNAMIC_LOAD_JSON";
const DEPTH: usize = 16;
const SMALL: usize = 4096;
const BULK: usize = 65_536;
const PHASE_SECONDS: &str = "DYNAMIC_LOAD_SECONDS";
/// The length of the windows in which requests are counted.
const WINDOW: Duration = Duration::from_millis(200);

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Requests per second of all front-ends together, and which front-ends do bulk.
const PHASES: [(&str, f64, Bulk); 4] = [
    ("small", 60_000.0, Bulk::None),
    ("bulk", 8_000.0, Bulk::All),
    ("rest", 400.0, Bulk::None),
    ("mixed", 30_000.0, Bulk::EveryOther),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bulk {
    None,
    All,
    EveryOther,
}

fn name(arrangement: Arrangement) -> String {
    match arrangement {
        Arrangement::ThreadEach => "a thread each".to_owned(),
        Arrangement::Shared(workers) => format!("{workers} shared"),
        Arrangement::Monitor => "monitor".to_owned(),
    }
}

fn phase_length() -> Duration {
    let given = std::env::var(PHASE_SECONDS).ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(given.unwrap_or(6).max(1))
}

fn windows() -> usize {
    (phase_length().as_millis() / WINDOW.as_millis()) as usize
}

/// The result of one front-end in a phase.
#[derive(Debug, Clone, Default)]
struct Served {
    latencies_us: Vec<u32>,
    windows: Vec<u64>,
}

/// The result of all front-ends in a phase.
#[derive(Debug, Clone)]
struct Seen {
    rate: f64,
    p99_us: u32,
    cpu_us: f64,
    windows: Vec<u64>,
    is_mixed: bool,
}

fn main() -> Outcome<()> {
    if let Some(directory) = std::env::var_os(SERVE) {
        return serve(Path::new(&directory));
    }
    // `cargo test --benches` starts this too, and test runners ask it for a list of its tests.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let mut sizes: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![8, 64];
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut kept = Evaluation {
        evaluation: EVALUATION_FORMAT,
        cpus,
        phase_seconds: phase_length().as_secs_f64(),
        window_seconds: WINDOW.as_secs_f64(),
        measured: Vec::new(),
    };
    for front_ends in sizes {
        let fixed = (1..=cpus).map(Arrangement::Shared);
        let peers = [Arrangement::ThreadEach].into_iter().chain(fixed).chain([Arrangement::Monitor]);
        for arrangement in peers {
            for ((phase, asked, _), seen) in PHASES.iter().zip(measure(arrangement, front_ends)?) {
                kept.measured.push(Measured {
                    front_ends,
                    arrangement,
                    phase: (*phase).to_owned(),
                    asked_per_second: asked_of(*asked, front_ends, seen.is_mixed),
                    served_per_second: seen.rate,
                    p99_us: seen.p99_us,
                    cpu_us_per_request: seen.cpu_us,
                    windows: seen.windows,
                });
            }
        }
        show(front_ends, &kept);
        if let Some(path) = std::env::var_os(KEPT) {
            std::fs::write(path, serde_json::to_vec_pretty(&kept)?)?;
        }
    }
    Ok(())
}

/// Requests per second that are due in a phase: in a mixed one, half of the front-ends submit at a tenth of the rate.
fn asked_of(asked: f64, front_ends: usize, is_mixed: bool) -> f64 {
    let bulk = if is_mixed { front_ends / 2 } else { 0 } as f64 / front_ends as f64;
    asked * (1.0 - bulk * 0.9)
}

fn show(front_ends: usize, kept: &Evaluation) {
    println!("\n{front_ends} front-ends\n");
    println!(
        "{:<8} {:<14} {:>9} {:>9} {:>9} {:>13} {:>11}",
        "phase", "arrangement", "I/O a s", "of best", "p99 us", "us CPU a I/O", "within 5 %"
    );
    for (phase, ..) in PHASES {
        let best = kept.best(front_ends, phase).unwrap_or(0.0);
        let of = kept.measured.iter().filter(|one| one.front_ends == front_ends && one.phase == phase);
        for one in of {
            println!(
                "{phase:<8} {:<14} {:>9.0} {:>7.1} % {:>9} {:>13.2} {:>11}",
                name(one.arrangement),
                one.served_per_second,
                if best > 0.0 { one.served_per_second / best * 100.0 } else { 100.0 },
                one.p99_us,
                one.cpu_us_per_request,
                kept.converged(one).map_or_else(|| "never".to_owned(), |at| format!("{at:.1} s")),
            );
        }
    }
}

fn start(peer: Arrangement, front_ends: usize, directory: &Path) -> Outcome<Child> {
    let arrangement = if peer == Arrangement::ThreadEach { "per-device" } else { "shared" };
    let count = if let Arrangement::Shared(workers) = peer { workers } else { 1 };
    let mut text = format!("[workers]\narrangement = \"{arrangement}\"\ncount = {count}\n");
    for number in 0..front_ends {
        let socket = directory.join(format!("s{number}"));
        write!(text, "[[device]]\nname = \"d{number}\"\ntype = \"block\"\nsocket = {socket:?}\n")?;
    }
    std::fs::write(directory.join("config.toml"), text)?;
    let mut command = Command::new(std::env::current_exe()?);
    let child = command.env(SERVE, directory).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    let begin = Instant::now();
    while !directory.join("control").exists() {
        if begin.elapsed() > Duration::from_secs(20) {
            return Err("the back-end does not begin".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(child)
}

/// Runs a back-end until the parent closes standard input.
fn serve(directory: &Path) -> Outcome<()> {
    let daemon = Arc::new(Daemon::start(&Config::read(&directory.join("config.toml"))?)?);
    let control = BoundSocket::bind(&directory.join("control"), Access::own())?.serve(&daemon)?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(control);
    drop(daemon);
    Ok(())
}

fn measure(peer: Arrangement, front_ends: usize) -> Outcome<Vec<Seen>> {
    let directory = tempfile::tempdir()?;
    let mut child = start(peer, front_ends, directory.path())?;
    let stop = Arc::new(AtomicBool::new(false));
    let watching = (peer == Arrangement::Monitor).then(|| {
        let (socket, stop) = (directory.path().join("control"), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut monitor =
                Monitor::new(Workers::new(Path::new("/"), &socket, None), Settings::default(), false);
            let begun = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                let said = monitor.step(begun.elapsed().as_secs_f64()).said;
                if let Some(said) = said.filter(|_| std::env::var_os("DYNAMIC_LOAD_SAY").is_some()) {
                    let at = begun.elapsed().as_secs_f64();
                    eprintln!("{at:.1} s: {:?} -> {:?}: {:?}", said.cores_before, said.cores, said.reason);
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        })
    });
    // All front-ends connect first, then start at the same time.
    let begin = Instant::now() + Duration::from_millis(500 + 20 * front_ends as u64);
    let drivers: Vec<_> = (0..front_ends)
        .map(|number| {
            let socket = directory.path().join(format!("s{number}"));
            std::thread::spawn(move || {
                drive(&socket, number, front_ends, begin).map_err(|error| error.to_string())
            })
        })
        .collect();
    let mut cpus = Vec::new();
    for phase in 0..=PHASES.len() {
        let end = begin + phase_length() * phase as u32;
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        cpus.push(cpu(child.id())?);
    }
    let mut served = Vec::new();
    for driver in drivers {
        served.push(driver.join().map_err(|_| "a front-end failed")??);
    }
    stop.store(true, Ordering::Relaxed);
    if let Some(watching) = watching {
        watching.join().map_err(|_| "the monitor failed")?;
    }
    drop(child.stdin.take());
    child.wait()?;
    let length = phase_length();
    let phases = (0..PHASES.len()).map(|phase| {
        let of: Vec<&Served> = served.iter().map(|phases| &phases[phase]).collect();
        let total: usize = of.iter().map(|one| one.latencies_us.len()).sum();
        Seen {
            rate: total as f64 / length.as_secs_f64(),
            p99_us: of.iter().map(|one| p99(&one.latencies_us)).max().unwrap_or(0),
            cpu_us: (cpus[phase + 1] - cpus[phase]) * 1e6 / (total as f64).max(1.0),
            windows: (0..windows()).map(|at| of.iter().map(|one| one.windows[at]).sum()).collect(),
            is_mixed: PHASES[phase].2 == Bulk::EveryOther,
        }
    });
    Ok(phases.collect())
}

fn p99(latencies: &[u32]) -> u32 {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() * 99 / 100).copied().unwrap_or(0)
}

/// The CPU time that a process has used, in seconds.
fn cpu(pid: u32) -> Outcome<f64> {
    let mut used = 0.0;
    // The process's total, which also has the threads that have ended, in clock ticks.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    for field in [14 - 3, 15 - 3] {
        used +=
            fields.split_whitespace().nth(field).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0)
                / 100.0;
    }
    Ok(used)
}

/// Reads at random offsets, phase after phase.
fn drive(socket: &Path, number: usize, front_ends: usize, begin: Instant) -> Outcome<Vec<Served>> {
    let mut blkio = Blkio::new("virtio-blk-vhost-user")?;
    blkio.set_str("path", socket.to_str().ok_or("a strange path")?)?;
    blkio.connect()?;
    let blocks = blkio.get_u64("capacity")? / BULK as u64;
    let mut queue = blkio.start()?.queues.remove(0);
    let memory = blkio.alloc_mem_region(DEPTH * BULK)?;
    blkio.map_mem_region(&memory)?;
    let mut ended: Vec<MaybeUninit<Completion>> = (0..DEPTH).map(|_| MaybeUninit::uninit()).collect();
    let (mut due, mut free) = (vec![begin; DEPTH], (0..DEPTH).collect::<Vec<_>>());
    let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ number as u64;
    std::thread::sleep(begin.saturating_duration_since(Instant::now()));
    let (mut all, length, count) = (Vec::new(), phase_length(), windows());
    for (phase, &(_, rate, bulk)) in PHASES.iter().enumerate() {
        let from = begin + length * phase as u32;
        let is_bulk = bulk == Bulk::All || bulk == Bulk::EveryOther && number % 2 == 1;
        // In a mixed phase, front-ends that do bulk submit a tenth of the requests.
        let rate = rate / front_ends as f64 * if bulk == Bulk::EveryOther && is_bulk { 0.1 } else { 1.0 };
        let bytes = if is_bulk { BULK } else { SMALL };
        let mut served = Served { windows: vec![0; count], ..Served::default() };
        let mut issued = 0_u64;
        loop {
            let now = Instant::now();
            if now >= from + length {
                break;
            }
            while let Some(&slot) = free.last() {
                let moment = from + Duration::from_secs_f64(issued as f64 / rate);
                if moment > now {
                    break;
                }
                (due[slot], issued) = (moment, issued + 1);
                free.pop();
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let buffer = std::ptr::with_exposed_provenance_mut(memory.addr + slot * BULK);
                queue.read(random % blocks * BULK as u64, buffer, bytes, slot, ReqFlags::empty());
            }
            let count = queue.do_io(&mut ended, 0, None, None)?;
            let now = Instant::now();
            for one in &ended[..count] {
                // SAFETY: libblkio has initialized the first `count` completions.
                let one = unsafe { one.assume_init_read() };
                if one.ret != 0 {
                    return Err(format!("a request failed: {}", one.ret).into());
                }
                free.push(one.user_data);
                // A request that was due in the previous phase counts as lost there, not here.
                if due[one.user_data] >= from {
                    let latency = (now - due[one.user_data]).as_micros();
                    served.latencies_us.push(u32::try_from(latency).unwrap_or(u32::MAX));
                    let window = ((now - from).as_millis() / WINDOW.as_millis()) as usize;
                    served.windows[window.min(count - 1)] += 1;
                }
            }
            if count == 0 {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        all.push(served);
    }
    Ok(all)
}
