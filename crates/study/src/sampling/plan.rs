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
    pub exits: ExitCounting,
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
            exits: ExitCounting::During(true),
            accesses: false,
            interrupts: true,
            frequency: true,
        }
    }
}

/// Whether and when exits are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "[samples] exits: expected true, false or \"apart\"")]
pub enum ExitCounting {
    /// True: during the measured run, whose figures then contain the cost of counting. False: not at all.
    During(bool),
    /// Not during the measured run, so that its figures do not contain the cost of counting.
    Apart(Apart),
}

/// Counting apart from the measured run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Apart {
    /// In a repetition of the workload after each measured run, in the same guests.
    Apart,
}

impl ExitCounting {
    /// Tests whether exits are counted.
    pub fn is_on(self) -> bool {
        self != Self::During(false)
    }

    /// Tests whether exits are counted in a repetition of the measured run.
    pub fn is_apart(self) -> bool {
        matches!(self, Self::Apart(_))
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

    /// The samples of the measured run.
    pub(crate) fn of_measured(&self) -> Self {
        let exits = if self.exits.is_apart() { ExitCounting::During(false) } else { self.exits };
        Self { exits, ..self.clone() }
    }

    /// The samples of the repetition that counts exits, if they are counted apart.
    pub(crate) fn of_repetition(&self) -> Option<Self> {
        self.exits.is_apart().then_some(Self {
            interval: self.interval,
            cpu: false,
            per_core: false,
            threads: false,
            exits: ExitCounting::During(true),
            accesses: self.accesses,
            interrupts: false,
            frequency: false,
        })
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
            plan.cpu
                && plan.per_core
                && plan.threads
                && !plan.exits.is_on()
                && plan.interrupts
                && plan.frequency
        );
        assert_eq!(toml::from_str::<SamplePlan>("").unwrap(), SamplePlan::default());
        assert!(toml::from_str::<SamplePlan>("exit = true").is_err());
    }

    #[test]
    fn exits_are_counted_in_the_measured_run_or_in_a_repetition_or_not_at_all() {
        let read = |exits: &str| toml::from_str::<SamplePlan>(&format!("exits = {exits}"));
        for (text, is_on, is_apart) in
            [("true", true, false), ("false", false, false), ("\"apart\"", true, true)]
        {
            let plan = read(text).unwrap();
            assert_eq!((plan.exits.is_on(), plan.exits.is_apart()), (is_on, is_apart), "{text}");
            // Results of earlier versions have true and false.
            assert_eq!(serde_json::to_string(&plan.exits).unwrap(), text);
            assert_eq!(plan.of_measured().exits, ExitCounting::During(is_on && !is_apart));
            assert_eq!(plan.of_repetition().is_some(), is_apart);
        }
        let repetition = read("\"apart\"\naccesses = true").unwrap().of_repetition().unwrap();
        assert_eq!(repetition.exits, ExitCounting::During(true));
        assert!(repetition.accesses && !repetition.cpu && !repetition.threads && !repetition.interrupts);
        for wrong in ["\"aside\"", "1"] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("expected true, false or \"apart\""), "{error}");
        }
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
