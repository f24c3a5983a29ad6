//! The cost of watching for the host.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::programs::Program;
use aya::sys::{Stats, enable_stats};
use serde::Serialize;

use crate::Error;

/// The time of one program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramCost {
    /// Its name.
    pub program: String,
    /// The number of runs.
    pub runs: u64,
    /// The total time, nanoseconds.
    pub total_ns: u64,
}

/// The time of all programs, as the kernel measures it (`kernel.bpf_stats_enabled`). What a tracepoint takes to call
/// its program is not in it; what the measuring takes, two readings of the clock for each run, partly is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// The programs that ran.
    pub programs: Vec<ProgramCost>,
}

impl Cost {
    /// Lets the kernel measure programs until the result is dropped (Linux 5.8).
    ///
    /// # Errors
    /// [`Error::Cost`] when the kernel cannot, or does not let this user.
    pub fn measure() -> Result<OwnedFd, Error> {
        enable_stats(Stats::RunTime).map_err(|error| Error::Cost { source: error.io_error })
    }

    pub(super) fn read(ebpf: &Ebpf, root: &Path) -> Result<Self, Error> {
        let mut programs = Vec::new();
        for (name, program) in ebpf.programs() {
            let Some(path) = description(program, root) else { continue };
            let expected = "the run time of an eBPF program";
            let text =
                std::fs::read_to_string(&path).map_err(|source| Error::Read { path, expected, source })?;
            let (run_time_ns, runs) = (number(&text, "run_time_ns:"), number(&text, "run_cnt:"));
            if let (Some(total_ns), Some(runs @ 1..)) = (run_time_ns, runs) {
                programs.push(ProgramCost { program: name.to_owned(), runs, total_ns });
            }
        }
        programs.sort_by(|a, b| a.program.cmp(&b.program));
        Ok(Self { programs })
    }

    /// The number of times that a program did not run because it was running already on its processor: preempted by
    /// another vCPU.
    pub(super) fn misses(ebpf: &Ebpf, root: &Path) -> u64 {
        let of = |program: &Program| {
            let text = std::fs::read_to_string(description(program, root)?).ok()?;
            number(&text, "recursion_misses:")
        };
        // Kernels before Linux 5.12 do not say. Programs that take no event of KVM miss no exit.
        let takes_exits = |name: &str| name.starts_with("raw_") || name.starts_with("tracepoint_");
        ebpf.programs().filter(|(name, _)| takes_exits(name)).filter_map(|(_, program)| of(program)).sum()
    }

    /// All programs' time for one exit, its accesses and its entry, nanoseconds. `None` without exits.
    #[must_use]
    pub fn ns_per_exit(&self) -> Option<f64> {
        let exits: u64 =
            self.programs.iter().filter(|program| program.program.ends_with("_exit")).map(|p| p.runs).sum();
        let total: u64 = self.programs.iter().map(|program| program.total_ns).sum();
        (exits > 0).then(|| total as f64 / exits as f64)
    }
}

/// The kernel's description of a program; `None` for one that was not loaded.
fn description(program: &Program, root: &Path) -> Option<PathBuf> {
    let descriptor = program.fd().ok()?.as_fd().as_raw_fd();
    Some(root.join(format!("proc/self/fdinfo/{descriptor}")))
}

fn number(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key))?.trim().parse().ok()
}
