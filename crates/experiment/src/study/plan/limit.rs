//! How long a run may take before it has failed.

use std::time::Duration;

use super::Plan;
use crate::study::guest::GuestPlan;
use crate::study::workload::{Scene, Step, Workload};

/// What is done for a run beside its steps: shells that start, samplers, reading what is in force. An emulated host takes
/// its time for it.
const BESIDE: Duration = Duration::from_secs(120);
/// Levels are put in force and guests ended between runs: a module that is in use is waited for.
const BETWEEN: Duration = Duration::from_secs(600);

impl Plan {
    /// How long one attempt at a run may take, its guests' start, preparation and warm-up included: `order.run_limit`,
    /// or what the limits of all this add up to.
    pub fn run_limit(&self, guests: &GuestPlan, count: u32, workload: &dyn Workload) -> Duration {
        let derived = || {
            let steps = workload.steps(&Scene::default());
            let sum: Duration = steps.prepare.iter().map(|step| step.limit).sum();
            let longest = |steps: &[Step]| steps.iter().map(|step| step.limit).max().unwrap_or_default();
            let run = longest(&steps.run) + BESIDE;
            // Guests may start one after the other.
            guests.start_limit() * count + sum * count + run * self.order.warm_up.saturating_add(1) + BESIDE
        };
        self.order.run_limit.map_or_else(derived, crate::study::Span::duration)
    }

    /// How long nothing may be heard of the headway of a study that makes no mistake.
    pub fn longest_standstill(&self) -> Duration {
        let arms = self.arms();
        let guests = arms.iter().filter_map(|arm| self.guests_of(arm).ok());
        let most = guests.flat_map(|guests| {
            let count = guests.counts().last().copied().unwrap_or(0);
            let limits = self.workloads.iter().map(move |workload| self.run_limit(&guests, count, workload));
            limits.collect::<Vec<_>>()
        });
        most.max().unwrap_or_default() + BETWEEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::plan::SHIPPED;

    #[test]
    fn a_limit_that_is_given_counts() {
        let text = include_str!("small.toml").replace("repeats = 2", "repeats = 2\nrun_limit = \"90s\"");
        let plan = Plan::read(&text, "small.toml").unwrap();
        assert_eq!(plan.run_limit(&plan.guests, 2, &plan.workloads[0]).as_secs(), 90);
        assert_eq!(plan.longest_standstill().as_secs(), 690);
    }

    #[test]
    fn without_one_no_step_is_ended_before_its_own_limit() {
        for shipped in SHIPPED {
            let plan = shipped.plan().unwrap();
            for workload in &plan.workloads {
                let limit = plan.run_limit(&plan.guests, 1, workload);
                let steps = workload.steps(&Scene::default());
                let longest = steps.run.iter().chain(&steps.prepare).map(|step| step.limit).max().unwrap();
                assert!(plan.order.run_limit.is_some() || limit > longest, "{}: {limit:?}", shipped.name);
            }
        }
    }
}
