//! `exitless timeline`: the exits of recordings over time.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use exits::{Dimension, Grouping, TimelineFigure, TimelineRows};
use report::timeline::Screen;
use traces::Recordings;

use super::paths;
use super::recordings::{RecordingArguments, exit_code, warn_of_doubts, write_page};
use crate::console;
use crate::status::Usage;

/// Arguments of `timeline`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    recordings: RecordingArguments,
    /// Group lines by: reason, vm, or both with a comma.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_value = "reason")]
    by: Vec<Dimension>,
    /// Draw the share of the vCPUs' time that handling took instead of the rate of exits.
    #[arg(long)]
    share: bool,
    /// Show only this many lines; one more has the totals of all others.
    #[arg(long, value_name = "COUNT")]
    top: Option<usize>,
    /// Draw with ASCII characters, as by default if the locale is not UTF-8. Names keep their letters.
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    ascii: bool,
    /// Print every slice as JSON.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print every slice with exits as comma-separated values.
    #[arg(long)]
    csv: bool,
    /// Also write a page with tables and charts to this file.
    #[arg(long, value_name = "FILE", value_parser = paths::output())]
    html: Option<PathBuf>,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let grouping = Grouping::new(arguments.by.iter().copied())?;
    if let Some(other) =
        grouping.dimensions().find(|dimension| !matches!(dimension, Dimension::Vm | Dimension::Reason))
    {
        let what = format!("A timeline is kept by VM and by reason, not by {other}; leave it out of --by");
        return Err(Usage(what).into());
    }
    arguments.recordings.check([&arguments.html])?;
    let recordings = arguments.recordings.read(&mut ())?.select(arguments.recordings.selection(&[]))?;
    let figure = if arguments.share { TimelineFigure::Time } else { TimelineFigure::Exits };
    let mut rows = TimelineRows::new(&recordings.profile.timeline, &grouping, figure);
    arguments.top.into_iter().for_each(|count| rows.keep_top(count));
    if let Some(file) = &arguments.html {
        write_page(file, &report::timeline::page(&recordings, &rows, &grouping, figure))?;
    }
    print(&recordings, &rows, &grouping, figure, arguments)?;
    Ok(exit_code(&recordings))
}

fn print(
    recordings: &Recordings,
    rows: &TimelineRows,
    grouping: &Grouping,
    figure: TimelineFigure,
    arguments: &Arguments,
) -> std::io::Result<()> {
    crate::output::write(|out| {
        if arguments.json {
            return crate::json::write(out, &report::timeline::json(recordings, rows, grouping));
        }
        if arguments.csv {
            warn_of_doubts(recordings);
            return out.write_all(report::timeline::csv(&recordings.profile, rows).as_bytes());
        }
        let screen = Screen {
            width: console::width(),
            colour: console::colour(),
            ascii: arguments.ascii || !console::shows_unicode(),
        };
        out.write_all(report::timeline::terminal(recordings, rows, grouping, figure, screen).as_bytes())
    })
}
