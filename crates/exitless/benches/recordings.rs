//! Compares `exitless report` with other tools, on the same recordings and in the same run.
//!
//! The lower bound is `cat FILE > /dev/null`, which reads the file once from the page cache. Tools that are
//! not installed, or fail on the file, are skipped with a note. `EXITLESS_BENCH_EXITS` gives the sizes of
//! perf's recordings in millions of exits (`1,4`), `EXITLESS_BENCH_RUNS` the number of runs of each command
//! (5), `EXITLESS_BENCH_DIRECTORY` the directory for the files (300 MB per million exits).
//! `EXITLESS_BENCH_PERF` names further builds of perf (`name=command,...`), `EXITLESS_BENCH_TRACE_CMD` and
//! `EXITLESS_BENCH_XENALYZE` the commands if they are not called `trace-cmd` and `xenalyze`. Commands take
//! turns, so that other load affects all of them alike.
//!
//! The files are the tests' recordings, repeated with later timestamps. perf 6.1 reads only files that perf
//! 6.1 recorded.

#[path = "../../traces/benches/xentrace/copies.rs"]
mod copies;
#[path = "recordings/measure.rs"]
mod measure;
#[path = "recordings/pages.rs"]
mod pages;
#[path = "recordings/repeat.rs"]
mod repeat;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use measure::{Contender, Measured};
use tempfile::TempPath;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../traces/tests/fixtures/");
const BASES: [(&str, &str); 2] =
    [("perf 6.12", "perf/small.perf.data.zst"), ("perf 6.1", "perf/small61.perf.data.zst")];
const TRACE_DAT: &str = "trace-cmd/v6-instance.dat.zst";
/// Has no scheduler events: at the joints between copies, xenalyze would find inconsistent vCPU states and
/// stop.
const XENTRACE: &str = "xentrace/qemu10-a-hvm.trace.zst";
/// The largest recording for perf, in millions of exits: perf 6.12 needs seconds, and as much memory as the
/// file, for each million.
const MOST_FOR_PERF: f64 = 4.5;
/// The most exits for trace-cmd, which needs more than a second for this many.
const EXITS_FOR_TRACE_CMD: usize = 100_000;
const BYTES_FOR_XENALYZE: usize = 128 << 20;

fn main() -> ExitCode {
    // `cargo test --benches` also starts this program, and test runners ask it for its tests.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    match bench() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("recordings: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn setting(name: &str, otherwise: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| otherwise.to_owned())
}

fn bench() -> Result<(), String> {
    let runs: usize =
        setting("EXITLESS_BENCH_RUNS", "5").parse().map_err(|_| "EXITLESS_BENCH_RUNS is no number")?;
    let sizes = setting("EXITLESS_BENCH_EXITS", "1,4");
    let sizes = sizes.split(',').map(|size| size.trim().parse::<f64>());
    let sizes: Vec<_> =
        sizes.collect::<Result<_, _>>().map_err(|_| "EXITLESS_BENCH_EXITS is no list of numbers")?;
    for size in sizes {
        for (recorder, base) in BASES {
            let base = unpack(base)?;
            let times = (size * 1e6 / exits_in(&base)? as f64).round().max(1.0) as usize;
            let file = file_of(|path| repeat::repeat(&base, times, path))?;
            let peers = if size <= MOST_FOR_PERF { perf(&file) } else { Vec::new() };
            compare(&file, &format!("perf.data of {recorder}"), times * exits_in(&base)?, runs, peers)?;
            // Above this size there is nothing to compare with, so one recording is enough.
            if size > MOST_FOR_PERF {
                break;
            }
        }
    }
    let base = unpack(TRACE_DAT)?;
    let times = EXITS_FOR_TRACE_CMD / exits_in(&base)?;
    let file = file_of(|path| pages::repeat(&base, times, path))?;
    let trace_cmd = peer("trace-cmd", "EXITLESS_BENCH_TRACE_CMD", &["report", "-i", &name(&file)]);
    compare(&file, "trace.dat", times * exits_in(&base)?, runs, vec![trace_cmd])?;

    let base = unpack(XENTRACE)?;
    let exits = BYTES_FOR_XENALYZE.div_ceil(base.len()) * exits_in(&base)?;
    let file =
        file_of(|path| copies::write_copies(base.clone(), BYTES_FOR_XENALYZE, &mut File::create(path)?))?;
    let xenalyze = peer("xenalyze", "EXITLESS_BENCH_XENALYZE", &["--summary", &name(&file)]);
    compare(&file, "xentrace", exits, runs, vec![xenalyze])
}

