//! `exitless report` beside the tools that people use, on the same recordings in the same run.
//!
//! The floor is `cat FILE > /dev/null`: reading the file once from the page cache. Peers that are not installed are
//! left out with a word. `EXITLESS_BENCH_EXITS` gives the sizes in millions of exits (`1,4`), `EXITLESS_BENCH_RUNS` the
//! runs of each command (5), `EXITLESS_BENCH_PERF` further builds of perf (`name=command,...`), `EXITLESS_BENCH_DIRECTORY`
//! where to put the files (300 MB for a million exits). Commands take turns, so that other load hits all of them alike.
//!
//! The files are two recordings of the tests, by perf 6.12 and by perf 6.1, repeated with later times; perf 6.1 reads
//! only the latter.

#[path = "recordings/measure.rs"]
mod measure;
#[path = "recordings/repeat.rs"]
mod repeat;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use measure::{Contender, Measured};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../traces/tests/fixtures/perf/");
const BASES: [(&str, &str); 2] =
    [("perf 6.12", "small.perf.data.zst"), ("perf 6.1", "small61.perf.data.zst")];
/// perf 6.12 takes seconds and as much memory as the file for every million exits.
const MOST_FOR_PERF: f64 = 4.5;

fn main() -> ExitCode {
    // `cargo test --benches` starts this too, and test runners ask it for its tests.
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
    let directory = match std::env::var("EXITLESS_BENCH_DIRECTORY") {
        Ok(path) => PathBuf::from(path),
        Err(_) => std::env::temp_dir(),
    };
    for size in sizes {
        for (recorder, base) in BASES {
            let base = unpack(&format!("{FIXTURES}{base}"))?;
            let exits = exits_in(&base)?;
            let times = (size * 1e6 / exits as f64).round().max(1.0) as usize;
            let file = tempfile::Builder::new().prefix("exitless-bench-").tempfile_in(&directory);
            let path = file.map_err(|error| format!("{}: {error}", directory.display()))?.into_temp_path();
            repeat::repeat(&base, times, &path).map_err(|error| format!("{}: {error}", path.display()))?;
            compare(&path, recorder, times * exits, runs, size <= MOST_FOR_PERF)?;
            // Above that there is no peer, and one recording will do.
            if size > MOST_FOR_PERF {
                break;
            }
        }
    }
    Ok(())
}

fn unpack(path: &str) -> Result<Vec<u8>, String> {
    let packed = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    zstd::decode_all(&packed[..]).map_err(|error| format!("{path}: {error}"))
}

fn exits_in(recording: &[u8]) -> Result<usize, String> {
    let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    std::fs::write(file.path(), recording).map_err(|error| error.to_string())?;
    let reading = traces::read(&traces::Source::from(file.path()), &traces::Options::default(), &mut ());
    Ok(reading.map_err(|error| error.to_string())?.profile.total() as usize)
}

fn compare(path: &Path, recorder: &str, exits: usize, runs: usize, with_perf: bool) -> Result<(), String> {
    let bytes = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    let file = path.to_string_lossy().into_owned();
    let mut contenders = vec![
        Contender::new("cat", &["cat", &file]),
        Contender::new("exitless", &[env!("CARGO_BIN_EXE_exitless"), "report", &file]),
    ];
    if with_perf {
        let listed = setting("EXITLESS_BENCH_PERF", "");
        let named = listed.split(',').filter_map(|entry| entry.split_once('='));
        for (name, command) in [("perf", "perf")].into_iter().chain(named) {
            let mut words: Vec<_> = command.split_whitespace().collect();
            words.extend(["kvm", "-i", &file, "stat", "report"]);
            contenders.push(Contender::new(name, &words));
        }
    }
    println!();
    println!(
        "perf.data of {recorder}, {exits} exits, {:.1} MB, {runs} runs each in turn",
        bytes as f64 / 1e6
    );
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
