//! Execution of a schedule: levels, guests, warm-up, runs, and the handling of failures.

mod attempt;
mod facts;
mod failures;
mod here;
mod host_lock;
mod past;
mod progress;
mod rig;
mod scene;
mod together;
mod watch;

pub use failures::{FailedForGood, SharedReason, ToldReasons, by_reason};
pub use here::{FindFiles, Here};
pub use host_lock::HostLock;
pub(crate) use host_lock::place_of_locks;
pub use past::{Past, Tried};
pub use progress::{Phase, StudyProgress};
pub use rig::{Kept, Rig, Sampling, Sink};

use exits::{counted, with_causes};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::factor::Level;
use super::plan::Plan;
use super::record::Cell;
use super::schedule::{ArmRuns, Enough, Schedule, Slot};
use super::store::StoreError;
use attempt::Ending;
use guests::Guest;
use watch::IsPast;

/// The result of a session. The default is that of a session that was interrupted before its first run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Conclusion {
    /// The reason why no further block was started; `None` if the session was interrupted or a change could not be
    /// undone.
    pub enough: Option<Enough>,
    /// The number of runs made in this session.
    pub made: u32,
    /// Runs that failed for good in this session, or were not tried because others had, with the last reason.
    pub failed: Vec<FailedForGood>,
    /// Changes of the host that could not be undone. No arm was measured after them.
    pub not_undone: Vec<String>,
}

/// The reason why a study stopped early; all runs made until then are stored.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Levels could not be applied.
    #[error("The arm {arm} could not be applied: {why}")]
    Levels {
        /// The arm's levels.
        arm: String,
        /// The reason, and what to do.
        why: String,
    },
    /// Changes of another session are in force, or may be.
    #[error(
        "Could not begin, because changes of another session are still in force: {}; run `exitless restore` on the \
         target, then the same command", what.join("; ")
    )]
    LeftOver {
        /// A line for each change.
        what: Vec<String>,
    },
    /// Another study holds the [`HostLock`].
    #[error(
        "Another study uses this host: {holder}. Each would measure the settings and guests of the other; wait until it has \
         ended, then give the same command"
    )]
    OtherStudy {
        /// The process that holds the lock.
        holder: String,
    },
    /// The study ended early, and changes of the host could not be undone.
    #[error(
        "{why}. Changes of the host are also still in force: {}; run `exitless restore` on the target, then the same \
         command", what.join("; ")
    )]
    NotUndone {
        /// The reason why it ended early.
        why: String,
        /// A line for each change.
        what: Vec<String>,
    },
    /// A run could not be stored.
    #[error("Could not store a run")]
    Store(#[from] StoreError),
    /// The plan cannot be carried out.
    #[error("{0}")]
    Plan(String),
}

/// Tests that no changes of another session are in force. To be called before the host is compared with that of
/// earlier runs: it could differ by these changes alone.
///
/// # Errors
/// [`EngineError::LeftOver`].
pub fn refuse_left_over(rig: &mut dyn Rig) -> Result<(), EngineError> {
    let what = rig.left_over();
    if what.is_empty() { Ok(()) } else { Err(EngineError::LeftOver { what }) }
}

/// Executes the rest of a plan's schedule until the stop rule is met or `stop` is set, after [`refuse_left_over`]. Stops
/// guests and undoes levels before it returns.
///
/// # Errors
/// [`EngineError`].
pub fn carry_out(
    plan: &Plan,
    seed: u64,
    past: Past,
    rig: &mut dyn Rig,
    sink: &mut dyn Sink,
    stop: &AtomicBool,
) -> Result<Conclusion, EngineError> {
    carry_out_within(plan, seed, past, rig, sink, stop, &watch::is_past)
}

/// The same with another test for whether an attempt exceeds its limit.
fn carry_out_within(
    plan: &Plan,
    seed: u64,
    past: Past,
    rig: &mut dyn Rig,
    sink: &mut dyn Sink,
    stop: &AtomicBool,
    is_past: IsPast<'_>,
) -> Result<Conclusion, EngineError> {
    for workload in &plan.workloads {
        workload.check().map_err(|bad| EngineError::Plan(bad.to_string()))?;
    }
    let host = rig.host().map_err(|error| EngineError::Plan(error.to_string()))?;
    let mut engine = Engine {
        plan,
        schedule: Schedule::new(plan, seed),
        rig,
        sink,
        stop,
        is_past,
        host,
        running: Running::default(),
        past,
        began: Instant::now(),
        block: 0,
        phase: Phase::Levels,
        left_out: BTreeMap::new(),
        conclusion: Conclusion { enough: None, made: 0, failed: Vec::new(), not_undone: Vec::new() },
    };
    let ended = engine.blocks();
    engine.release_arm();
    let conclusion = engine.conclusion;
    match ended {
        Err(error) if !conclusion.not_undone.is_empty() => {
            Err(EngineError::NotUndone { why: with_causes(&error), what: conclusion.not_undone })
        }
        ended => ended.map(|()| conclusion),
    }
}

struct Engine<'a> {
    plan: &'a Plan,
    schedule: Schedule,
    rig: &'a mut dyn Rig,
    sink: &'a mut dyn Sink,
    stop: &'a AtomicBool,
    is_past: IsPast<'a>,
    /// The host, for the steps that run there.
    host: Box<dyn Guest>,
    running: Running,
    past: Past,
    began: Instant,
    block: u32,
    /// The last reported phase.
    phase: Phase,
    /// Arms and numbers of guests that could not be started, with the reason.
    left_out: BTreeMap<(BTreeMap<String, String>, u32), String>,
    conclusion: Conclusion,
}