/// A temporary file whose content `write` writes.
fn file_of(write: impl FnOnce(&Path) -> io::Result<()>) -> Result<TempPath, String> {
    let directory = match std::env::var("EXITLESS_BENCH_DIRECTORY") {
        Ok(path) => PathBuf::from(path),
        Err(_) => std::env::temp_dir(),
    };
    let file = tempfile::Builder::new().prefix("exitless-bench-").tempfile_in(&directory);
    let path = file.map_err(|error| format!("{}: {error}", directory.display()))?.into_temp_path();
    write(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

fn name(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn peer(name: &str, variable: &str, arguments: &[&str]) -> Contender {
    let command = setting(variable, name);
    let words: Vec<_> = command.split_whitespace().chain(arguments.iter().copied()).collect();
    Contender::new(name, &words)
}

fn perf(file: &Path) -> Vec<Contender> {
    let listed = setting("EXITLESS_BENCH_PERF", "");
    let named = listed.split(',').filter_map(|entry| entry.split_once('='));
    let builds = [("perf", "perf")].into_iter().chain(named);
    let file = name(file);
    let contender = |(name, command): (&str, &str)| {
        let words = command.split_whitespace().chain(["kvm", "-i", &file, "stat", "report"]);
        Contender::new(name, &words.collect::<Vec<_>>())
    };
    builds.map(contender).collect()
}

fn unpack(fixture: &str) -> Result<Vec<u8>, String> {
    let path = format!("{FIXTURES}{fixture}");
    let packed = std::fs::read(&path).map_err(|error| format!("{path}: {error}"))?;
    zstd::decode_all(&packed[..]).map_err(|error| format!("{path}: {error}"))
}

fn exits_in(recording: &[u8]) -> Result<usize, String> {
    let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    std::fs::write(file.path(), recording).map_err(|error| error.to_string())?;
    let reading = traces::read(&traces::Source::from(file.path()), &traces::Options::default(), &mut ());
    Ok(reading.map_err(|error| error.to_string())?.profile.total() as usize)
}

fn compare(path: &Path, kind: &str, exits: usize, runs: usize, peers: Vec<Contender>) -> Result<(), String> {
    let bytes = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    let file = name(path);
    let mut contenders = vec![
        Contender::new("cat", &["cat", &file]),
        Contender::new("exitless", &[env!("CARGO_BIN_EXE_exitless"), "report", &file]),
    ];
    contenders.extend(peers);
    println!();
    println!("{kind}, {exits} exits, {:.1} MB, {runs} runs each in turn", bytes as f64 / 1e6);
    contenders.retain(|contender| match contender.trial() {
        Ok(()) => true,
        Err(problem) => {
            println!("{} is left out: {problem}", contender.name());
            false
        }
    });
    println!(
        "{:10} {:>12} {:>10} {:>10} {:>12} {:>12}",
        "", "wall, ms", "CPU, ms", "x cat", "Mexits/s", "memory, MB"
    );
    let all = measure::in_turn(&contenders, runs)?;
    let floor = all[0].wall_ms();
    for (contender, measured) in contenders.iter().zip(&all) {
        row(contender.name(), measured, floor, exits);
    }
    Ok(())
}

fn row(name: &str, measured: &Measured, floor_ms: f64, exits: usize) {
    println!(
        "{name:10} {:>12.1} {:>10.1} {:>10.2} {:>12.2} {:>12.1}",
        measured.wall_ms(),
        measured.cpu_ms(),
        measured.wall_ms() / floor_ms,
        exits as f64 / measured.wall_ms() / 1e3,
        measured.memory_mb(),
    );
}
