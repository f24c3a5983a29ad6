//! Suites: `exitless experiment run`, `check` and `report` with several studies.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, ensure};
use exits::{counted, printable};
use guests::shell;
use report::json::Document;
use serde::Serialize;
use study::plan::Plan;
use study::schedule::Schedule;
use study::suite::{MadeStudy, ShippedSuite, Suite, SuiteFolder, SuiteStudy, outcome, read};
use study::target::Target;

use super::PAGE;
use super::runs::{make_runs, open, tell_not_undone};
use crate::commands::recordings::write_page;
use crate::status::Usage;
use crate::{console, interrupt, status};

/// The suite's text in its result folder; this file marks the folder as a suite's.
pub(super) const SUITE: &str = "suite.toml";
const MARKDOWN: &str = "report.md";

/// The arguments of `experiment run` that apply to suites.
pub(super) struct Options<'a> {
    pub(super) output: Option<&'a Path>,
    pub(super) only: &'a [String],
    pub(super) allow_unlike: bool,
    pub(super) json: bool,
}

/// Makes the missing runs of the studies one by one. A study that fails does not stop the others.
pub(super) fn run(suite: &Suite, text: &str, options: &Options<'_>) -> anyhow::Result<ExitCode> {
    let chosen = chosen(suite, options.only)?;
    let folder = options.output.map_or_else(|| usual_folder(suite), Path::to_owned);
    begin(suite, &folder, text)?;
    let stop = interrupt::answered_flag()?;
    let mut worst = 0;
    for (at, study) in chosen.iter().enumerate() {
        console::say(format_args!(
            "Study {} of {}: {}, on {}",
            at + 1,
            chosen.len(),
            study.name,
            study.target
        ));
        match make(suite, study, &folder, options.allow_unlike, &stop) {
            Ok(true) => {}
            Ok(false) => worst = worst.max(status::SOME_FAILED),
            Err(error) => {
                console::say(format_args!("exitless: {}: {error:#}", study.name));
                worst = status::FAILED;
            }
        }
        if stop.load(Ordering::Relaxed) {
            console::say("Interrupted; the same command resumes it");
            worst = status::INTERRUPTED;
            break;
        }
    }
    show(suite, text, &folder, options.allow_unlike, options.json)?;
    Ok(ExitCode::from(worst))
}

fn chosen<'a>(suite: &'a Suite, only: &[String]) -> anyhow::Result<Vec<&'a SuiteStudy>> {
    for name in only {
        if !suite.studies.iter().any(|study| study.name == *name) {
            let names: Vec<&str> = suite.studies.iter().map(|study| study.name.as_str()).collect();
            let names = names.join(", ");
            return Err(Usage(format!("{} has no study {name:?}; it has {names}", suite.name)).into());
        }
    }
    let wanted = |study: &&SuiteStudy| only.is_empty() || only.contains(&study.name);
    Ok(suite.studies.iter().filter(wanted).collect())
}

/// Creates the result folder with the suite's text, or checks that an existing folder is of this suite. The
/// suite's text may have changed since; each study checks its own plan and target.
fn begin(suite: &Suite, folder: &Path, text: &str) -> anyhow::Result<()> {
    let file = folder.join(SUITE);
    if let Ok(found) = std::fs::read_to_string(&file) {
        let found = found.parse::<toml::Table>().ok();
        ensure!(
            found.and_then(|found| Some(found.get("name")?.as_str()? == suite.name)) == Some(true),
            Usage(format!("{} holds another suite; give another folder with --output", folder.display()))
        );
    } else if folder.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        let what = "is not empty and holds no suite; give another folder with --output";
        return Err(Usage(format!("{} {what}", folder.display())).into());
    }
    std::fs::create_dir_all(folder).with_context(|| format!("Could not create {}", folder.display()))?;
    files::write(&file, text.as_bytes()).with_context(|| format!("Could not write {}", file.display()))
}

