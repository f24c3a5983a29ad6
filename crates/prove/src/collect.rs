//! Collection of the runs on this machine. The analysis is done elsewhere: this host may be slow.

mod rig;
mod schedule;

use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use host::Fingerprint;
use probe::Arms;

use super::recording::arms_of;
use super::{BadPlan, FORMAT, Plan, Recording};
pub use schedule::Progress;

use rig::Rig;
use schedule::Schedule;

/// The reason why there is no recording.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The plan cannot be carried out.
    #[error("The plan cannot be carried out")]
    Plan(#[from] BadPlan),
    /// The host could not be described.
    #[error("Cannot describe the host")]
    Host(#[from] host::Error),
    /// The micro VM could not be created.
    #[error("Cannot create the micro VM")]
    MicroVm(#[from] probe::Error),
    /// The host does not have the requested arm.
    #[error("This host has interrupt virtualization {state} only: {why}")]
    NoArm {
        /// The only available arm.
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
            // Not reached: a host with both arms has every arm that can be requested.
            Arms::Both { .. } => Self::NoArm { state: "on and off", why: String::new() },
        }
    }
}

/// Carries out `plan` on this machine's `/dev/kvm`, and calls `progress` before each run.
///
/// First come blocks of timed runs of each measure without tracing, then one run for each arm and measure
/// whose exits are counted. A measure that fails is recorded with its error, and the others continue. If
/// tracepoints cannot be used, the recording holds the reason. Interrupt virtualization is inhibited for the
/// micro VM only; other VMs and the host are not changed.
///
/// # Errors
/// If the plan cannot be carried out or the micro VM cannot be created.
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
