//! The evaluation of the bench `dynamic_load`: arrangements of I/O workers under a load that changes.

use serde::{Deserialize, Serialize};

/// The number of the format. Within one number fields are added, never changed.
pub const EVALUATION_FORMAT: u32 = 1;
/// The aim in every phase: this share of the throughput of the best fixed number of workers.
pub const ENOUGH: f64 = 0.95;
/// The aim: seconds until that share is served.
pub const SOON: f64 = 2.0;
/// The tolerated throughput relative to a thread for each device: two runs of one arrangement differ by up to 1 %.
const ALIKE: f64 = 0.99;

/// The measurements of one run of the bench.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// [`EVALUATION_FORMAT`].
    pub evaluation: u32,
    /// The number of CPUs that back-ends and front-ends shared.
    pub cpus: usize,
    /// Seconds of a phase.
    pub phase_seconds: f64,
    /// Seconds of a window of [`Measured::windows`].
    pub window_seconds: f64,
    /// Phases under each arrangement, in the order of measurement.
    pub measured: Vec<Measured>,
}

/// An arrangement of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrangement {
    /// A thread for each device.
    ThreadEach,
    /// This many workers, which share all devices.
    Shared(usize),
    /// Workers that follow the load.
    Monitor,
}

/// One phase under one arrangement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The number of front-ends, each with one device.
    pub front_ends: usize,
    /// The arrangement of workers.
    pub arrangement: Arrangement,
    /// The phase.
    pub phase: String,
    /// Requests a second that were due.
    pub asked_per_second: f64,
    /// Requests a second that were served.
    pub served_per_second: f64,
    /// The slowest front-end's 99th percentile latency, in microseconds from the time at which a request was due.
    pub p99_us: u32,
    /// The back-end's CPU time per request, in microseconds.
    pub cpu_us_per_request: f64,
    /// Requests that were served in each window.
    pub windows: Vec<u64>,
}

/// The monitor's result in one phase, compared with the other arrangements.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged<'a> {
    /// Front-ends.
    pub front_ends: usize,
    /// The phase.
    pub phase: &'a str,
    /// Its throughput, as a share of that of the best fixed number of workers.
    pub of_best: f64,
    /// The same relative to a thread for each device.
    pub of_each: Option<f64>,
    /// Seconds after which it serves [`ENOUGH`] of the best; `None` when it never does.
    pub converged: Option<f64>,
}

impl Judged<'_> {
    /// Tests whether all aims are met.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.of_best >= ENOUGH
            && self.of_each.is_none_or(|of| of >= ALIKE)
            && self.converged.is_some_and(|seconds| seconds <= SOON)
    }
}

/// The reason why a file is not an evaluation.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NoEvaluation {
    /// It cannot be read.
    #[error("It is not a result of the bench `dynamic_load`: {0}")]
    Text(String),
    /// Another version wrote it.
    #[error("It has format {0}, and this exitless reads {EVALUATION_FORMAT}; use the exitless that wrote it")]
    Format(u32),
    /// A figure is not valid.
    #[error("Its phase {phase:?} has {what}, which no measurement gives")]
    Figure {
        /// The phase.
        phase: String,
        /// The figure.
        what: &'static str,
    },
}

impl Evaluation {
    /// Parses the JSON that the bench wrote.
    ///
    /// # Errors
    /// [`NoEvaluation`].
    pub fn parse(bytes: &[u8]) -> Result<Self, NoEvaluation> {
        let read: Self =
            serde_json::from_slice(bytes).map_err(|error| NoEvaluation::Text(error.to_string()))?;
        if read.evaluation != EVALUATION_FORMAT {
            return Err(NoEvaluation::Format(read.evaluation));
        }
        let is_time = |seconds: f64| seconds.is_finite() && seconds > 0.0;
        let bad = |phase: &str, what| Err(NoEvaluation::Figure { phase: phase.to_owned(), what });
        if !is_time(read.phase_seconds) || !is_time(read.window_seconds) {
            return bad("all", "an invalid duration");
        }
        for one in &read.measured {
            let rates = [one.asked_per_second, one.served_per_second, one.cpu_us_per_request];
            if rates.iter().any(|rate| !(0.0..=1e12).contains(rate)) {
                return bad(&one.phase, "a rate below 0 or beyond measure");
            }
        }
        Ok(read)
    }

    /// Numbers of front-ends, in the order in which they were measured.
    #[must_use]
    pub fn sizes(&self) -> Vec<usize> {
        let mut sizes = Vec::new();
        for one in &self.measured {
            if !sizes.contains(&one.front_ends) {
                sizes.push(one.front_ends);
            }
        }
        sizes
    }

    /// The phases measured with this many front-ends, in order.
    #[must_use]
    pub fn phases(&self, front_ends: usize) -> Vec<&str> {
        let mut phases = Vec::new();
        for one in self.measured.iter().filter(|one| one.front_ends == front_ends) {
            if !phases.contains(&one.phase.as_str()) {
                phases.push(&one.phase);
            }
        }
        phases
    }

    /// The arrangements measured with this many front-ends, sorted.
    #[must_use]
    pub fn arrangements(&self, front_ends: usize) -> Vec<Arrangement> {
        let of = self.measured.iter().filter(|one| one.front_ends == front_ends);
        let all: std::collections::BTreeSet<Arrangement> = of.map(|one| one.arrangement).collect();
        all.into_iter().collect()
    }

