//! Taking the runs on this machine. Nothing is computed here: the host may be a slow one.

mod rig;
mod schedule;

use std::fmt;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use host::Fingerprint;
use probe::Arms;
use probe::measure::Measure;
use probe::run::Arm;

use super::recording::arms_of;
use super::warning::arm_in_words;
use super::{BadPlan, FORMAT, Plan, Recording};
use rig::Rig;
use schedule::Schedule;

/// How far collection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Runs that are over.
    pub done: u32,
    /// Runs in all.
    pub total: u32,
    /// What is measured next.
    pub measure: Measure,
    /// In which arm.
    pub arm: Arm,
    /// Whether its exits are counted instead of its cycles.
    pub counted: bool,
}

impl fmt::Display for Progress {
    /// "run 13 of 98: IPI to a running vCPU, on, timed".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arm = arm_in_words(self.arm);
        let kind = if self.counted { "counted" } else { "timed" };
        write!(f, "run {} of {}: {}, {arm}, {kind}", self.done + 1, self.total, self.measure.title())
    }
}

/// Why there is no recording at all.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The plan cannot be carried out.
    #[error("The plan cannot be carried out")]
    Plan(#[from] BadPlan),
    /// The host could not be described.
    #[error("Cannot describe the host")]
    Host(#[from] host::Error),
    /// There is no micro VM.
    #[error("Cannot make the micro VM")]
    MicroVm(#[from] probe::Error),
    /// The host has not the arm that was asked for.
    #[error("This host has interrupt virtualization {state} only: {why}")]
    NoArm {
        /// What it has.
        state: &'static str,
        /// Why.
        why: String,
    },
}

impl CollectError {
    fn no_arm(arms: &Arms) -> Self {
        match arms {
            Arms::OnlyOff { why } => Self::NoArm { state: "off", why: why.clone() },
            Arms::OnlyOn { why } => Self::NoArm { state: "on", why: why.clone() },
            // Not asked of a host with both.
            Arms::Both { .. } => Self::NoArm { state: "on and off", why: String::new() },
        }
    }
}

/// Carries out `plan` on this machine's `/dev/kvm`, telling `progress` before each run.
///
/// Blocks of timed runs of each measure with nothing traced, then one run an arm of each whose exits are counted. A
/// measure that fails is noted in the recording with its error and the others go on. Where tracepoints cannot be
/// used the recording says why. Interrupt virtualization is inhibited for the micro VM alone; no other VM
/// notices, and nothing of the host is changed.
///
/// # Errors
/// Where the plan is impossible or there is no micro VM to begin with.
pub fn collect(plan: &Plan, progress: &mut dyn FnMut(Progress)) -> Result<Recording, CollectError> {
    plan.check()?;
    let root = Path::new("/");
    let fingerprint = Fingerprint::read(root)?;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let began = Instant::now();
    let mut rig = Rig::new(plan, root)?;
    let arms = match plan.only {
        None => rig.arms().clone(),
        Some(only) => only.of(rig.arms()).ok_or_else(|| CollectError::no_arm(rig.arms()))?,
    };
    let tsc_khz = rig.tsc_khz();
    let tracing = rig.tracing();

    let mut arm_checks = rig.check(arms_of(&arms));
    let runs = Schedule::new(plan, arms_of(&arms), &mut rig, progress).carry_out();
    arm_checks.extend(rig.check(arms_of(&arms)));

    Ok(Recording {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started,
        took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        fingerprint,
        emulated: None,
        switch_cycles: None,
        plan: plan.clone(),
        arms,
        arm_checks,
        tsc_khz,
        tracing,
        timed: runs.timed,
        counted: runs.counted,
        failures: runs.failures,
        at_other_costs: Vec::new(),
    })
}
