//! `exitless probe`: the micro VM's measures on this machine's KVM.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use prove::{OnlyArm, Plan, analyse, collect};

use super::plan::PlanArguments;
use crate::console::{self, StatusLine};
use crate::status;

/// Arguments of `probe`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    plan: PlanArguments,
    /// Measure only one arm.
    #[arg(long, value_enum)]
    arm: Option<ArmName>,
    /// Print JSON: the result, and the recording with every sample.
    #[arg(long)]
    json: bool,
}

/// The arm to measure.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ArmName {
    /// Interrupt virtualization on.
    On,
    /// Off: inhibited for the micro VM only, or not available here.
    Off,
    /// On if possible, as for a VM on this host.
    Host,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let plan = arguments.plan.plan(Plan { samples: 1000, warm_up: 100, blocks: 2, ..Plan::full() });
    let only = arguments.arm.map(|arm| match arm {
        ArmName::On => OnlyArm::On,
        ArmName::Off => OnlyArm::Off,
        ArmName::Host => OnlyArm::Host,
    });
    let plan = Plan { only, ..plan };
    let line = StatusLine::new();
    let recording = collect(&plan, &mut line.measurement("Measuring, "))?;
    drop(line);
    let outcome = analyse(&recording).context("The samples cannot be analysed")?;
    crate::output::write(|out| match arguments.json {
        true => crate::json::write(out, &serde_json::json!({ "result": outcome, "recording": recording })),
        false => {
            let text = report::probe::terminal(&outcome, &recording, console::width());
            out.write_all(console::shown(text).as_bytes())
        }
    })?;
    let code = match (recording.failures.is_empty(), outcome.measures.is_empty()) {
        (_, true) => status::FAILED,
        (false, _) => status::SOME_FAILED,
        (true, _) => 0,
    };
    Ok(ExitCode::from(code))
}
