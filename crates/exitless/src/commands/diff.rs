//! `exitless diff`: the changes from one recording to another.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use conclusions::profile_comparison::{ComparisonOptions, ComparisonOrder, ProfileComparison, Recording};
use exits::{Dimension, GroupedTimeline, Grouping};
use report::comparison::Compared;
use traces::{AccessRecord, ExitRecord, Recordings, Sink, Unlike};

use super::paths;
use super::recordings::{
    Destination, PartArguments, add, check_file, check_inputs, check_outputs, exit_code, write_page,
};
use crate::console;
use crate::status::Usage;

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The recording before; several are separated by commas. `-` is standard input.
    #[arg(value_name = "BEFORE")]
    before: OsString,
    /// The recording after; several are separated by commas.
    #[arg(value_name = "AFTER")]
    after: OsString,
    #[command(flatten)]
    part: PartArguments,
    /// Group rows by: reason, vm, vcpu, port, mmio, msr, apic, ipi, nested, or several with commas.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_value = "reason")]
    by: Vec<Dimension>,
    /// Sort rows by: the change of the handling time, of the rate of exits or of the mean, worst first (time,
    /// rate, mean); exits; or name.
    #[arg(long, value_name = "WHAT", default_value_t)]
    sort: ComparisonOrder,
    /// Show only this many rows: those that changed most in either direction. One more row has the totals of
    /// all others.
    #[arg(long, value_name = "COUNT")]
    top: Option<usize>,
    /// Operations of the workload before (requests, transactions, IPIs): figures are then for each operation.
    #[arg(long, value_name = "COUNT", requires = "operations_after", value_parser = clap::value_parser!(u64).range(1..))]
    operations_before: Option<u64>,
    /// Operations of the workload after.
    #[arg(long, value_name = "COUNT", requires = "operations_before", value_parser = clap::value_parser!(u64).range(1..))]
    operations_after: Option<u64>,
    /// Compare recordings of different processors, instruction sets or hypervisors too.
    #[arg(long)]
    allow_unlike: bool,
    /// The seed of the intervals' bootstrap: the same number gives the same intervals.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Print everything as JSON.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print the table as comma-separated values.
    #[arg(long)]
    csv: bool,
    /// Write a page with tables and charts into this file too.
    #[arg(long, value_name = "FILE", value_parser = paths::output())]
    html: Option<PathBuf>,
}

/// The recordings of one side, each separately, with their exits over time by the grouping of rows.
#[derive(Default)]
struct Side {
    recordings: Vec<Recordings>,
    grouped: Vec<Option<GroupedTimeline>>,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let grouping = Grouping::new(arguments.by.iter().copied())?;
    arguments.part.check()?;
    let files = [files(&arguments.before), files(&arguments.after)];
    if files.iter().flatten().filter(|file| *file == Path::new("-")).count() > 1 {
        return Err(
            Usage("Standard input can be read once; name a file for the other side".to_owned()).into()
        );
    }
    files.iter().flatten().try_for_each(|file| check_file(file))?;
    // One recording on both sides is a test of the comparison; on one side it would pass for another run.
    files.iter().try_for_each(check_inputs)?;
    check_outputs(files.iter().flatten(), [&arguments.html])?;
    let [before, after] = [read(&files[0], &grouping, arguments)?, read(&files[1], &grouping, arguments)?];
    arguments.part.check_formats(before.recordings.iter().chain(&after.recordings))?;
    let unlike = unlike(&before.recordings, &after.recordings, arguments)?;
    let options = ComparisonOptions {
        grouping: grouping.clone(),
        operations: arguments.operations_before.zip(arguments.operations_after),
        seed: arguments.seed,
    };
    let mut comparison = ProfileComparison::new(&before.compared(), &after.compared(), &options);
    comparison.sort(arguments.sort);
    arguments.top.into_iter().for_each(|count| comparison.keep_top(count, arguments.sort));
    let (before, after) = (before.recordings, after.recordings);
    let compared = Compared {
        comparison: &comparison,
        grouping: &grouping,
        before: &before,
        after: &after,
        unlike: &unlike,
    };
    if let Some(file) = &arguments.html {
        write_page(file, &report::comparison::page(&compared))?;
    }
    print(&compared, arguments)?;
    let damaged: Vec<_> = before.iter().chain(&after).filter(|one| one.is_damaged()).collect();
    Ok(damaged
        .iter()
        .find(|one| one.profile.events.is_empty())
        .or(damaged.first())
        .map_or(ExitCode::SUCCESS, |one| exit_code(one)))
}