/// Makes the missing runs of one study. Returns whether it is complete, with everything undone.
fn make(
    suite: &Suite,
    study: &SuiteStudy,
    folder: &Path,
    allow_unlike: bool,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<bool> {
    let plan = study.plan().map_err(Usage)?;
    let target: Target = study.target.parse().map_err(|error| Usage(format!("{error}")))?;
    let text = text(suite, study, &plan)?;
    let mut store = open(&folder.join(&study.name), &plan, &text, &study.target)?;
    let conclusion = make_runs(&mut store, &target, None, allow_unlike, stop)?;
    tell_not_undone(&conclusion);
    Ok(conclusion.enough.is_some() && conclusion.failed.is_empty() && conclusion.not_undone.is_empty())
}

/// The plan with the suite's settings, as a file for running this study alone.
fn text(suite: &Suite, study: &SuiteStudy, plan: &Plan) -> anyhow::Result<String> {
    let plan = toml::to_string(plan).context("Could not write the plan as TOML")?;
    Ok(format!("# The plan {} with the settings of the suite {}.\n{plan}", study.plan, suite.name))
}

fn usual_folder(suite: &Suite) -> PathBuf {
    PathBuf::from(format!("study-{}", suite.name))
}

/// The command that makes the suite again in this folder.
fn again(suite: &Suite, text: &str, folder: &Path) -> String {
    let is_shipped = ShippedSuite::find(&suite.name).is_some_and(|shipped| shipped.text == text);
    let given = if is_shipped { PathBuf::from(&suite.name) } else { folder.join(SUITE) };
    let mut words = ["exitless", "experiment", "run"].map(str::to_owned).to_vec();
    words.push(given.display().to_string());
    if folder != usual_folder(suite) {
        words.extend(["--output".to_owned(), folder.display().to_string()]);
    }
    shell::line(words)
}

/// Writes the pages of the suite and its studies, and prints the table. Returns whether something is damaged.
fn show(suite: &Suite, text: &str, folder: &Path, allow_unlike: bool, json: bool) -> anyhow::Result<bool> {
    let made = read(suite, folder, allow_unlike);
    let is_damaged =
        made.values().any(|read| read.as_ref().map_or(true, |read| !read.collected.damage.is_empty()));
    pages_of_studies(&made, folder)?;
    let outcome = outcome(suite, &made);
    let again = again(suite, text, folder);
    write_page(&folder.join(PAGE), &report::suite::page(&outcome, &again, true))?;
    write_page(&folder.join(MARKDOWN), &report::suite::markdown(&outcome, &again))?;
    crate::output::print_table(json, || &outcome, || report::suite::terminal(&outcome, console::width()))?;
    if !json {
        console::say(format_args!("The page: {}", folder.join(PAGE).display()));
    }
    Ok(is_damaged)
}

fn pages_of_studies(made: &SuiteFolder, folder: &Path) -> anyhow::Result<()> {
    for (name, read) in made {
        if let Ok(MadeStudy { findings: Ok(findings), .. }) = read {
            write_page(&folder.join(name).join(PAGE), &report::study::page(findings, Some("")))?;
        }
    }
    Ok(())
}

/// Runs `experiment report` for a suite's folder.
pub(super) fn report(folder: &Path, allow_unlike: bool, json: bool) -> anyhow::Result<ExitCode> {
    let file = folder.join(SUITE);
    let text =
        std::fs::read_to_string(&file).with_context(|| format!("Could not read {}", file.display()))?;
    let suite = Suite::read(&text, &file.display().to_string())?;
    let is_damaged = show(&suite, &text, folder, allow_unlike, json)?;
    Ok(ExitCode::from(if is_damaged { status::DAMAGED } else { 0 }))
}

/// A study's size, for `experiment check`.
#[derive(Debug, Serialize)]
struct Sized<'a> {
    name: &'a str,
    plan: &'a str,
    target: &'a str,
    /// The smallest and the largest number of blocks.
    blocks: [u32; 2],
    /// The number of runs in the smallest number of blocks.
    runs: u64,
}

/// Runs `experiment check` for a suite: shows its studies and their sizes. Installed programs are not
/// checked, because other hosts make the runs.
pub(super) fn check(suite: &Suite, json: bool) -> anyhow::Result<ExitCode> {
    let mut studies = Vec::new();
    for study in &suite.studies {
        let plan = study.plan().map_err(Usage)?;
        let (name, of, target) = (&study.name, &study.plan, &study.target);
        let runs = u64::from(plan.order.repeats) * u64::from(Schedule::new(&plan, 0).runs_per_block());
        studies.push(Sized {
            name,
            plan: of,
            target,
            blocks: [plan.order.repeats, plan.most_blocks()],
            runs,
        });
    }
    let mut out = std::io::stdout().lock();
    if json {
        let document = serde_json::json!({ "suite": suite.name, "studies": studies });
        crate::json::write_pretty(&mut out, &Document::new(document))?;
        return Ok(ExitCode::SUCCESS);
    }
    // The suite may be somebody else's.
    writeln!(out, "{}: {}", suite.name, printable(&suite.title))?;
    for Sized { name, plan, target, blocks: [least, most], runs } in studies {
        let size = format!("{}, {}", counted(least.into(), "block"), counted(runs, "run"));
        let more =
            if most > least { format!("; {} at most", counted(most.into(), "block")) } else { String::new() };
        writeln!(out, "{}; {size}{more}", printable(&format!("{name}: {plan} on {target}")))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::experiment::given::Given;

    #[test]
    fn the_command_that_makes_a_suite_again_finds_it() {
        let shipped = ShippedSuite::find("seeds").unwrap();
        let seeds = shipped.suite().unwrap();
        assert_eq!(again(&seeds, shipped.text, Path::new("study-seeds")), "exitless experiment run seeds");
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("result");
        let (name, shown) = (shipped.name, folder.display());
        let elsewhere = again(&seeds, shipped.text, &folder);
        assert_eq!(elsewhere, format!("exitless experiment run {name} --output {shown}"));
        // The same name, another text.
        let text = format!("# Mine.\n{}", shipped.text);
        begin(&seeds, &folder, &text).unwrap();
        let own = again(&seeds, &text, &folder);
        assert_eq!(own, format!("exitless experiment run {shown}/suite.toml --output {shown}"));
        let found = Given::find(own.split(' ').nth(3).unwrap()).unwrap();
        assert_eq!(found.suite().unwrap(), Some(seeds));
    }
}
