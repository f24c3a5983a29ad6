//! Switches interrupt virtualization on or off: a plan of steps, and its execution.
//!
//! A plan changes nothing. Each step contains its changes as a difference or a command; [`apply`] makes them through
//! the journal of `knobs`.

mod apply;
mod boot;
mod device_interrupts;
mod files;
mod grub;
mod harmful;
mod initramfs;
mod modprobe;
mod persist;
mod plan;
mod refusal;
mod reload;
mod target;
mod words;
mod xen;

pub use apply::{Applied, AppliedStep, StepOutcome, apply};
pub use plan::{Arm, Difference, Effect, Part, Plan, Refusal, Standing, Step, Wish};

use boot::Boot;
use files::Files;
pub(crate) use harmful::is_harmful;
use host::{Inspection, parameter_path};
use std::path::Path;
use target::Target;

impl Plan {
    /// Makes a plan for the host below `root`, which `inspection` describes. Reads the host's configuration, and
    /// changes nothing.
    #[must_use]
    pub fn new(root: &Path, inspection: &Inspection, wish: Wish) -> Self {
        let files = &Files::below(root);
        let boot = Boot::detect(files);
        if wish.part == Part::DeviceInterrupts {
            return device_interrupts::plan(files, &boot, inspection, wish);
        }
        if let Some(found) = xen::plan(files, &boot, inspection, wish) {
            return found;
        }
        let target = match Target::of(inspection, wish.arm) {
            Ok(target) => target,
            Err(refusal) => return Self::refused(wish, refusal),
        };
        let mut plan = Self {
            arm: wish.arm,
            technology: target.technology.clone(),
            place: parameter_path(target.module, target.switch().name),
            now: target.switch().now.clone(),
            so_already: target.is_so(),
            refusals: refusal::all(files, inspection, &target),
            steps: Vec::new(),
            notes: target.notes(inspection),
            module: target.module.to_owned(),
            wanted: target.switch().on,
        };
        if plan.refusals.is_empty() {
            plan.steps.extend(persist::steps(files, &boot, inspection, &target, wish));
            plan.steps.extend(initramfs::suggestion(files, &target, &plan.steps));
            plan.steps.extend(reload::step(files, inspection, &target, wish));
            plan.notes.extend(persist::note(&boot, inspection, &target));
            plan.notes.extend(persist::of_posting(&boot, inspection, &target));
        }
        plan
    }
}

#[cfg(test)]
#[path = "enable/hosts_tests.rs"]
mod tests;
