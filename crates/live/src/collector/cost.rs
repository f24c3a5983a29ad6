//! The overhead of watching on the host.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::programs::Program;
use aya::sys::{Stats, enable_stats};
use exits::Losses;
use serde::Serialize;

use crate::Error;

/// The CPU time of one program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramCost {
    /// Its name.
    pub program: String,
    /// The number of runs.
    pub runs: u64,
    /// The total time, nanoseconds.
    pub total_ns: u64,
}

/// The CPU time of all programs, as the kernel measures it (`kernel.bpf_stats_enabled`). It does not include the
/// tracepoint's call of the program, but part of the measuring itself: two readings of the clock per run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// The programs that ran.
    pub programs: Vec<ProgramCost>,
}

impl Cost {
    /// Makes the kernel measure programs until the result is dropped (Linux 5.8).
    ///
    /// # Errors
    /// [`Error::Cost`] if the kernel does not support it, or the user may not do it.
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

    /// The events for which a program was not run because it was already running on that CPU, in a vCPU thread that
    /// was preempted.
    pub(super) fn misses(ebpf: &Ebpf, root: &Path) -> Losses {
        let of = |program: &Program| {
            let text = std::fs::read_to_string(description(program, root)?).ok()?;
            number(&text, "recursion_misses:")
        };
        // Kernels before Linux 5.12 do not report it.
        lost(ebpf.programs().filter_map(|(name, program)| Some((name, of(program)?))))
    }

    /// The CPU time of all programs per exit, including its accesses and its entry, in nanoseconds. `None` without
    /// exits.
    #[must_use]
    pub fn ns_per_exit(&self) -> Option<f64> {
        let of_exits = self.programs.iter().filter(|program| takes_exits(&program.program));
        let exits: u64 = of_exits.map(|program| program.runs).sum();
        let total: u64 = self.programs.iter().map(|program| program.total_ns).sum();
        (exits > 0).then(|| total as f64 / exits as f64)
    }
}

/// Tests whether a program follows exits.
fn takes_exits(program: &str) -> bool {
    matches!(program, "raw_exit" | "tracepoint_exit")
}

/// The losses by missed runs of programs. A missed entry or access loses no exit, which is counted without a time or
/// without the access. Programs that are not attached to KVM's events lose none of them.
fn lost<'a>(misses: impl Iterator<Item = (&'a str, u64)>) -> Losses {
    let mut losses = Losses::default();
    for (program, misses) in misses {
        if program.starts_with("raw_") || program.starts_with("tracepoint_") {
            losses.lost_events += misses;
        }
        if takes_exits(program) {
            losses.lost_exits += misses;
        }
    }
    losses
}

/// The path of the kernel's description of a program; `None` if it was not loaded.
fn description(program: &Program, root: &Path) -> Option<PathBuf> {
    let descriptor = program.fd().ok()?.as_fd().as_raw_fd();
    Some(root.join(format!("proc/self/fdinfo/{descriptor}")))
}

fn number(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missed_exit_is_a_lost_exit() {
        let misses =
            [("raw_exit", 1), ("raw_entry", 2), ("raw_nested_exit", 4), ("tracepoint_exit", 8), ("tick", 16)];
        let Losses { lost_events, lost_exits, .. } = lost(misses.into_iter());
        assert_eq!((lost_events, lost_exits), (15, 9));
    }

    #[test]
    fn the_cost_of_an_exit_includes_that_of_its_nested_one() {
        let programs = [("raw_entry", 300), ("raw_exit", 500), ("raw_nested_exit", 200)]
            .map(|(program, total_ns)| ProgramCost { program: program.to_owned(), runs: 10, total_ns });
        assert_eq!(Cost { programs: programs.into() }.ns_per_exit(), Some(100.0));
        assert_eq!(Cost::default().ns_per_exit(), None);
    }
}