/// The running guests, and the steps that have already been run in them.
#[derive(Default)]
struct Running {
    guests: Vec<Box<dyn Guest>>,
    facts: Vec<facts::Facts>,
    prepared: BTreeSet<(usize, usize)>,
    warm: BTreeSet<usize>,
}

impl Engine<'_> {
    fn blocks(&mut self) -> Result<(), EngineError> {
        loop {
            self.conclusion.enough = self.past.is_over(self.plan, self.block, self.spent());
            if self.conclusion.enough.is_some() {
                return Ok(());
            }
            let arms = if self.stays() { Vec::new() } else { self.schedule.block(self.block) };
            for arm in arms {
                self.arm(&arm)?;
                // Changes that could not be undone would still be in force in the next arm.
                if self.stopped() || !self.conclusion.not_undone.is_empty() {
                    return Ok(());
                }
            }
            self.block += 1;
        }
    }

    /// Tests whether the block stays as an earlier session left it, because the runs that it lacks have failed for good in
    /// an earlier block of this session: made again, it would lack the same runs. Its other runs then count.
    fn stays(&mut self) -> bool {
        let slots: Vec<Slot> =
            self.schedule.block(self.block).into_iter().flat_map(|arm| arm.slots).collect();
        let failed = &self.conclusion.failed;
        let failure = |cell: &Cell| failed.iter().find(|failed| failed.cell.is_repeat_of(cell));
        let is_hopeless = |cell: &Cell| failure(cell).is_some();
        let Some(made) = self.past.all_but(self.block, &slots, is_hopeless) else { return false };
        let lacking = slots.into_iter().filter(|slot| !made.iter().any(|run| run.cell == slot.cell));
        let not_tried = lacking.filter_map(|slot| {
            let why = failures::not_tried_again(&failure(&slot.cell)?.why);
            Some(FailedForGood { position: slot.position, cell: slot.cell, why })
        });
        let not_tried: Vec<FailedForGood> = not_tried.collect();
        self.conclusion.failed.extend(not_tried);
        self.past.runs.extend(made);
        true
    }

    fn arm(&mut self, runs: &ArmRuns) -> Result<(), EngineError> {
        let slots: Vec<&Slot> = runs.slots.iter().filter(|slot| !self.past.is_done(&slot.cell)).collect();
        let Some(first) = slots.first() else { return Ok(()) };
        self.tell(first, 0, Phase::Levels);
        let levels: Vec<&Level> = self.plan.levels(&runs.arm).collect();
        let arm = || self.plan.arm_label(&runs.arm);
        let applied = self.rig.apply(&levels).map_err(|why| EngineError::Levels { arm: arm(), why });
        let made = applied.and_then(|()| slots.iter().try_for_each(|slot| self.slot(runs, slot)));
        self.release_arm();
        made
    }

    /// Stops the guests and undoes the levels.
    fn release_arm(&mut self) {
        self.stop_guests();
        for what in self.rig.undo() {
            tracing::warn!("{what}");
            self.conclusion.not_undone.push(what);
        }
    }

    fn stop_guests(&mut self) {
        let running = std::mem::take(&mut self.running);
        // In reverse order: a guest may use resources of one that was started before it.
        for mut guest in running.guests.into_iter().rev() {
            if let Err(error) = guest.stop() {
                tracing::warn!("{error}");
            }
        }
    }

    /// Makes one run, with as many attempts as the plan allows.
    fn slot(&mut self, runs: &ArmRuns, slot: &Slot) -> Result<(), EngineError> {
        let before = self.past.tried(slot.position);
        if before.now >= self.plan.order.attempts {
            self.give_up(
                slot,
                format!(
                    "it failed {} before this connection; its folders below failed have the reasons",
                    counted(u64::from(before.now), "time")
                ),
            );
            return Ok(());
        }
        for attempt in before.now..self.plan.order.attempts {
            if self.stopped() {
                return Ok(());
            }
            let number = before.ever + (attempt - before.now);
            let run = match self.attempt(runs, slot, number)? {
                Ending::Interrupted => return Ok(()),
                Ending::Made(run) => {
                    self.conclusion.made += 1;
                    self.past.runs.push(*run);
                    return Ok(());
                }
                Ending::Failed(failed) => failed,
            };
            // Processes and partly written files of a failed run would disturb the next one.
            self.stop_guests();
            let last = attempt + 1 == self.plan.order.attempts;
            if last || run.hopeless {
                if run.guests_do_not_start {
                    // Keep the first reason: later ones only refer to it.
                    let place = (slot.cell.arm.clone(), slot.cell.guests);
                    self.left_out.entry(place).or_insert_with(|| run.why.clone());
                }
                self.give_up(slot, run.why);
                return Ok(());
            }
        }
        Ok(())
    }

    fn give_up(&mut self, slot: &Slot, why: String) {
        let failed = FailedForGood { position: slot.position, cell: slot.cell.clone(), why };
        self.conclusion.failed.push(failed);
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Seconds since the start of the study, without pauses.
    fn spent(&self) -> f64 {
        self.past.spent() + self.began.elapsed().as_secs_f64()
    }

    fn tell(&mut self, slot: &Slot, attempt: u32, phase: Phase) {
        self.phase = phase;
        let per_block = self.schedule.runs_per_block();
        let total = per_block.saturating_mul(self.plan.order.repeats.max(self.block + 1));
        let done = u32::try_from(self.past.runs.len()).unwrap_or(u32::MAX);
        let done =
            done.saturating_add(u32::try_from(self.conclusion.failed.len()).unwrap_or(u32::MAX)).min(total);
        let progress = StudyProgress {
            position: slot.position,
            done,
            total,
            at_least: self.plan.order.until.is_some(),
            cell: slot.cell.clone(),
            attempt,
            phase,
        };
        self.sink.progress(&progress);
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
