//! What watching costs the host.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

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
    /// How often it ran.
    pub runs: u64,
    /// How long in all, nanoseconds.
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
            let Ok(fd) = file(program) else { continue };
            let path = root.join(format!("proc/self/fdinfo/{fd}"));
            let expected = "the run time of an eBPF program";
            let text =
                std::fs::read_to_string(&path).map_err(|source| Error::Read { path, expected, source })?;
            let value = |key: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(key))?;
                line.trim().parse::<u64>().ok()
            };
            if let (Some(total_ns), Some(runs @ 1..)) = (value("run_time_ns:"), value("run_cnt:")) {
                programs.push(ProgramCost { program: name.to_owned(), runs, total_ns });
            }
        }
        programs.sort_by(|a, b| a.program.cmp(&b.program));
        Ok(Self { programs })
    }

    /// How often a program did not run because it was running already on its processor: preempted by another vCPU.
    pub(super) fn misses(ebpf: &Ebpf, root: &Path) -> u64 {
        let of = |program: &Program| {
            let path = root.join(format!("proc/self/fdinfo/{}", file(program).ok()?));
            let text = std::fs::read_to_string(path).ok()?;
            text.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?.trim().parse::<u64>().ok()
        };
        // Kernels before Linux 5.12 do not say.
        ebpf.programs().filter_map(|(_, program)| of(program)).sum()
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

fn file(program: &Program) -> Result<i32, aya::programs::ProgramError> {
    Ok(program.fd()?.as_fd().as_raw_fd())
}
