//! `exitless guest run`: tries the guests of a plan.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use guests::{DataPlanes, Finished, Ground, Guest, GuestPlan, merged, release_together, skew, start};
use report::json::Document;
use serde::Serialize;

use crate::commands::paths::{input, unread};
use crate::commands::quantity;
use crate::console::{BuildProgress, Waiting};
use crate::{interrupt, status};

/// Arguments of `guest run`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A plan, or a file with only its table `[guests]` [default: one QEMU guest].
    #[arg(long, value_name = "FILE", value_parser = input())]
    plan: Option<PathBuf>,
    /// TOML to merge over the table, such as 'vcpus = 2'.
    #[arg(long, value_name = "TOML")]
    set: Vec<String>,
    /// The number of guests that run at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// The folder for consoles and disks, which is kept [default: a temporary one].
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// The time limit of the script: 90s, 10min; a number alone is in seconds.
    #[arg(long, value_name = "TIME", value_parser = quantity::limit, default_value = "600")]
    timeout: Duration,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// The script for `sh -c` in each guest.
    #[arg(last = true, required = true)]
    script: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Tried {
    /// The time from the start of the first guest to that of the last.
    start_skew_seconds: Option<f64>,
    guests: Vec<TriedGuest>,
}

#[derive(Debug, Serialize)]
struct TriedGuest {
    name: String,
    vcpus: u32,
    address: Option<std::net::IpAddr>,
    host_address: Option<std::net::IpAddr>,
    facts: std::collections::BTreeMap<String, String>,
    start_seconds: f64,
    script_seconds: f64,
    status: i32,
    stdout: String,
    stderr: String,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let stop = interrupt::flag()?;
    let outcome = run_until(&stop, arguments);
    if stop.load(Ordering::Relaxed) {
        // Ctrl-C also ends QEMU and the script; report the interruption, not their failures.
        let _ = outcome.inspect_err(|error| tracing::debug!("{error:#}"));
        bail!(lab::Error::Interrupted);
    }
    outcome
}

fn run_until(stop: &Arc<AtomicBool>, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut plan = plan(arguments)?;
    if let GuestPlan::Qemu(plan) = &mut plan {
        // The plan creates shared resources for this number of guests.
        plan.counts = vec![arguments.count];
    }
    let temporary = tempfile::tempdir().context("Could not create a temporary folder")?;
    let folder = match &arguments.folder {
        // A guest runs in its own subfolder, where a relative path would be wrong.
        Some(folder) => {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("Could not create {}", folder.display()))?;
            folder.canonicalize().with_context(|| format!("Could not find {}", folder.display()))?
        }
        None => temporary.path().to_owned(),
    };
    let files = if plan.needs_image() {
        let image = super::image(&mut BuildProgress::new(), stop)?;
        Some(super::files(image, &folder)?)
    } else {
        None
    };
    let ground = Ground { folder, files, planes: DataPlanes::default() };
    let mut guests = Vec::new();
    for index in 0..arguments.count {
        if stop.load(Ordering::Relaxed) {
            bail!(lab::Error::Interrupted);
        }
        let begun = Instant::now();
        let waiting = Waiting::new(format!("Starting guest {} of {}", index + 1, arguments.count));
        let guest = start(&plan, index, &ground, stop)?;
        drop(waiting);
        guests.push((guest, begun.elapsed()));
    }
    let tried = tried(guests, arguments, stop)?;
    crate::output::write(|out| match arguments.json {
        true => crate::json::write_pretty(out, &Document::new(&tried)),
        false => show(&tried, out),
    })?;
    let failed = tried.guests.iter().any(|guest| guest.status != 0);
    Ok(if failed { ExitCode::from(status::SOME_FAILED) } else { ExitCode::SUCCESS })
}

fn plan(arguments: &Arguments) -> anyhow::Result<GuestPlan> {
    let usage = |text: String| status::Usage(text);
    let mut table: toml::Table = match &arguments.plan {
        Some(path) => {
            let what = || format!("Could not read the plan {}", path.display());
            let text = std::fs::read_to_string(path).map_err(|error| unread(&what(), error))?;
            let whole: toml::Table =
                text.parse().map_err(|error| usage(format!("{} is not TOML: {error}", path.display())))?;
            match whole.get("guests") {
                Some(toml::Value::Table(guests)) => guests.clone(),
                _ => whole,
            }
        }
        None => toml::Table::from_iter([("kind".to_owned(), "qemu".into())]),
    };
    for text in &arguments.set {
        let level: toml::Table =
            text.parse().map_err(|error| usage(format!("--set {text:?} is not TOML: {error}")))?;
        table = merged(&table, [&level]);
    }
    let plan: GuestPlan =
        table.try_into().map_err(|error| usage(format!("The table of guests is invalid: {error}")))?;
    match plan.problems().as_slice() {
        [] => Ok(plan),
        problems => Err(usage(problems.join("\n")).into()),
    }
}

fn tried(
    mut guests: Vec<(Box<dyn Guest>, Duration)>,
    arguments: &Arguments,
    stop: &AtomicBool,
) -> anyhow::Result<Tried> {
    let script = arguments.script.join(" ");
    let mut armed = Vec::new();
    for (guest, _) in &mut guests {
        armed.push(guest.arm(&script, arguments.timeout)?);
    }
    release_together(&mut armed)?;
    let waiting =
        Waiting::new(format!("Running the script in {}", exits::counted(guests.len() as u64, "guest")));
    let mut finished: Vec<Finished> = Vec::new();
    for armed in armed {
        finished.push(armed.finish(stop)?);
    }
    drop(waiting);
    let start_skew_seconds = skew(&finished).map(|skew| skew.as_secs_f64());
    let mut shown = Vec::new();
    for ((guest, started), finished) in guests.iter_mut().zip(finished) {
        shown.push(TriedGuest {
            name: guest.name().to_owned(),
            vcpus: guest.vcpus(),
            address: guest.address(),
            host_address: guest.host_address(),
            facts: guest.facts(),
            start_seconds: started.as_secs_f64(),
            script_seconds: Duration::from_nanos(finished.ended_ns.saturating_sub(finished.began_ns))
                .as_secs_f64(),
            status: finished.output.status,
            stdout: finished.output.stdout,
            stderr: finished.output.stderr,
        });
        guest.stop()?;
    }
    Ok(Tried { start_skew_seconds, guests: shown })
}

fn show(tried: &Tried, out: &mut impl Write) -> std::io::Result<()> {
    for guest in &tried.guests {
        writeln!(
            out,
            "{}: up after {:.1} s, script {:.2} s, status {}",
            guest.name, guest.start_seconds, guest.script_seconds, guest.status
        )?;
        for (title, text) in [("", &guest.stdout), ("standard error: ", &guest.stderr)] {
            for line in text.lines() {
                writeln!(out, "  {title}{}", printable(line))?;
            }
        }
    }
    if let Some(seconds) = tried.start_skew_seconds {
        writeln!(out, "First to last start: {:.1} ms", seconds * 1e3)?;
    }
    Ok(())
}

/// A line from a guest, without terminal control characters.
fn printable(line: &str) -> String {
    line.replace(|c: char| exits::is_harmful(c) && c != '\t', "\u{fffd}")
}
