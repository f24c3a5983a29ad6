//! `exitless experiment run`: a study, here or on another machine.

use exits::counted;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::Args;
use report::json::Document;
use serde::Serialize;
use study::engine::{Conclusion, FailedForGood, Past, by_reason};
use study::schedule::Enough;
use study::store::Store;
use study::target::Target;

use super::given::Given;
use super::runs::{check_target, make_runs, open};
use super::{suite, words};
use crate::console::{self, harmless};
use crate::status::Usage;
use crate::{interrupt, status};

/// Arguments of `experiment run`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The file or the name of a shipped plan, or of a suite of studies, which has targets of its own.
    #[arg(value_name = "PLAN")]
    plan: String,
    /// The result's folder; the study in it is continued if it is the same [default: study-NAME].
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[arg(long, value_name = "TARGET", help = super::TARGET)]
    target: Option<Target>,
    /// Make only this study of a suite; may be given more than once.
    #[arg(long, value_name = "STUDY")]
    only: Vec<String>,
    /// Continue although the host, or the version of exitless, is not that with which the study was started; the
    /// result says so.
    #[arg(long)]
    allow_unlike: bool,
    /// A configuration file for ssh to use instead of the user's.
    #[arg(long, value_name = "FILE")]
    ssh_config: Option<PathBuf>,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
}

/// The result as JSON.
#[derive(Debug, Serialize)]
struct Summary {
    folder: PathBuf,
    target: String,
    /// All runs are complete.
    complete: bool,
    /// The reason why no further block was begun.
    enough: Option<Enough>,
    interrupted: bool,
    runs: usize,
    failed_attempts: usize,
    failed_for_good: Vec<FailedForGood>,
    not_undone: Vec<String>,
    damaged: Vec<String>,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let given = Given::find(&arguments.plan)?;
    if let Some(suite) = given.suite()? {
        if arguments.target.is_some() || arguments.ssh_config.is_some() {
            let what =
                "is a suite, whose studies have targets of their own; leave out --target and --ssh-config";
            return Err(Usage(format!("{} {what}", arguments.plan)).into());
        }
        let options = suite::Options {
            output: arguments.output.as_deref(),
            only: &arguments.only,
            allow_unlike: arguments.allow_unlike,
            json: arguments.json,
        };
        return suite::run(&suite, &given.text, &options);
    }
    if !arguments.only.is_empty() {
        return Err(Usage(format!("{} is a plan; --only is for suites", arguments.plan)).into());
    }
    let chosen = arguments.target.clone().unwrap_or(Target::Local);
    let plan = given.plan()?;
    check_target(&chosen, arguments.ssh_config.as_deref())?;
    let folder = arguments.output.clone().unwrap_or_else(|| PathBuf::from(format!("study-{}", plan.name)));
    let target = chosen.to_string();
    let mut store = open(&folder, &plan, &given.text, &target)?;
    if store.began() {
        let past = Past::new(store.plan(), store.runs(), store.failed());
        let there = there(store.runs().len(), past.of_incomplete.len());
        console::say(format_args!("Resuming {}: it has {there}", folder.display()));
    }
    let stop = interrupt::answered_flag()?;
    let ssh_config = arguments.ssh_config.as_deref();
    let conclusion = make_runs(&mut store, &chosen, ssh_config, arguments.allow_unlike, &stop);
    let interrupted = stop.load(Ordering::Relaxed);
    // Report the completed runs even if the study stopped early.
    let conclusion = match conclusion {
        Ok(conclusion) => conclusion,
        Err(error) => {
            let runs = counted(store.runs().len() as u64, "run");
            console::say(format_args!("{} has {runs}; the same command resumes it", folder.display()));
            return Err(error);
        }
    };
    let summary = summary(&store, &folder, target, conclusion, interrupted);
    crate::output::write(|out| print(&summary, arguments.json, out))?;
    let status = match () {
        () if summary.complete && summary.not_undone.is_empty() => 0,
        () if interrupted => status::INTERRUPTED,
        () => status::SOME_FAILED,
    };
    Ok(ExitCode::from(status))
}

fn summary(
    store: &Store,
    folder: &Path,
    target: String,
    conclusion: Conclusion,
    interrupted: bool,
) -> Summary {
    Summary {
        folder: folder.to_owned(),
        target,
        complete: conclusion.enough.is_some() && conclusion.failed.is_empty(),
        enough: conclusion.enough,
        interrupted: interrupted && conclusion.enough.is_none(),
        runs: store.runs().len(),
        failed_attempts: store.failed().len(),
        failed_for_good: conclusion.failed,
        not_undone: conclusion.not_undone,
        damaged: store.warnings().to_vec(),
    }
}

fn print(summary: &Summary, json: bool, out: &mut impl Write) -> std::io::Result<()> {
    if json {
        return crate::json::write_pretty(out, &Document::new(summary));
    }
    let folder = summary.folder.display();
    let [runs, failed] = [(summary.runs, "run"), (summary.failed_attempts, "failed attempt")]
        .map(|(number, one)| counted(number as u64, one));
    writeln!(out, "{runs} in {folder}; {failed}")?;
    for reason in by_reason(&summary.failed_for_good) {
        // It may be the last line of what a step in a guest wrote.
        writeln!(out, "{}", harmless(&format!("{}: {}", words::failed(&reason), reason.why)))?;
    }
    for what in &summary.not_undone {
        let what = harmless(what);
        writeln!(out, "Not undone: {what}; run `exitless restore`, then the same command")?;
    }
    if summary.interrupted {
        writeln!(out, "Interrupted; the same command resumes it")?;
    }
    Ok(())
}

/// The runs of a study that is resumed. How many are made again is not known yet: a block that lacks only runs that fail
/// once more stays as it is.
fn there(runs: usize, again: usize) -> String {
    let runs = counted(runs as u64, "run");
    match again {
        0 => runs,
        _ => format!("{runs}; up to {again} of them will be repeated, because their blocks are incomplete"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use study::Cell;

    use super::*;

    #[test]
    fn runs_that_are_made_again_are_announced() {
        assert_eq!(there(1, 0), "1 run");
        assert_eq!(
            there(15, 3),
            "15 runs; up to 3 of them will be repeated, because their blocks are incomplete"
        );
    }

    #[test]
    fn what_a_guest_or_a_target_said_cannot_speak_to_the_terminal() {
        let said = "\u{1b}]0;owned\u{7}".to_owned();
        let cell = Cell { block: 0, arm: BTreeMap::new(), guests: 1, workload: said.clone() };
        let failed = FailedForGood { position: 0, cell, why: said.clone() };
        let summary = Summary {
            folder: PathBuf::from("study-x"),
            target: "local".to_owned(),
            complete: false,
            enough: None,
            interrupted: false,
            runs: 0,
            failed_attempts: 1,
            failed_for_good: vec![failed],
            not_undone: vec![said],
            damaged: Vec::new(),
        };
        let mut out = Vec::new();
        print(&summary, false, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("owned") && text.lines().count() == 3, "{text:?}");
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{text:?}");
        let mut out = Vec::new();
        print(&summary, true, &mut out).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(document["format"], 1);
        assert_eq!(document["complete"], false);
    }
}
