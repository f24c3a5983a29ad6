//! The wall-clock time in which laboratories boot and restore a snapshot: the median of several runs of `lab
//! run --timings`.
//!
//! Laboratories that are not built are skipped; `EXITLESS_BENCH_LABS=1` builds them first.
//! `EXITLESS_BENCH_RUNS` is the number of runs (3). Criterion is unsuitable, because a single sample takes
//! half a minute.

use std::process::{Command, ExitCode, Output, Stdio};

use serde_json::Value;

/// The parts that are shown, by their names in the output of `--timings`.
const PARTS: [&str; 3] = ["boot or restore", "kernel modules", "in all"];

fn main() -> ExitCode {
    // `cargo test --benches` also starts this program, and test runners ask it for its tests.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    match bench() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("lab_boot: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn bench() -> Result<(), String> {
    let runs = match std::env::var("EXITLESS_BENCH_RUNS") {
        Ok(runs) => {
            runs.parse().ok().filter(|&runs| runs > 0).ok_or("EXITLESS_BENCH_RUNS is no number above 0")?
        }
        Err(_) => 3_usize,
    };
    let build = std::env::var_os("EXITLESS_BENCH_LABS").is_some_and(|value| value == "1");
    let labs: Vec<Value> = serde_json::from_slice(&exitless(&["lab", "list", "--json"])?.stdout)
        .map_err(|error| format!("`lab list --json` is not understood: {error}"))?;
    println!(
        "{:15} {:8} {:>4} {:>20} {:>20} {:>20}",
        "median, seconds", "begins", "runs", PARTS[0], PARTS[1], PARTS[2]
    );
    for lab in &labs {
        let name = lab["name"].as_str().ok_or("`lab list --json` has a laboratory without a name")?;
        if lab["built"] != true {
            if !build {
                println!("{name:15} skipped: it is not built; EXITLESS_BENCH_LABS=1 builds it");
                continue;
            }
            exitless(&["lab", "build", name])?;
        }
        // The first run makes the snapshot; it is not measured.
        run(name, &[])?;
        for (begins, options) in [("snapshot", &[][..]), ("boot", &["--boot"][..])] {
            let timings = (0..runs).map(|_| run(name, options)).collect::<Result<Vec<_>, _>>()?;
            let [boot, modules, total] =
                [0, 1, 2].map(|part| median(timings.iter().map(|run| run[part]).collect()));
            println!("{name:15} {begins:8} {runs:>4} {boot:>20.2} {modules:>20.2} {total:>20.2}");
        }
    }
    Ok(())
}

/// Runs a command that does nothing in a laboratory. Returns the seconds of each of [`PARTS`].
fn run(name: &str, options: &[&str]) -> Result<[f64; 3], String> {
    let arguments = [&["lab", "run", name, "--timings"], options, &["--", "true"]].concat();
    let output = exitless(&arguments)?;
    let text = String::from_utf8_lossy(&output.stderr);
    let seconds = |part: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(part))?;
        line.trim().strip_suffix(" s")?.trim().parse::<f64>().ok()
    };
    let mut found = [0.0; 3];
    for (slot, part) in found.iter_mut().zip(PARTS) {
        *slot = seconds(part).ok_or_else(|| format!("{name}: no `{part}` among the timings:\n{text}"))?;
    }
    Ok(found)
}

fn exitless(arguments: &[&str]) -> Result<Output, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_exitless"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("exitless could not be started: {error}"))?;
    if output.status.success() {
        Ok(output)
    } else {
        let text = String::from_utf8_lossy(&output.stderr);
        Err(format!("exitless {} failed ({}):\n{text}", arguments.join(" "), output.status))
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}
