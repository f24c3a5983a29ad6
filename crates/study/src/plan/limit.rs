//! The time limit of a run.

use std::time::Duration;

use super::{Factor, Plan};
use crate::factor::Level;
use crate::workload::{Scene, WorkloadPlan};
use guests::GuestPlan;

/// The time for other work of a run: starting shells and samplers, checking the levels. It takes long on an emulated
/// host.
const BESIDE: Duration = Duration::from_secs(120);
/// The time between runs: applying levels without their commands and ending guests, including the wait for a module that
/// is in use.
const BETWEEN: Duration = Duration::from_secs(600);

/// The limits of a workload's steps.
pub(crate) struct StepLimits {
    /// The preparation of one guest.
    pub(crate) prepare: Duration,
    /// The warm-up, the measured run or its repetition, in all guests at once.
    pub(crate) run: Duration,
}

impl StepLimits {
    pub(crate) fn of(workload: &WorkloadPlan) -> Self {
        let steps = workload.steps(&Scene::default());
        Self {
            prepare: steps.prepare.iter().map(|step| step.limit).sum(),
            run: steps.run.iter().map(|step| step.limit).max().unwrap_or_default(),
        }
    }
}

impl Plan {
    /// The most times that a run carries out its workload: warm-ups, the measured run, and the repetition that counts
    /// exits.
    pub(crate) fn executions(&self) -> u32 {
        self.order.warm_up.saturating_add(1 + u32::from(self.samples.exits.is_apart()))
    }

    /// The time limit of one attempt at a run, including the guests' start, preparation, warm-up and the repetition
    /// that counts exits: `order.run_limit`, or the sum of their limits.
    pub(crate) fn run_limit(&self, guests: &GuestPlan, count: u32, workload: &WorkloadPlan) -> Duration {
        let derived = || {
            let StepLimits { prepare, run } = StepLimits::of(workload);
            let runs = run.saturating_add(BESIDE).saturating_mul(self.executions());
            // Guests may start one after the other.
            let starts = guests.start_limit().saturating_mul(count);
            let preparations = prepare.saturating_mul(count.max(1));
            starts.saturating_add(preparations).saturating_add(runs).saturating_add(BESIDE)
        };
        self.order.run_limit.map_or_else(derived, crate::Span::duration)
    }

    /// The longest time without progress in a study that is not stuck.
    pub(crate) fn longest_standstill(&self) -> Duration {
        let arms = self.arms();
        let guests = arms.iter().filter_map(|arm| self.guests_of(arm).ok());
        let most = guests.flat_map(|guests| {
            let count = guests.counts().last().copied().unwrap_or(0);
            let limits = self.workloads.iter().map(move |workload| self.run_limit(&guests, count, workload));
            limits.collect::<Vec<_>>()
        });
        // Between two runs those of one arm are undone, and those of the next one applied.
        most.max().unwrap_or_default().saturating_add(BETWEEN + self.longest_commands() * 2)
    }

    /// The longest time that the commands of an arm's levels may take, to apply or to undo them.
    pub(crate) fn longest_commands(&self) -> Duration {
        let of_level =
            |level: &Level| level.commands.iter().map(|pair| pair.limit.duration()).sum::<Duration>();
        let of_factor = |factor: &Factor| factor.levels.iter().map(of_level).max().unwrap_or_default();
        self.factors.iter().map(of_factor).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::SHIPPED;

    #[test]
    fn a_limit_that_is_given_counts() {
        let text = include_str!("small.toml").replace("repeats = 2", "repeats = 2\nrun_limit = \"90s\"");
        let plan = Plan::read(&text, "small.toml").unwrap();
        assert_eq!(plan.run_limit(&plan.guests, 2, &plan.workloads[0]).as_secs(), 90);
        assert_eq!(plan.longest_standstill().as_secs(), 690);
    }

    #[test]
    fn the_longest_limits_have_a_sum() {
        let guests = "kind = \"qemu\"\nstart_limit = \"213503982334d\"";
        let text = include_str!("small.toml").replace("kind = \"host\"", guests);
        let plan = Plan::read(&text, "small.toml").unwrap();
        assert_eq!(plan.run_limit(&plan.guests, u32::MAX, &plan.workloads[0]), Duration::MAX);
    }

    #[test]
    fn a_repetition_that_counts_exits_takes_as_long_as_the_run() {
        let with = |samples: &str| {
            let text = format!("{}\n[samples]\nexits = {samples}\n", include_str!("small.toml"));
            Plan::read(&text, "small.toml").unwrap()
        };
        let (during, apart) = (with("true"), with("\"apart\""));
        assert_eq!(apart.executions(), during.executions() + 1);
        let limit = |plan: &Plan| plan.run_limit(&plan.guests, 1, &plan.workloads[0]);
        let step = StepLimits::of(&during.workloads[0]).run;
        assert_eq!(limit(&apart), limit(&during) + step + BESIDE);
    }

    #[test]
    fn the_commands_of_two_arms_are_waited_for() {
        let pairs = "commands = [{ before = \"make\", after = \"true\", limit = \"1h\" }, \
                     { before = \"true\", after = \"true\" }]";
        let text = include_str!("small.toml").replace("name = \"on\"", &format!("name = \"on\"\n{pairs}"));
        let [with, without] =
            [text.as_str(), include_str!("small.toml")].map(|text| Plan::read(text, "small.toml").unwrap());
        assert_eq!(with.longest_commands().as_secs(), 3900);
        let more = with.longest_standstill() - without.longest_standstill();
        assert_eq!(more.as_secs(), 7800);
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