/// Splits at commas, unless a file has exactly this name.
pub(super) fn files(joined: &OsStr) -> Vec<PathBuf> {
    if Path::new(joined).exists() {
        return vec![PathBuf::from(joined)];
    }
    joined.as_bytes().split(|&byte| byte == b',').map(|name| PathBuf::from(OsStr::from_bytes(name))).collect()
}

fn read(files: &[PathBuf], grouping: &Grouping, arguments: &Arguments) -> anyhow::Result<Side> {
    // The profile's own timeline has only VMs and reasons.
    let is_finer = grouping.dimensions().any(|by| !matches!(by, Dimension::Vm | Dimension::Reason));
    let mut side = Side::default();
    for file in files {
        let mut recordings = Recordings::new(arguments.part.options());
        let mut grouped = is_finer.then(|| Grouped(GroupedTimeline::new(grouping.clone())));
        match &mut grouped {
            Some(grouped) => add(&mut recordings, file, grouped)?,
            None => add(&mut recordings, file, &mut ())?,
        }
        // A recording without any event has no length; its damage is the better reason.
        let nothing = report::recordings::nothing_in_window(&recordings);
        if let Some(nothing) = nothing.filter(|_| recordings.profile.span.is_some()) {
            let what = "so there is nothing to compare; select another time";
            return Err(Usage(format!("{} has {nothing}, {what}", file.display())).into());
        }
        let selection = arguments.part.selection(&[]);
        let part = recordings
            .select(selection)
            .map_err(|missing| Usage(format!("{}: {missing}", file.display())))?;
        side.recordings.push(part);
        side.grouped.push(grouped.map(|grouped| grouped.0));
    }
    Ok(side)
}

impl Side {
    fn compared(&self) -> Vec<Recording<'_>> {
        let both = self.recordings.iter().zip(&self.grouped);
        both.map(|(recordings, grouped)| Recording {
            profile: &recordings.profile,
            observed: recordings.observed(),
            grouped: grouped.as_ref(),
        })
        .collect()
    }
}

/// Sorts exits into rows as they are read.
struct Grouped(GroupedTimeline);

impl Sink for Grouped {
    const WANTS_ACCESSES: bool = true;

    fn exit(&mut self, exit: &ExitRecord) {
        self.exit_with(exit, &[]);
    }

    fn exit_with(&mut self, exit: &ExitRecord, accesses: &[AccessRecord]) {
        let accesses = accesses.iter().map(|one| (one.access, one.handling_ns));
        self.0.add(exit.vcpu, exit.reason, exit.time_ns, exit.handling_ns, accesses);
    }
}

impl Destination for Grouped {}

/// The differences between the two sides' machines; an error if they forbid a comparison.
fn unlike(before: &[Recordings], after: &[Recordings], arguments: &Arguments) -> anyhow::Result<Vec<Unlike>> {
    let unlike = traces::unlike(before, after);
    let forbidding: Vec<_> =
        unlike.iter().filter(|one| one.property.forbids_comparison()).map(Unlike::to_string).collect();
    if !forbidding.is_empty() && !arguments.allow_unlike {
        return Err(Usage(format!(
            "The recordings are of unlike machines ({}), so their figures say little of each other; \
             --allow-unlike compares them anyway",
            forbidding.join("; ")
        ))
        .into());
    }
    Ok(unlike)
}

fn print(compared: &Compared<'_>, arguments: &Arguments) -> anyhow::Result<()> {
    let text = || {
        if !arguments.csv {
            return console::shown(report::comparison::terminal(
                compared,
                console::width(),
                console::colour(),
            ));
        }
        // CSV has no room for doubts.
        report::comparison::doubts(compared).iter().for_each(|doubt| tracing::warn!("{doubt}"));
        report::comparison::csv(compared)
    };
    Ok(crate::output::print(arguments.json, || report::comparison::json(compared), text)?)
}
