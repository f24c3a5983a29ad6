//! The order of the runs.
//!
//! Timed runs come in blocks of Off, On, On, Off, one measure after the other. The two runs of a pair must differ in the
//! arm only, so the vCPU that receives the interrupts changes between pairs and never within one. Attaching to the
//! tracepoints takes longer than many runs, so it is done once, after all timed runs. Then one counted run for each arm and
//! measure follows, On first: the last timed run was Off, so the tracepoints see the switches in both directions.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use exits::{ExitCounts, ExitReason, HandlingTime};
use live::InhibitChange;
use probe::measure::Measure;
use probe::run::{Arm, Run};

use crate::warning::arm_in_words;
use crate::{CountedRun, Failure, Plan, TimedRun};

/// The progress of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Finished runs.
    pub done: u32,
    /// The number of all runs.
    pub total: u32,
    /// The measure of the next run.
    pub measure: Measure,
    /// The arm of the next run.
    pub arm: Arm,
    /// True if the next run counts exits instead of cycles.
    pub counted: bool,
}

impl fmt::Display for Progress {
    /// Writes, for example, "run 13 of 98: IPI to a running vCPU, on, timed".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arm = arm_in_words(self.arm);
        let kind = if self.counted { "counted" } else { "timed" };
        write!(f, "run {} of {}: {}, {arm}, {kind}", self.done + 1, self.total, self.measure.title())
    }
}

const BLOCK: [Arm; 4] = [Arm::Off, Arm::On, Arm::On, Arm::Off];

/// A machine that can be switched, timed and traced: the micro VM, or a mock.
pub(super) trait Machine {
    /// Switches to `arm`; does nothing if it is already there.
    fn switch(&mut self, arm: Arm) -> Result<(), String>;

    /// Makes one run in the current arm.
    fn run(
        &mut self,
        measure: Measure,
        warm_up: u32,
        samples: u32,
        target: Option<u16>,
    ) -> Result<Run, String>;

    /// Creates a new machine if a failure left the guest in an undefined state.
    fn renew(&mut self) -> Result<(), String>;

    /// Switches the tracepoints on, with empty counts; `false` if they cannot be used.
    fn start(&mut self) -> Result<bool, String>;

    /// The exits that the tracepoints saw since the last call.
    fn take(&mut self) -> Result<Seen, String>;

    /// Switches the tracepoints off, if they are on.
    fn stop(&mut self);
}

/// The exits that the tracepoints saw between two calls.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) exits: ExitCounts,
    pub(super) handling: BTreeMap<ExitReason, HandlingTime>,
    pub(super) inhibits: Vec<InhibitChange>,
}

/// The runs that succeeded.
#[derive(Debug, Default)]
pub(super) struct Runs {
    pub(super) timed: Vec<TimedRun>,
    pub(super) counted: Vec<CountedRun>,
    pub(super) failures: Vec<Failure>,
}

/// The state of one collection.
pub(super) struct Schedule<'a, M> {
    plan: &'a Plan,
    arms: &'static [Arm],
    machine: &'a mut M,
    progress: &'a mut dyn FnMut(Progress),
    began: Instant,
    position: u32,
    runs: Runs,
}

struct Failed {
    arm: Arm,
    why: String,
}

impl<'a, M: Machine> Schedule<'a, M> {
    pub(super) fn new(
        plan: &'a Plan,
        arms: &'static [Arm],
        machine: &'a mut M,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Self {
        let began = Instant::now();
        Self { plan, arms, machine, progress, began, position: 0, runs: Runs::default() }
    }

    /// Makes all runs. If a measure fails, records the failure and goes on with the next one.
    pub(super) fn carry_out(mut self) -> Runs {
        let mut timed = Vec::new();
        for (index, &measure) in (0..).zip(&self.plan.measures) {
            self.position = index * self.timed_per_measure();
            match self.timed_runs(measure) {
                Ok(()) => timed.push(measure),
                Err(failed) => {
                    if let Err(why) = self.fail(measure, failed, false) {
                        let rest = &self.plan.measures[index as usize + 1..];
                        self.give_up(rest, measure, &why, false);
                        return self.runs;
                    }
                }
            }
        }
        self.position = self.plan.measures.len() as u32 * self.timed_per_measure();
        self.count(&timed);
        self.machine.stop();
        self.runs
    }

