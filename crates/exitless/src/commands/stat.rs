//! `exitless stat`: exits as they happen, with a table for each interval.

mod statistics;
mod xen;

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use exits::{Grouping, Profile, Table};
use live::{Collector, Cost};
use traces::Recordings;

use super::quantity;
use super::table::TableArguments;
use super::watching::{LiveSource, VmNames, WatchArguments, Watched, wait_until};
use super::workload::Workload;
use super::xen::XenHost;
use crate::{console, interrupt};

/// Arguments of `stat`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    watch: WatchArguments,
    /// The interval of each table: 1s, 200ms; a number alone is in seconds.
    #[arg(long, value_name = "TIME", value_parser = quantity::wait, default_value = "1s")]
    interval: u64,
    /// Stop after this many tables.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Stop after this time: 10s, 5min; a number alone is in seconds.
    #[arg(long, value_name = "TIME", value_parser = quantity::wait)]
    duration: Option<u64>,
    #[command(flatten)]
    rows: TableArguments,
    /// Print everything as JSON, one object on each line.
    #[arg(long)]
    json: bool,
    /// Show the cost of counting, in nanoseconds for each exit.
    #[arg(long)]
    self_cost: bool,
    /// Count while this command runs, and print one table when it ends.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["interval", "count", "duration"])]
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
    // Start the intervals here: the first one must not include the setup.
    let mut pace = Pace::begin(arguments);
    let mut tables =
        Tables { names: VmNames::default(), grouping, source: LiveSource::of(&collector), arguments };
    let watched = Watched::of(&watch, &arguments.watch);
    if let Some(workload) = Workload::start(&arguments.command, &stop)? {
        // An error of counting must not end the command.
        let mut kept = Ok(());
        let status = workload.wait(&stop, || {
            if kept.is_ok() {
                kept = collector.keep();
            }
        })?;
        kept?;
        tables.show_last(collector)?;
        watched.status();
        return Ok(status);
    }
    // A signal ends the wait early; the exits until then are shown.
    while wait_until(pace.next(), &mut collector, &stop)? && !pace.is_over() && !watched.have_ended() {
        let cost = arguments.self_cost.then(|| collector.cost()).transpose()?;
        tables.show(collector.take()?, cost.as_ref())?;
    }
    tables.show_last(collector)?;
    Ok(ExitCode::from(watched.status()))
}

/// The times at which tables are due.
struct Pace {
    interval: Duration,
    next: Instant,
    end: Option<Instant>,
    left: Option<u64>,
}

impl Pace {
    fn begin(arguments: &Arguments) -> Self {
        let now = Instant::now();
        Self {
            interval: Duration::from_nanos(arguments.interval),
            next: now,
            end: arguments.duration.and_then(|ns| now.checked_add(Duration::from_nanos(ns))),
            left: arguments.count,
        }
    }

    /// The time of the next table, at most that of the end. Skips times that passed while the machine or the
    /// process was suspended.
    fn next(&mut self) -> Instant {
        self.next_after(Instant::now())
    }

    fn next_after(&mut self, now: Instant) -> Instant {
        let late = now.saturating_duration_since(self.next).as_nanos() / self.interval.as_nanos().max(1);
        self.next += self.interval * u32::try_from(late + 1).unwrap_or(u32::MAX);
        self.next = self.end.map_or(self.next, |end| end.min(self.next));
        self.left = self.left.map(|left| left.saturating_sub(1));
        self.next
    }

    /// Tests whether the table due now is the last.
    fn is_over(&self) -> bool {
        self.left == Some(0) || self.end.is_some_and(|end| self.next >= end)
    }
}

/// The state that all tables share.
struct Tables<'a> {
    names: VmNames,
    grouping: Grouping,
    source: LiveSource,
    arguments: &'a Arguments,
}

impl Tables<'_> {
    /// Prints the exits since the last table.
    fn show(&mut self, mut profile: Profile, cost: Option<&Cost>) -> anyhow::Result<()> {
        self.names.name(&mut profile);
        let recordings = self.source.recordings(profile);
        let table = self.arguments.rows.of(&recordings.profile, self.grouping.clone());
        print(&recordings, &table, cost, self.arguments)
    }

    /// Prints the last table, including exits whose VM entry has not come yet.
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
        crate::json::write(&mut out, &report::counting::json(recordings, table, cost))?;
    } else {
        let text =
            console::shown(report::profile::terminal(recordings, table, console::width(), console::colour()));
        out.write_all(text.as_bytes())?;
        if let Some(cost) = cost {
            write!(out, "\n{}", console::shown(report::counting::terminal(cost, console::width())))?;
        }
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(count: Option<u64>, duration: Option<u64>) -> Vec<u128> {
        let begin = Instant::now();
        let end = duration.map(|ms| begin + Duration::from_millis(ms));
        let mut pace = Pace { interval: Duration::from_millis(10), next: begin, end, left: count };
        let mut moments = Vec::new();
        while moments.len() < 9 {
            let now = pace.next;
            moments.push(pace.next_after(now).duration_since(begin).as_millis());
            if pace.is_over() {
                break;
            }
        }
        moments
    }

    #[test]
    fn tables_end_with_their_number_or_their_time_whichever_comes_first() {
        assert_eq!(due(Some(2), None), [10, 20]);
        assert_eq!(due(None, Some(25)), [10, 20, 25]);
        assert_eq!(due(None, Some(20)), [10, 20]);
        assert_eq!(due(Some(1), Some(25)), [10]);
        assert_eq!(due(Some(5), Some(15)), [10, 15]);
        assert_eq!(due(None, None).len(), 9);
    }

    #[test]
    fn times_that_have_passed_are_left_out() {
        let begin = Instant::now();
        let mut pace = Pace { interval: Duration::from_millis(10), next: begin, end: None, left: None };
        let mut after =
            |now: u64| pace.next_after(begin + Duration::from_millis(now)).duration_since(begin).as_millis();
        assert_eq!(
            [after(0), after(10), after(29), after(70), after(70), after(105)],
            [10, 20, 30, 80, 90, 110]
        );
    }
}