    /// One phase under one arrangement.
    #[must_use]
    pub fn of(&self, front_ends: usize, phase: &str, arrangement: Arrangement) -> Option<&Measured> {
        self.measured
            .iter()
            .find(|one| one.front_ends == front_ends && one.phase == phase && one.arrangement == arrangement)
    }

    /// The throughput of the best fixed number of workers in a phase, requests a second.
    #[must_use]
    pub fn best(&self, front_ends: usize, phase: &str) -> Option<f64> {
        let fixed = self.measured.iter().filter(|one| {
            one.front_ends == front_ends
                && one.phase == phase
                && matches!(one.arrangement, Arrangement::Shared(_))
        });
        fixed.map(|one| one.served_per_second).reduce(f64::max)
    }

    /// Seconds after which the rest of the phase averages at least [`ENOUGH`] of the best; `None` if it never does.
    #[must_use]
    pub fn converged(&self, one: &Measured) -> Option<f64> {
        let wanted = self.best(one.front_ends, &one.phase)? * ENOUGH * self.window_seconds;
        let at = (0..one.windows.len()).find(|&from| {
            let rest = &one.windows[from..];
            rest.iter().sum::<u64>() as f64 >= wanted * rest.len() as f64
        })?;
        Some(at as f64 * self.window_seconds)
    }

    /// The monitor's result in each phase for which a fixed number of workers was measured as well.
    #[must_use]
    pub fn judged(&self) -> Vec<Judged<'_>> {
        let monitor = self.measured.iter().filter(|one| one.arrangement == Arrangement::Monitor);
        let judged = monitor.filter_map(|one| {
            let best = self.best(one.front_ends, &one.phase)?;
            let share = |of: f64| if of > 0.0 { one.served_per_second / of } else { 1.0 };
            let each = self.of(one.front_ends, &one.phase, Arrangement::ThreadEach);
            Some(Judged {
                front_ends: one.front_ends,
                phase: &one.phase,
                of_best: share(best),
                of_each: each.map(|each| share(each.served_per_second)),
                converged: self.converged(one),
            })
        });
        judged.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(arrangement: Arrangement, windows: &[u64]) -> Measured {
        let served_per_second = windows.iter().sum::<u64>() as f64 / (windows.len() as f64 * 0.5);
        Measured {
            front_ends: 8,
            arrangement,
            phase: "small".to_owned(),
            asked_per_second: 200.0,
            served_per_second,
            p99_us: 10,
            cpu_us_per_request: 1.0,
            windows: windows.to_vec(),
        }
    }

    fn evaluation(monitor: &[u64]) -> Evaluation {
        Evaluation {
            evaluation: EVALUATION_FORMAT,
            cpus: 2,
            phase_seconds: 3.0,
            window_seconds: 0.5,
            measured: vec![
                measured(Arrangement::ThreadEach, &[80; 6]),
                measured(Arrangement::Shared(1), &[50; 6]),
                measured(Arrangement::Shared(2), &[100; 6]),
                measured(Arrangement::Monitor, monitor),
            ],
        }
    }

    #[test]
    fn the_monitor_is_judged_by_the_best_fixed_number_and_by_a_thread_each() {
        type Case = (&'static str, [u64; 6], f64, Option<f64>, bool);
        let cases: [Case; 4] = [
            ("as good from the beginning", [100; 6], 1.0, Some(0.0), true),
            ("slow to begin", [60, 90, 100, 100, 100, 100], 550.0 / 600.0, Some(0.5), false),
            ("enough in all, after a second", [90, 90, 98, 98, 98, 98], 572.0 / 600.0, Some(0.0), true),
            ("as one worker all the time", [50; 6], 0.5, None, false),
        ];
        for (name, windows, of_best, converged, is_met) in cases {
            let evaluation = evaluation(&windows);
            let [judged] = &evaluation.judged()[..] else { panic!("{name}") };
            assert!((judged.of_best - of_best).abs() < 1e-9, "{name}: {judged:?}");
            assert_eq!((judged.converged, judged.is_met()), (converged, is_met), "{name}: {judged:?}");
        }
    }

    #[test]
    fn what_is_kept_is_read_and_what_is_not_one_is_refused_by_name() {
        let kept = evaluation(&[100; 6]);
        let bytes = serde_json::to_vec(&kept).unwrap();
        assert_eq!(Evaluation::parse(&bytes), Ok(kept.clone()));
        assert_eq!((kept.sizes(), kept.phases(8)), (vec![8], vec!["small"]));
        let refused = |bytes: &[u8]| Evaluation::parse(bytes).unwrap_err().to_string();
        assert!(refused(&bytes[..bytes.len() - 3]).contains("dynamic_load"));
        let change = |change: fn(&mut Evaluation)| {
            let mut other = kept.clone();
            change(&mut other);
            refused(&serde_json::to_vec(&other).unwrap())
        };
        assert!(change(|one| one.evaluation = 7).contains("format 7"));
        assert!(change(|one| one.measured[1].served_per_second = -1.0).contains("small"));
        assert!(change(|one| one.window_seconds = 0.0).contains("an invalid duration"));
    }
}
