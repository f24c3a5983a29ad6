//! `exitless enable` and `exitless disable`: switch this host's interrupt virtualization on or off, step by
//! step.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::Args;
use doctor::enable::{Applied, Arm, Part, Plan, Wish, apply};
use exits::agree;
use host::{Inspection, Root};
use knobs::{Changes, RunningHost};

use crate::command_line::command_line;
use crate::{console, interrupt, status};

/// Arguments of `enable` and `disable`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Apply the changes; without this, only show them.
    #[arg(long)]
    apply: bool,
    /// Make the changes permanent: a line in modprobe.d and kernel arguments, set the distribution's way.
    #[arg(long)]
    persist: bool,
    /// Switch only the IOMMU's part: the delivery of assigned devices' interrupts to vCPUs. With --persist.
    #[arg(long)]
    device_interrupts: bool,
    /// Apply the changes now, by reloading the module; only if no VM is running.
    #[arg(long)]
    reload: bool,
    /// Plan for the host whose files are below this directory.
    #[arg(long, value_name = "DIR", default_value = "/", conflicts_with = "apply")]
    root: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[cfg(test)]
impl Arguments {
    /// Checks that `--apply` has an option that makes changes.
    pub(crate) fn says_what(&self) -> Result<(), String> {
        match self.apply && !self.persist && !self.reload {
            true => Err("--apply without --persist or --reload".to_owned()),
            false => Ok(()),
        }
    }
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments, arm: Arm) -> anyhow::Result<ExitCode> {
    let root: &Path = &arguments.root;
    let inspection = Inspection::read(&Root::below(root)?)?;
    let part = if arguments.device_interrupts { Part::DeviceInterrupts } else { Part::Whole };
    let wish = Wish { arm, part, persist: arguments.persist, reload: arguments.reload };
    let plan = Plan::new(root, &inspection, wish);
    let refused = if arguments.apply { refused(&plan) } else { None };
    let applied = if arguments.apply && refused.is_none() { applied(root, &plan)? } else { None };
    let document = || report::enable::json(&plan, refused.as_deref(), applied.as_ref());
    let text = || {
        let width = console::width();
        let text = match &applied {
            Some(applied) => report::enable::terminal::applied(&plan, applied, width),
            None => report::enable::terminal::plan(&plan, width, console::colour()),
        };
        let last = last_words(arguments, &plan, refused.as_deref(), applied.as_ref());
        format!("{text}\n{last}\n")
    };
    crate::output::print(arguments.json, document, text)?;
    let failed = applied.is_some_and(|applied| !applied.is_whole());
    let status = if refused.is_some() || plan.is_refused() || failed { status::REFUSED } else { 0 };
    Ok(ExitCode::from(status))
}

/// The reason why nothing is done although there are steps to do.
fn refused(plan: &Plan) -> Option<String> {
    if plan.awaits_options() && !plan.is_refused() {
        return Some("Say what to do: --persist, --reload, or both".to_owned());
    }
    let steps: Vec<&str> = plan.ready().map(|step| step.name.as_str()).collect();
    let needs_root = !steps.is_empty() && !rustix::process::geteuid().is_root();
    needs_root.then(|| as_root(&steps))
}

fn as_root(steps: &[&str]) -> String {
    format!("Run it as root: {} {} it", steps.join(", "), agree(steps.len() as u64, "needs", "need"))
}

/// `None` if there is nothing to do, so that no journal is created.
fn applied(root: &Path, plan: &Plan) -> anyhow::Result<Option<Applied>> {
    if plan.ready().next().is_none() {
        return Ok(None);
    }
    let stop = interrupt::flag()?;
    let mut changes = Changes::begin(root, RunningHost, command_line())?;
    Ok(Some(apply(plan, &mut changes, &|| stop.load(Ordering::Relaxed))))
}

fn last_words(
    arguments: &Arguments,
    plan: &Plan,
    refused: Option<&str>,
    applied: Option<&Applied>,
) -> String {
    if let Some(why) = refused {
        return format!("Nothing was changed. {why}.");
    }
    if let Some(applied) = applied {
        return match applied.is_whole() {
            true => "`exitless verify` shows it for each VM; `exitless restore` undoes this.".to_owned(),
            false => "`exitless restore` undoes what was done.".to_owned(),
        };
    }
    let pending = plan.ready().count() > 0 && !arguments.apply;
    let words = match (plan.refusals.is_empty(), pending, plan.is_refused()) {
        (false, ..) => "Nothing was changed.",
        (true, true, false) => "Nothing was changed; --apply makes the changes.",
        (true, true, true) => "Nothing was changed; --apply makes the changes that nothing blocks.",
        (true, false, true) => "Nothing was changed; see what blocks it.",
        (true, false, false) if plan.awaits_options() => {
            "Nothing was changed; add --persist or --reload, and --apply."
        }
        (true, false, false) => "Nothing to do.",
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_needs_root_and_two_need_it() {
        assert_eq!(as_root(&["Reload kvm_amd"]), "Run it as root: Reload kvm_amd needs it");
        assert_eq!(as_root(&["Reload kvm_amd", "Save"]), "Run it as root: Reload kvm_amd, Save need it");
    }

    #[test]
    fn what_is_blocked_is_not_called_nothing_to_do() {
        let root = tempfile::tempdir().unwrap();
        let host = "== /proc/cpuinfo\nprocessor : 0\nvendor_id : AuthenticAMD\nflags : svm npt avic\n\
                    == /sys/module/kvm_amd/parameters/avic\nN\n== /proc/cmdline\nro kvm_amd.avic=0\n";
        host::fake::unpack(host, root.path()).unwrap();
        let inspection = Inspection::read(&Root::directory(root.path())).unwrap();
        let said = |persist, reload, apply| {
            let wish = Wish { arm: Arm::On, part: Part::Whole, persist, reload };
            let plan = Plan::new(root.path(), &inspection, wish);
            let root = root.path().to_owned();
            let arguments = Arguments { apply, persist, device_interrupts: false, reload, root, json: false };
            last_words(&arguments, &plan, None, None)
        };
        // No known boot loader.
        assert_eq!(said(true, false, true), "Nothing was changed; see what blocks it.");
        assert_eq!(said(true, false, false), "Nothing was changed; see what blocks it.");
        assert_eq!(
            said(true, true, false),
            "Nothing was changed; --apply makes the changes that nothing blocks."
        );
        assert_eq!(said(false, true, false), "Nothing was changed; --apply makes the changes.");
    }
}
