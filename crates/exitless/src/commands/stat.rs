//! `exitless stat`: exits as they happen, as a table an interval.

mod statistics;

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use exits::{Dimension, Grouping, Order, Table};
use live::{Collector, Cost};
use traces::{Options, Recordings};

use super::quantity;
use super::watching::{THIS_HOST, VmNames, WatchArguments, pause, reading};
use super::workload::Workload;
use crate::{console, interrupt};

/// Arguments of `stat`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    watch: WatchArguments,
    /// How long to count for each table: 1s, 200ms.
    #[arg(long, value_name = "TIME", value_parser = quantity::time, default_value = "1s")]
    interval: u64,
    /// End after so many tables.
    #[arg(long, value_name = "COUNT")]
    count: Option<u64>,
    /// What rows are told apart by: reason, vm, vcpu, port, mmio, msr, apic, ipi, or several with commas.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_value = "reason")]
    by: Vec<Dimension>,
    /// What rows are ordered by: samples, exits, time, min, max, mean, p99 or name.
    #[arg(long, value_name = "WHAT", default_value_t)]
    sort: Order,
    /// Only the first rows; one more has the sums of all others.
    #[arg(long, value_name = "COUNT")]
    top: Option<usize>,
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
    let grouping = Grouping::new(arguments.by.iter().copied())?;
    let accesses = arguments.by.iter().any(|dimension| dimension.is_access());
    let watch = arguments.watch.watch(accesses)?;
    let stop = interrupt::flag()?;
    let _measuring = arguments.self_cost.then(Cost::measure).transpose()?;
    let mut collector = match arguments.watch.attach(&watch, &stop) {
        Ok(Some(collector)) => collector,
        Ok(None) => return Ok(ExitCode::SUCCESS),
        Err(error) => return statistics::run(arguments, error, &stop),
    };
    let mut names = VmNames::default();
    if let Some(workload) = Workload::start(&arguments.command)? {
        let status = workload.wait(&stop)?;
        show(&mut collector, &mut names, &grouping, arguments)?;
        return Ok(status);
    }
    let mut next = Instant::now();
    let mut tables = 0;
    while arguments.count.is_none_or(|count| tables < count) && !stop.load(Ordering::Relaxed) {
        next += Duration::from_nanos(arguments.interval);
        // What was counted until a signal is shown too.
        pause(next, &stop);
        show(&mut collector, &mut names, &grouping, arguments)?;
        tables += 1;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what was counted since the last time.
fn show(
    collector: &mut Collector,
    names: &mut VmNames,
    grouping: &Grouping,
    arguments: &Arguments,
) -> anyhow::Result<()> {
    let mut profile = collector.take()?;
    names.name(&mut profile);
    let mut recordings = Recordings::new(Options::default());
    recordings.add(THIS_HOST.to_owned(), reading(profile, collector.mechanism(), collector.missing()));
    let mut table = Table::new(&recordings.profile, grouping.clone());
    table.sort(arguments.sort);
    arguments.top.into_iter().for_each(|count| table.keep_top(count));
    let cost = arguments.self_cost.then(|| collector.cost()).transpose()?;
    print(&recordings, &table, cost.as_ref(), arguments)
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
