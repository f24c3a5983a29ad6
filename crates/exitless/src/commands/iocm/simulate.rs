//! `exitless iocm simulate`: the monitor's policy with recorded or generated loads, on machines that need not
//! exist.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use iocm_monitor::simulator::{Kind, Machine, Replay, Trace, TraceDamage, made, replay};
use report::iocm::simulated::Moment;
use report::json::Document;
use serde_json::json;

use super::settings;
use crate::commands::recordings::write_page;
use crate::commands::{paths, quantity};
use crate::console;
use crate::status::{self, Usage};

/// A kind of synthetic load.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Made {
    /// The phases of a busy day in a minute: small messages, bulk transfers, rest, both at once, computation.
    Steps,
    /// Rest, with short bursts.
    Bursts,
    /// A load that rises and falls like that of a day.
    Diurnal,
    /// Changes back and forth, just after a policy may have settled.
    Adversarial,
}

/// Arguments of `iocm simulate`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("load").required(true).args(["trace", "made"]))]
pub(crate) struct SimulateArguments {
    /// A recorded load from `iocm monitor --record`.
    #[arg(value_name = "TRACE", value_parser = paths::input())]
    trace: Option<PathBuf>,
    /// Generate a load instead.
    #[arg(long, value_name = "KIND")]
    made: Option<Made>,
    /// With --made, the number of devices, with one queue each: 64 by default.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    devices: Option<u32>,
    /// With --made, the number of cores of the machine: 16 by default.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(2..=512))]
    cores: Option<u32>,
    /// With --made, the number of NUMA nodes of the machine: 1 by default.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=512))]
    nodes: Option<u32>,
    /// The time between two decisions: 100ms, 1s; a number alone is in seconds.
    #[arg(long, value_name = "TIME", value_parser = quantity::wait, default_value = "100ms")]
    every: u64,
    #[command(flatten)]
    settings: settings::SettingsArguments,
    /// Write the load as a trace; `-` is standard output, without the tables.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Write a page with charts.
    #[arg(long, visible_alias = "html", value_name = "FILE", value_parser = paths::output())]
    report: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The most points of a page's charts: more could not be told apart.
const MOMENTS: usize = 4000;

/// Replays a load with the policy.
pub(super) fn run(arguments: &SimulateArguments) -> anyhow::Result<ExitCode> {
    let to_standard_output = arguments.write.as_deref().is_some_and(paths::is_dash);
    if arguments.json && to_standard_output {
        let why = "The trace and the JSON cannot both go to standard output; give --write a file";
        return Err(Usage(why.to_owned()).into());
    }
    let (trace, damage) = load(arguments)?;
    for one in &damage {
        tracing::warn!("At byte {}: {}", one.offset, one.why);
    }
    let mut bytes = Vec::new();
    if let Some(path) = &arguments.write {
        trace.write(&mut bytes)?;
        if !to_standard_output {
            files::write(path, &bytes)
                .with_context(|| format!("Could not write the trace {}", path.display()))?;
        }
    }
    let how = Replay { period: arguments.every as f64 / 1e9, settings: arguments.settings.read()? };
    let every = moments_apart(&trace, how.period);
    let (mut course, mut seen) = (Vec::new(), 0_usize);
    let outcome = replay(&trace, &how, &mut |period| {
        if arguments.report.is_some() && seen % every == 0 {
            let cores = period.decision.layout.cores();
            course.push(Moment { time: period.time, attained: period.attained, cores });
        }
        seen += 1;
    });
    let outcome = outcome.map_err(|bad| Usage(bad.to_string()))?;
    if let Some(path) = &arguments.report {
        write_page(path, &report::iocm::simulated::page(&outcome, &course))?;
    }
    let document = || Document::new(json!({ "outcome": outcome, "damage": damage }));
    let text = || report::iocm::simulated::terminal(&outcome, console::width(), console::colour());
    match to_standard_output {
        true => crate::output::write(|out| out.write_all(&bytes))?,
        false => crate::output::print_table(arguments.json, document, text)?,
    }
    Ok(ExitCode::from(if damage.is_empty() { 0 } else { status::DAMAGED }))
}

/// The number of periods from one point of the charts to the next.
fn moments_apart(trace: &Trace, period: f64) -> usize {
    let periods = trace.phases.iter().map(|phase| (phase.seconds / period).ceil().max(1.0)).sum::<f64>();
    (periods as usize).div_ceil(MOMENTS).max(1)
}

fn load(arguments: &SimulateArguments) -> anyhow::Result<(Trace, Vec<TraceDamage>)> {
    let Some(path) = &arguments.trace else {
        let kind = match arguments.made {
            Some(Made::Bursts) => Kind::Bursts,
            Some(Made::Diurnal) => Kind::Diurnal,
            Some(Made::Adversarial) => Kind::Adversarial,
            Some(Made::Steps) | None => Kind::Steps,
        };
        let machine = Machine { cores: arguments.cores.unwrap_or(16), nodes: arguments.nodes.unwrap_or(1) };
        return Ok((made(kind, machine, arguments.devices.unwrap_or(64)), Vec::new()));
    };
    if arguments.devices.or(arguments.cores).or(arguments.nodes).is_some() {
        let why = "--devices, --cores and --nodes belong to --made; the trace has its own";
        return Err(Usage(why.to_owned()).into());
    }
    let what = || format!("Cannot read the trace {}", path.display());
    let bytes = fs::read(path).map_err(|error| paths::unread(&what(), error))?;
    Ok(Trace::parse(&bytes).map_err(|error| Usage(format!("{} is not a trace. {error}", path.display())))?)
}
