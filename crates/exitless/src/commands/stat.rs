//! `exitless stat`: exits as they happen, as a table an interval.

mod statistics;
mod xen;

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use exits::{Grouping, Profile, Table};
use experiment::pause;
use live::{Collector, Cost};
use traces::Recordings;

use super::quantity;
use super::table::TableArguments;
use super::watching::{LiveSource, VmNames, WatchArguments};
use super::workload::Workload;
use super::xen::XenHost;
use crate::{console, interrupt};

/// Arguments of `stat`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    watch: WatchArguments,
    /// How long to count for each table: 1s, 200ms.
    #[arg(long, value_name = "TIME", value_parser = quantity::wait, default_value = "1s")]
    interval: u64,
    /// End after so many tables.
    #[arg(long, value_name = "COUNT")]
    count: Option<u64>,
    #[command(flatten)]
    rows: TableArguments,
    /// Print everything as JSON, an object a line.
    #[arg(long)]
    json: bool,
    /// Say what the counting itself costs, nanoseconds an exit.
    #[arg(long)]
    self_cost: bool,
    /// Count while this command runs, and print one table at its end.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["interval", "count"])]
    command: Vec<OsString>,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let grouping = arguments.rows.grouping()?;
    if let Some(host) = XenHost::find(&arguments.watch) {
        return xen::run(host, arguments, &grouping, &*interrupt::flag()?);
    }
    let watch = arguments.watch.watch(arguments.rows.accesses())?;
    let stop = interrupt::flag()?;
    let _measuring = arguments.self_cost.then(Cost::measure).transpose()?;
    let mut collector = match arguments.watch.attach(&watch, &stop) {
        Ok(Some(collector)) => collector,
        Ok(None) => return Ok(ExitCode::SUCCESS),
        Err(error) => return statistics::run(arguments, error, &stop),
    };
    let mut tables =
        Tables { names: VmNames::default(), grouping, source: LiveSource::of(&collector), arguments };
    if let Some(workload) = Workload::start(&arguments.command)? {
        let status = workload.wait(&stop)?;
        tables.show_last(collector)?;
        return Ok(status);
    }
    let mut next = Instant::now();
    for number in 1.. {
        next += Duration::from_nanos(arguments.interval);
        // What was counted until a signal is shown too.
        if !pause(next, &stop) || arguments.count == Some(number) {
            break;
        }
        let cost = arguments.self_cost.then(|| collector.cost()).transpose()?;
        tables.show(collector.take()?, cost.as_ref())?;
    }
    tables.show_last(collector)?;
    Ok(ExitCode::SUCCESS)
}

/// What all tables share.
struct Tables<'a> {
    names: VmNames,
    grouping: Grouping,
    source: LiveSource,
    arguments: &'a Arguments,
}

impl Tables<'_> {
    /// Prints what was counted since the last time.
    fn show(&mut self, mut profile: Profile, cost: Option<&Cost>) -> anyhow::Result<()> {
        self.names.name(&mut profile);
        let recordings = self.source.recordings(profile);
        let table = self.arguments.rows.of(&recordings.profile, self.grouping.clone());
        print(&recordings, &table, cost, self.arguments)
    }

    /// The same with the exits that no entry has ended yet.
    fn show_last(&mut self, collector: Collector) -> anyhow::Result<()> {
        let cost = self.arguments.self_cost.then(|| collector.cost()).transpose()?;
        self.show(collector.finish()?, cost.as_ref())
    }
}

fn print(
    recordings: &Recordings,
    table: &Table,
    cost: Option<&Cost>,
    arguments: &Arguments,
) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    if arguments.json {
        serde_json::to_writer(&mut out, &report::json::counted(recordings, table, cost))?;
        writeln!(out)?;
    } else {
        let text = report::terminal::profile(recordings, table, console::width(), console::colour());
        out.write_all(text.as_bytes())?;
        if let Some(cost) = cost {
            write!(out, "\n{}", report::terminal::cost(cost, console::width()))?;
        }
        writeln!(out)?;
    }
    Ok(out.flush()?)
}
