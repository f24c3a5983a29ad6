//! The overhead of watching, per pair of events, on this machine's CPU: the programs that count exits, attached to
//! system calls instead of exits, compared with perf recording the same pair.
//!
//! `cargo bench -p live --bench overhead`. Needs root, and `perf` on PATH for its row. Each row is the minimum of
//! several interleaved rounds, to reduce the effect of other load. The first row is the system call itself, which is
//! subtracted from the others.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use live::{Collector, Cost, Profiler, Recorder, Sampling, Watch};

const CALLS: u32 = 2_000;
const ROUNDS: usize = 10;
const PIECES: usize = 100;
/// The time of a call in nanoseconds that is exceeded only while perf records it.
const PERF_AT_LEAST_NS: f64 = 700.0;

fn main() {
    // `cargo test --benches` runs this program too, but should not measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    if let Err(error) = measure() {
        eprintln!("overhead: {error}");
        std::process::exit(1);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Row {
    Nothing,
    Raw,
    Tracepoints,
    Ring,
    Profile,
    Perf,
}

const ROWS: [(Row, &str); 6] = [
    (Row::Nothing, "nothing attached"),
    (Row::Raw, "exitless, counting, raw tracepoints"),
    (Row::Tracepoints, "exitless, counting, tracepoints"),
    (Row::Ring, "exitless, recording"),
    (Row::Profile, "exitless, profiling, 997 Hz"),
    (Row::Perf, "perf record"),
];

fn measure() -> Result<(), Box<dyn std::error::Error>> {
    let mut least = [f64::INFINITY; ROWS.len()];
    for _ in 0..ROUNDS {
        for (at, (row, _)) in ROWS.iter().enumerate() {
            let watching = watch(*row)?;
            // Short pieces, so that some run without other load.
            let pieces = (0..PIECES).map(|_| round()).fold(f64::INFINITY, f64::min);
            least[at] = least[at].min(pieces);
            drop(watching);
        }
    }
    println!("one pair of events, least of {ROUNDS} rounds of {CALLS} system calls");
    for ((_, name), ns) in ROWS.iter().zip(least) {
        println!("{name:38} {ns:8.1} ns a call {:8.1} ns more", ns - least[0]);
    }
    println!("perf costs {:.1} times as much as counting", (least[5] - least[0]) / (least[1] - least[0]));
    let measuring = Cost::measure()?;
    let collector = Collector::attach_to_system_calls(&own(None))?;
    round();
    let cost = collector.cost()?;
    drop(measuring);
    for program in &cost.programs {
        let ns = program.total_ns as f64 / program.runs as f64;
        println!("by the kernel's own measure, {}: {ns:.1} ns a run", program.program);
    }
    profiling()
}

/// The cost of a sample and of a context switch, inside and outside of a call.
fn profiling() -> Result<(), Box<dyn std::error::Error>> {
    let measuring = Cost::measure()?;
    let mut profiler = Profiler::attach_to_system_calls(&own(None), &Sampling::default())?;
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        round();
        std::thread::sleep(Duration::from_micros(50));
        profiler.drain()?;
    }
    let cost = profiler.collector().cost()?;
    drop(measuring);
    for program in &cost.programs {
        let ns = program.total_ns as f64 / program.runs as f64;
        println!("while profiling, {}: {ns:.1} ns a run, {} runs", program.program, program.runs);
    }
    Ok(())
}

/// Watches only this process: the load of others must not be counted.
fn own(no_raw: Option<&str>) -> Watch {
    Watch {
        processes: Some(vec![std::process::id()]),
        no_raw_tracepoints: no_raw.map(str::to_owned),
        ..Watch::default()
    }
}

struct Perf(Child);

impl Drop for Perf {
    fn drop(&mut self) {
        // Killed here at the latest; it ends by itself when this process does.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn watch(row: Row) -> Result<Option<Box<dyn std::any::Any>>, Box<dyn std::error::Error>> {
    Ok(match row {
        Row::Nothing => None,
        Row::Raw => Some(Box::new(Collector::attach_to_system_calls(&own(None))?)),
        Row::Tracepoints => {
            let why = "to compare";
            Some(Box::new(Collector::attach_to_system_calls(&own(Some(why)))?))
        }
        Row::Ring => Some(Box::new(Recorder::attach_to_system_calls(&own(None))?)),
        Row::Profile => Some(Box::new(Profiler::attach_to_system_calls(&own(None), &Sampling::default())?)),
        Row::Perf => {
            let events = "raw_syscalls:sys_enter,raw_syscalls:sys_exit";
            let process = std::process::id().to_string();
            let child = Command::new("perf")
                .args(["record", "-q", "-m", "64M", "-e", events, "-p", &process, "-o", "/dev/null"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let Ok(child) = child else { return Ok(None) };
            let perf = Perf(child);
            let start = Instant::now();
            // perf has started recording when calls take longer several times in a row.
            let mut longer = 0;
            while longer < 20 && start.elapsed() < Duration::from_secs(20) {
                longer = if round() < PERF_AT_LEAST_NS { 0 } else { longer + 1 };
            }
            Some(Box::new(perf))
        }
    })
}

/// Nanoseconds per system call.
fn round() -> f64 {
    let start = Instant::now();
    for _ in 0..CALLS {
        // SAFETY: takes nothing and changes nothing.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
    start.elapsed().as_nanos() as f64 / f64::from(CALLS)
}
