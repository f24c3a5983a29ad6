//! `[samples]` of a plan.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Span;

/// The shortest interval: reading a host with hundreds of CPUs takes about ten milliseconds.
const SHORTEST: Duration = Duration::from_millis(50);
/// The longest interval: the counts of exits are also read at this interval, and the raw samples should show their
/// course over time.
const LONGEST: Duration = Duration::from_secs(60);

/// The samples of the host while a workload runs. By default all except accesses, every second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SamplePlan {
    /// The interval of readings: from "50ms" to "60s". Every reading costs CPU time, which `sampling.cpu`
    /// shows.
    pub interval: Span,
    /// CPU time of the host by state: user, system, guest, iowait, steal, softirq and the others.
    pub cpu: bool,
    /// CPU time and interrupts of each CPU too, in the raw samples.
    pub per_core: bool,
    /// Run time and run-queue wait of the guests' threads: vCPUs, I/O threads, vhost workers and the rest.
    pub threads: bool,
    /// VM exits by reason with their handling times, by eBPF, or KVM's own statistics if eBPF cannot be used.
    pub exits: bool,
    /// Exits by I/O port and by page of addresses too. This takes up to two more events for each exit, so it
    /// is off by default.
    pub accesses: bool,
    /// Interrupts of the host by source.
    pub interrupts: bool,
    /// The frequency of each CPU (cpufreq).
    pub frequency: bool,
}

impl Default for SamplePlan {
    fn default() -> Self {
        Self {
            interval: Span::seconds(1),
            cpu: true,
            per_core: true,
            threads: true,
            exits: true,
            accesses: false,
            interrupts: true,
            frequency: true,
        }
    }
}

/// An interval that is too short or too long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[samples] interval is {found}, expected 50ms to 60s")]
pub struct BadInterval {
    found: Span,
}

impl SamplePlan {
    /// Checks the interval, beyond what its type guarantees.
    ///
    /// # Errors
    /// [`BadInterval`].
    pub fn check(&self) -> Result<(), BadInterval> {
        let possible = (SHORTEST..=LONGEST).contains(&self.interval.duration());
        possible.then_some(()).ok_or(BadInterval { found: self.interval })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_sampled_every_second_unless_the_plan_says_otherwise() {
        let plan: SamplePlan = toml::from_str("interval = \"500ms\"\nexits = false").unwrap();
        assert_eq!(plan.interval.duration(), Duration::from_millis(500));
        assert!(
            plan.cpu && plan.per_core && plan.threads && !plan.exits && plan.interrupts && plan.frequency
        );
        assert_eq!(toml::from_str::<SamplePlan>("").unwrap(), SamplePlan::default());
        assert!(toml::from_str::<SamplePlan>("exit = true").is_err());
    }

    #[test]
    fn an_interval_that_measures_itself_is_refused() {
        let plan =
            |interval: &str| SamplePlan { interval: interval.parse().unwrap(), ..SamplePlan::default() };
        assert_eq!(SamplePlan::default().check(), Ok(()));
        for interval in ["49ms", "61s"] {
            let error = plan(interval).check().unwrap_err().to_string();
            assert!(error.contains(interval), "{error}");
        }
        assert!(plan("50ms").check().is_ok() && plan("60s").check().is_ok());
    }
}