    fn count(&mut self, measures: &[Measure]) {
        let mut traced = self.machine.start();
        for (index, &measure) in (1..).zip(measures) {
            let counted = match &traced {
                Ok(traced) => self.counted_runs(measure, *traced),
                Err(why) => Err(Failed { arm: Arm::On, why: why.clone() }),
            };
            if let Err(failed) = counted {
                // A new machine has other threads, to which the tracepoints must be attached anew.
                self.machine.stop();
                if let Err(why) = self.fail(measure, failed, true) {
                    return self.give_up(&measures[index..], measure, &why, true);
                }
                traced = self.machine.start();
            }
        }
    }

    /// Records the failure of a measure, in a timed or `counted` run, and creates a new machine if needed.
    fn fail(&mut self, measure: Measure, Failed { arm, why }: Failed, counted: bool) -> Result<(), String> {
        let failed = if counted { "its exits could not be counted" } else { "the measure failed" };
        tracing::warn!(%measure, ?arm, why, "{failed}; the next one follows");
        self.runs.failures.push(Failure { measure, arm, why, counted });
        self.machine.renew()
    }

    fn block(&self) -> impl Iterator<Item = Arm> + use<M> {
        let arms = self.arms;
        BLOCK.into_iter().filter(move |arm| arms.contains(arm))
    }

    fn timed_per_measure(&self) -> u32 {
        self.plan.blocks * self.block().count() as u32
    }

    fn timed_runs(&mut self, measure: Measure) -> Result<(), Failed> {
        for block in 0..self.plan.blocks {
            for (slot, arm) in (0..).zip(self.block()) {
                self.announce(measure, arm, false);
                let target = self.target(measure, 2 * block + slot / 2);
                let failed = |why| Failed { arm, why };
                self.machine.switch(arm).map_err(failed)?;
                let began = Instant::now();
                let run = self
                    .machine
                    .run(measure, self.plan.warm_up, self.plan.samples, target)
                    .map_err(failed)?;
                let timed = TimedRun {
                    position: self.position,
                    block,
                    began_us: micros(began.duration_since(self.began)),
                    took_us: micros(began.elapsed()),
                    run,
                };
                self.runs.timed.push(timed);
                self.position += 1;
            }
        }
        Ok(())
    }

    /// Records the remaining measures as failed: without a machine none of them can run.
    fn give_up(&mut self, rest: &[Measure], after: Measure, why: &str, counted: bool) {
        for &measure in rest {
            let why = format!("no new micro VM after {after} had failed: {why}");
            self.runs.failures.push(Failure { measure, arm: Arm::On, why, counted });
        }
    }

    fn counted_runs(&mut self, measure: Measure, traced: bool) -> Result<(), Failed> {
        self.arms.iter().rev().try_for_each(|&arm| {
            self.announce(measure, arm, true);
            let counted = self.counted_run(measure, arm, traced).map_err(|why| Failed { arm, why })?;
            self.runs.counted.push(counted);
            self.position += 1;
            Ok(())
        })
    }

    fn counted_run(&mut self, measure: Measure, arm: Arm, traced: bool) -> Result<CountedRun, String> {
        let target = self.target(measure, 0);
        self.machine.switch(arm)?;
        // The exits of the switch itself belong to no operation: keep only its changes of inhibit reasons.
        let switch = if traced { self.machine.take()? } else { Seen::default() };
        let run = self.machine.run(measure, self.plan.warm_up, self.plan.counted_samples, target)?;
        let seen = if traced { self.machine.take()? } else { Seen::default() };
        Ok(CountedRun {
            position: self.position,
            run,
            exits: traced.then_some(seen.exits),
            handling: seen.handling,
            inhibits: switch.inhibits.into_iter().chain(seen.inhibits).collect(),
        })
    }

    fn target(&self, measure: Measure, turn: u32) -> Option<u16> {
        let others = u32::from(self.plan.vcpus) - 1;
        let target = 1 + turn.checked_rem(others)?;
        measure.needs_target().then(|| u16::try_from(target).unwrap_or(1))
    }

    fn announce(&mut self, measure: Measure, arm: Arm, counted: bool) {
        let runs_per_measure = self.timed_per_measure() + self.arms.len() as u32;
        let total = self.plan.measures.len() as u32 * runs_per_measure;
        (self.progress)(Progress { done: self.position, total, measure, arm, counted });
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
