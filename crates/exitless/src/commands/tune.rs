//! `exitless tune`: one change after the other, kept or reverted by a study's verdict.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use clap::Args;
use experiment::study::analysis::analyse;
use experiment::study::plan::Plan;
use experiment::study::store::Store;
use experiment::study::target::Target;
use experiment::study::tuning::{
    Measured, Measuring, Ruling, SHIPPED_TUNING, ShippedTuning, Tuning, TuningPlan, preview, tune,
};

use super::experiment::report::{PAGE, read};
use super::experiment::run::{chance, make_runs};
use super::recordings::write_page;
use crate::status::Usage;
use crate::{console, interrupt, status};

/// The files of a result.
const PLAN: &str = "plan.toml";
const RESULT: &str = "tuning.json";
const REPORT: &str = "report.md";
const DIFFERENCE: &str = "changes.diff";

/// Arguments of `tune`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The plan's file, or the name of a shipped one: tune-old-guest, tune-old-guest-lab.
    #[arg(value_name = "PLAN")]
    plan: String,
    /// The result's folder; one that holds a part of the same tuning is gone on with [default: NAME of the plan].
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Where it runs: local, `ssh://[user@]host[:port]` or lab:NAME.
    #[arg(long, value_name = "TARGET", default_value = "local")]
    target: Target,
    /// Show the steps, and start nothing.
    #[arg(long)]
    dry_run: bool,
    /// A configuration file for ssh in the place of the user's.
    #[arg(long, value_name = "FILE")]
    ssh_config: Option<PathBuf>,
    /// Print what came of it as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let text = text(&arguments.plan)?;
    let plan = TuningPlan::read(&text, &arguments.plan).map_err(|bad| Usage(bad.to_string()))?;
    let mut out = std::io::stdout().lock();
    if arguments.dry_run {
        let (before, steps) = preview(&plan);
        if arguments.json {
            serde_json::to_writer_pretty(&mut out, &serde_json::json!({ "before": before, "steps": steps }))?;
            writeln!(out)?;
        } else {
            out.write_all(report::tuned::steps(&plan, &steps, &before, console::width()).as_bytes())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let folder = arguments.output.clone().unwrap_or_else(|| PathBuf::from(&plan.base.name));
    begin(&folder, &text)?;
    let stop = interrupt::flag()?;
    let mut steps = Steps { folder: folder.clone(), arguments, stop: Arc::clone(&stop), not_undone: false };
    let tuning = tune(&plan, &arguments.target.to_string(), &mut steps)?;
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &tuning)?;
        writeln!(out)?;
    } else {
        out.write_all(report::tuned::terminal(&tuning, console::width()).as_bytes())?;
        eprintln!("The report: {}", folder.join(REPORT).display());
    }
    let failed = tuning.steps.iter().any(|step| step.ruling == Ruling::Failed);
    Ok(ExitCode::from(match () {
        () if !tuning.complete => status::INTERRUPTED,
        () if failed || steps.not_undone => status::SOME_FAILED,
        () => 0,
    }))
}

/// A file, or a shipped plan.
fn text(given: &str) -> anyhow::Result<String> {
    let path = Path::new(given);
    if path.is_file() {
        return std::fs::read_to_string(path).with_context(|| format!("Could not read the plan {given}"));
    }
    let names: Vec<_> = SHIPPED_TUNING.iter().map(|shipped| shipped.name).collect();
    let unknown = || {
        Usage(format!(
            "{given}: there is no such file and no such plan; those that come with exitless are {}",
            names.join(", ")
        ))
    };
    Ok(ShippedTuning::find(given).ok_or_else(unknown)?.text.to_owned())
}

/// Makes the folder, or looks whether it holds the same tuning.
fn begin(folder: &Path, text: &str) -> anyhow::Result<()> {
    let path = folder.join(PLAN);
    match std::fs::read_to_string(&path) {
        Ok(known) if known == text => return Ok(()),
        Ok(_) => {
            return Err(Usage(format!(
                "{} holds a tuning of another plan; give the same plan, or another folder by --output",
                folder.display()
            ))
            .into());
        }
        Err(_) => {}
    }
    let is_strange = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    if is_strange {
        let what = format!(
            "{} holds files that are no tuning's; name an empty folder, or one that does not exist",
            folder.display()
        );
        return Err(Usage(what).into());
    }
    std::fs::create_dir_all(folder).with_context(|| format!("Could not make {}", folder.display()))?;
    std::fs::write(&path, text).with_context(|| format!("Could not write {}", path.display()))
}

/// Carries out the steps' studies below the folder.
struct Steps<'a> {
    folder: PathBuf,
    arguments: &'a Arguments,
    stop: Arc<AtomicBool>,
    not_undone: bool,
}

impl Measuring for Steps<'_> {
    type Error = anyhow::Error;

    fn measure(&mut self, name: &str, study: &Plan) -> anyhow::Result<Measured> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(Measured::Interrupted);
        }
        let folder = self.folder.join(name);
        eprintln!("{name}: {}", study.title);
        let text = experiment::study::tuning::text(study).context("Could not write the step's plan")?;
        {
            let target = self.arguments.target.to_string();
            let mut store = Store::open(&folder, study, &text, &target, chance())?;
            let ssh_config = self.arguments.ssh_config.as_deref();
            let there = store.runs().len() as u64 >= experiment::study::tuning::runs(study);
            if !there {
                let conclusion =
                    make_runs(&mut store, &self.arguments.target, ssh_config, false, &self.stop)?;
                self.not_undone |= !conclusion.not_undone.is_empty();
                if conclusion.enough.is_none() {
                    return Ok(Measured::Interrupted);
                }
                if let Some(failed) = conclusion.failed.first() {
                    return Ok(Measured::Failed(failed.why.clone()));
                }
            }
        }
        let collected = read(&folder)?;
        Ok(match analyse(&collected, false) {
            Ok(findings) => {
                write_page(&folder.join(PAGE), &report::html::study(&findings, Some("")))?;
                Measured::Findings(Box::new(findings))
            }
            Err(why) => Measured::Failed(why.to_string()),
        })
    }

    fn tried(&mut self, so_far: &Tuning) {
        if let Some(step) = so_far.steps.last() {
            tracing::info!("{}: {:?}", step.name, step.ruling);
        }
        if let Err(error) = self.write(so_far) {
            tracing::warn!("{error:#}");
        }
    }
}

impl Steps<'_> {
    fn write(&self, tuning: &Tuning) -> anyhow::Result<()> {
        let put = |name: &str, text: String| {
            let path = self.folder.join(name);
            std::fs::write(&path, text).with_context(|| format!("Could not write {}", path.display()))
        };
        put(RESULT, serde_json::to_string_pretty(tuning)? + "\n")?;
        put(REPORT, report::tuned::markdown(tuning))?;
        put(DIFFERENCE, report::tuned::difference(&tuning.before, &tuning.after))
    }
}
