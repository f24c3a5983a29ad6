//! The cost of watching per exit of a real KVM, in instructions. It is measured in the laboratory
//! `intel-apicv`, whose time stamp counter counts executed instructions, so the figures are exact and
//! reproducible.
//!
//! A guest executes CPUID; each is one exit and one entry. It runs alone, then with `exitless stat`,
//! `exitless record`, and `perf record` of the same two events. The host has a single processor, so that
//! nobody else's instructions are counted. Takes some minutes. The laboratory must be built;
//! `EXITLESS_BENCH_LABS=1` builds it.

use std::process::{Command, ExitCode, Stdio};

/// The probe runs unprivileged, so that it cannot count its exits itself.
const SCRIPT: &str = r#"
chmod 666 /dev/kvm; cp "$(command -v exitless)" /tmp/probe; chmod 755 /tmp/probe
measure() {
    setpriv --reuid=65534 --clear-groups /tmp/probe probe --measure cpuid --samples 2000 --warm-up 50 --blocks 1 \
        --no-pin --json >/tmp/measured 2>/dev/null
    echo "$(grep -o '"median": *[0-9.]*' /tmp/measured | head -n 1 | grep -o '[0-9.]*$') $1"
}
# What the kernel compiled of programs is the module called bpf.
attached() { until grep -q "$1.*bpf]" /proc/kallsyms; do sleep 0.5; done; }
end() { kill -INT $!; wait $!; }
measure "nothing"
exitless stat --interval 1000s >/dev/null 2>&1 & attached raw_exit; measure "exitless stat"; end
exitless stat --no-raw-tracepoints --interval 1000s >/dev/null 2>&1 & attached tracepoint_exit
measure "exitless stat --no-raw-tracepoints"; end
exitless record -o /tmp/recording --no-accesses 2>/dev/null & attached raw_exit; measure "exitless record --no-accesses"; end
# It says nothing when it has begun, and takes long to.
perf record -a -m 1M -e kvm:kvm_exit -e kvm:kvm_entry -o /tmp/perf.data >/dev/null 2>&1 & sleep 45
measure "perf record, the same two events"; end
"#;

fn main() -> ExitCode {
    // `cargo test --benches` also starts this program, and test runners ask it for its tests.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    if std::env::var_os("EXITLESS_BENCH_LABS").is_none_or(|value| value != "1") {
        println!("watching_cost skipped: it takes minutes in a laboratory; EXITLESS_BENCH_LABS=1 runs it");
        return ExitCode::SUCCESS;
    }
    match bench() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("watching_cost: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn bench() -> Result<(), String> {
    let output = Command::new(env!("CARGO_BIN_EXE_exitless"))
        .args(["lab", "run", "--cpus", "1", "--timeout", "900", "intel-apicv", "--", "sh", "-c", SCRIPT])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("exitless could not be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<(f64, &str)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(count, name)| Some((count.parse().ok()?, name)))
        .collect();
    let [(nothing, _), watched @ ..] = rows.as_slice() else {
        return Err(format!("nothing was measured:\n{text}\n{}", String::from_utf8_lossy(&output.stderr)));
    };
    println!("instructions of a CPUID with its exit and entry (median), {nothing} with nothing beside it");
    for (count, name) in watched {
        println!("{:8.0} more  {name}", count - nothing);
    }
    Ok(())
}
