//! `exitless report`: the exits of recordings as a table.

mod long;

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use exits::Table;
use files::Replacement;
use report::recordings::ExitsWriter;
use traces::Recordings;

use super::recordings::{RecordingArguments, exit_code, warn_of_doubts, write_page};
use super::table::TableArguments;
use super::{paths, quantity};
use crate::console;

/// Arguments of `report`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    recordings: RecordingArguments,
    /// Only this vCPU of each VM; may be given more than once.
    #[arg(long = "vcpu", value_name = "NUMBER")]
    vcpus: Vec<u32>,
    #[command(flatten)]
    rows: TableArguments,
    /// Instead of the table, the longest single exits that took this long or longer: 50us, 1ms. --top is their
    /// number, or 100. Not with --vm, --vcpu, --by, --sort, --threshold, --csv, --html or --parquet.
    #[arg(long, value_name = "TIME", value_parser = quantity::bound,
        conflicts_with_all = ["csv", "html", "parquet", "vms", "vcpus", "by", "sort", "threshold"])]
    longer_than: Option<u64>,
    /// With --longer-than, also exits in which the guest slept.
    #[arg(long, requires = "longer_than")]
    sleep: bool,
    /// Print everything as JSON.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print the table as comma-separated values. Not with --threshold, for which it has no column.
    #[arg(long, conflicts_with = "threshold")]
    csv: bool,
    /// Also write a page with tables and charts to this file.
    #[arg(long, value_name = "FILE", value_parser = paths::output())]
    html: Option<PathBuf>,
    /// Also write every exit to this file, as a Parquet table. It contains those of all VMs. Not with --vm, --vcpu
    /// or --longer-than.
    #[arg(long, value_name = "FILE", value_parser = paths::output(), conflicts_with_all = ["vms", "vcpus"])]
    parquet: Option<PathBuf>,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let grouping = arguments.rows.grouping()?;
    arguments.recordings.check([&arguments.html, &arguments.parquet])?;
    if let Some(bound_ns) = arguments.longer_than {
        return long::run(arguments, bound_ns);
    }
    let recordings = match &arguments.parquet {
        Some(file) => read_and_write(&arguments.recordings, file)?,
        None => arguments.recordings.read(&mut ())?,
    };
    let recordings = recordings.select(arguments.recordings.selection(&arguments.vcpus))?;
    let table = arguments.rows.of(&recordings.profile, grouping);
    if let Some(file) = &arguments.html {
        write_page(file, &report::profile::page(&recordings, &table))?;
    }
    print(&recordings, &table, arguments)?;
    Ok(exit_code(&recordings))
}

fn read_and_write(arguments: &RecordingArguments, file: &Path) -> anyhow::Result<Recordings> {
    let cannot = || format!("Could not write {}", file.display());
    // Rename at the end only: a partial table could be mistaken for a complete one.
    let new = Replacement::begin(file, 0o666).with_context(cannot)?;
    let mut writer = ExitsWriter::new(BufWriter::new(new.file()))?;
    let recordings = arguments.read(&mut writer)?;
    writer.finish(&recordings).with_context(cannot)?;
    new.finish().with_context(cannot)?;
    Ok(recordings)
}

fn print(recordings: &Recordings, table: &Table, arguments: &Arguments) -> anyhow::Result<()> {
    let text = || {
        if !arguments.csv {
            return console::shown(report::profile::terminal(
                recordings,
                table,
                console::width(),
                console::colour(),
            ));
        }
        warn_of_doubts(recordings);
        report::profile::csv(&recordings.profile, table)
    };
    Ok(crate::output::print(arguments.json, || report::profile::json(recordings, table), text)?)
}
