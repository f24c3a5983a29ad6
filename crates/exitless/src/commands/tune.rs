//! `exitless tune`: one change after the other, kept or reverted by a study's verdict.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use clap::Args;
use guests::GuestPlan;
use report::json::Document;
use study::analysis::analyse;
use study::engine::{Conclusion, Past};
use study::plan::Plan;
use study::target::Target;
use study::tuning::{
    Measured, Measuring, Ruling, SHIPPED_TUNING, Seen, ShippedTuning, TunedDefinition, Tuning, TuningFolder,
    TuningPlan, carried, preview, recorded, tune,
};

use super::experiment::given::Given;
use super::experiment::report::read;
use super::experiment::runs::{chance, check_target, make_runs, tell_damage, tell_not_undone};
use super::experiment::{PAGE, TARGET};
use super::recordings::write_page;
use super::vm::subject::{Subject, Which};
use crate::status::Usage;
use crate::{console, interrupt, status};

/// The files of a result.
const PLAN: &str = "plan.toml";
const DEFINITION: &str = "definition";
const RESULT: &str = "tuning.json";
const REPORT: &str = "report.md";
const DIFFERENCE: &str = "changes.diff";
const TUNED: &str = "definition.tuned";
const DEFINITION_DIFFERENCE: &str = "definition.diff";

/// Arguments of `tune`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The plan's file, or the name of a shipped one: tune-old-guest, tune-advised, and each with -lab at its
    /// end.
    #[arg(value_name = "PLAN")]
    plan: String,
    /// The result's folder; the tuning in it is continued if it is the same [default: NAME of the plan].
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[arg(long, value_name = "TARGET", default_value = "local", hide_default_value = true, help = TARGET)]
    target: Target,
    /// Measure with guests that resemble the VM of this definition, and write the kept changes into a copy of
    /// it: a file with libvirt's XML or a QEMU command line, a process, a running VM by its name, or a domain
    /// of libvirt. The VM and its definition are only read.
    #[arg(long, value_name = "FILE|PID|NAME|libvirt:NAME")]
    definition: Option<String>,
    /// Continue although the host, or the version of exitless, is not that with which a step was started; the step's result
    /// says so.
    #[arg(long)]
    allow_unlike: bool,
    /// Show the steps, and start nothing. Refuses what the tuning would refuse before it starts.
    #[arg(long)]
    dry_run: bool,
    /// A configuration file for ssh to use instead of the user's.
    #[arg(long, value_name = "FILE")]
    ssh_config: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// The text of a definition. The results of a tuning are texts too: in them, other bytes would no longer name the same
/// files.
fn text_of(subject: &Subject) -> Result<&str, Usage> {
    std::str::from_utf8(&subject.text.bytes).map_err(|error| {
        Usage(format!(
            "{} is not UTF-8 at byte {}, and a tuned definition is. Rename the file that it names there, or leave out \
             --definition and change the definition yourself.",
            subject.text.name,
            error.valid_up_to()
        ))
    })
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let names: Vec<_> = SHIPPED_TUNING.iter().map(|shipped| shipped.name).collect();
    let known = format!("those that come with exitless are {}", names.join(", "));
    let given = Given::among(&arguments.plan, |name| Some(ShippedTuning::find(name)?.text), &known)?;
    let plan = TuningPlan::read(&given.text, &given.name).map_err(|bad| Usage(bad.to_string()))?;
    let subject = match &arguments.definition {
        Some(wanted) => Some(Subject::find(Path::new("/"), wanted, Which::Next)?),
        None => None,
    };
    let definition = subject.as_ref().map(text_of).transpose()?;
    let (plan, unlike) = match &subject {
        Some(subject) => plan
            .like(&subject.definition()?, &subject.text.name)
            .map_err(|unlike| Usage(unlike.to_string()))?,
        None => (plan, Vec::new()),
    };
    unlike.iter().for_each(console::say);
    check_target(&arguments.target, arguments.ssh_config.as_deref())?;
    let folder = arguments.output.clone().unwrap_or_else(|| PathBuf::from(&plan.base.name));
    if folder.exists() && !folder.is_dir() {
        let next = "is not a folder; name another one with --output";
        return Err(Usage(format!("{} {next}", folder.display())).into());
    }
    let mut files = vec![(PLAN, given.text.as_str())];
    files.extend(definition.map(|text| (DEFINITION, text)));
    if arguments.dry_run {
        TuningFolder::check(&folder, &files)?;
        return dry_run(&plan, arguments.json);
    }
    let opened = TuningFolder::open(&folder, &files)?;
    let stop = interrupt::answered_flag()?;
    let mut steps = Steps {
        folder: opened,
        arguments,
        stop: Arc::clone(&stop),
        not_undone: false,
        failed: false,
        definition: subject.as_ref().zip(definition).map(|(subject, text)| Standing {
            subject,
            text,
            unlike: &unlike,
            before: &plan.base.guests,
        }),
    };
    let tuning = tune(&plan, &arguments.target.to_string(), &mut steps)?;
    let tuning = steps.with_definition(&tuning)?;
    let text = || report::tuning::terminal(&tuning, console::width());
    let printed = crate::output::print_table(arguments.json, || &tuning, text);
    if !arguments.json {
        console::say(format_args!("The report: {}", folder.join(REPORT).display()));
        if tuning.definition.is_some() {
            console::say(format_args!("The tuned definition: {}", folder.join(TUNED).display()));
        }
    }
    let failed = tuning.steps.iter().any(|step| step.ruling == Ruling::Failed);
    let status = match () {
        () if steps.not_undone && !steps.stop.load(Ordering::Relaxed) => status::SOME_FAILED,
        () if !tuning.complete => status::INTERRUPTED,
        () if failed || steps.failed => status::SOME_FAILED,
        () => 0,
    };
    printed?;
    Ok(ExitCode::from(status))
}

fn dry_run(plan: &TuningPlan, json: bool) -> anyhow::Result<ExitCode> {
    let (before, steps) = preview(plan);
    let advised = &plan.rules.advised;
    let document =
        || Document::new(serde_json::json!({ "before": before, "steps": steps, "advised": advised }));
    let text = || report::tuning::steps(plan, &steps, &before, console::width());
    crate::output::print_table(json, document, text)?;
    Ok(ExitCode::SUCCESS)
}

/// The definition of the VM that the plan's guests represent.
struct Standing<'a> {
    subject: &'a Subject,
    text: &'a str,
    unlike: &'a [String],
    /// The guests that resemble it, before any change.
    before: &'a GuestPlan,
}

/// Runs the studies of the steps.
struct Steps<'a> {
    folder: TuningFolder,
    arguments: &'a Arguments,
    stop: Arc<AtomicBool>,
    not_undone: bool,
    /// Runs failed for good, including those of the baseline.
    failed: bool,
    definition: Option<Standing<'a>>,
}

impl Measuring for Steps<'_> {
    type Error = anyhow::Error;

    fn measure(&mut self, name: &str, study: &Plan) -> anyhow::Result<Measured> {
        let folder = self.folder.step(name);
        match self.runs(name, study)? {
            Some(Conclusion { enough: None, .. }) => return Ok(Measured::Interrupted),
            Some(Conclusion { failed, .. }) if !failed.is_empty() => {
                return Ok(Measured::Failed(failed[0].why.clone()));
            }
            _ => {}
        }
        let collected = read(&folder)?;
        Ok(match analyse(&collected, self.arguments.allow_unlike) {
            Ok(findings) => {
                write_page(&folder.join(PAGE), &report::study::page(&findings, Some("")))?;
                Measured::Findings(Box::new(findings))
            }
            Err(why) => Measured::Failed(why.to_string()),
        })
    }

    fn exits(&mut self, name: &str, study: &Plan, level: &str) -> anyhow::Result<Seen> {
        if let Some(Conclusion { enough: None, .. }) = self.runs(name, study)? {
            return Ok(Seen::Interrupted);
        }
        Ok(match recorded(&self.folder.step(name), level) {
            Ok(recorded) => Seen::Exits(Box::new(recorded)),
            Err(why) => Seen::Nothing(why.to_string()),
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
    /// Makes the missing runs of a study; `None` if all exist.
    fn runs(&mut self, name: &str, study: &Plan) -> anyhow::Result<Option<Conclusion>> {
        let target = self.arguments.target.to_string();
        let text = toml::to_string(study).context("Could not write the step's plan")?;
        let mut store = self.folder.open_step(name, study, &text, &target, chance())?;
        tell_damage(&store);
        if Past::new(study, store.runs(), store.failed()).is_complete(study, store.seed()) {
            return Ok(None);
        }
        if self.stop.load(Ordering::Relaxed) {
            return Ok(Some(Conclusion::default()));
        }
        console::say(format_args!("{name}: {}", study.title));
        let ssh_config = self.arguments.ssh_config.as_deref();
        let Arguments { target, allow_unlike, .. } = self.arguments;
        let conclusion = make_runs(&mut store, target, ssh_config, *allow_unlike, &self.stop)?;
        tell_not_undone(&conclusion);
        self.not_undone |= !conclusion.not_undone.is_empty();
        self.failed |= !conclusion.failed.is_empty();
        Ok(Some(conclusion))
    }

    /// Adds the changed definition of the VM to the tuning, and writes it into the folder.
    fn with_definition(&self, tuning: &Tuning) -> anyhow::Result<Tuning> {
        let mut tuning = tuning.clone();
        let (Some(Standing { subject, text, unlike, before }), Some(after)) =
            (&self.definition, &tuning.guests)
        else {
            return Ok(tuning);
        };
        let carried = carried(before, after, &subject.text, subject.files(), subject.form)?;
        let tuned = TunedDefinition {
            name: subject.text.name.clone(),
            before: (*text).to_owned(),
            unlike: unlike.to_vec(),
            carried,
        };
        self.folder.put(TUNED, &tuned.carried.text)?;
        self.folder.put(DEFINITION_DIFFERENCE, &report::tuning::diff::definition(&tuned))?;
        tuning.definition = Some(tuned);
        self.write(&tuning)?;
        Ok(tuning)
    }

    #[expect(clippy::disallowed_methods, reason = "it goes into a file")]
    fn write(&self, tuning: &Tuning) -> anyhow::Result<()> {
        self.folder.put(RESULT, &(serde_json::to_string_pretty(tuning)? + "\n"))?;
        self.folder.put(REPORT, &report::tuning::markdown(tuning))?;
        Ok(self.folder.put(DIFFERENCE, &report::tuning::diff::guest(&tuning.before, &tuning.after))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_that_is_not_text_is_refused_before_anything_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("command");
        let text = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let subject = Subject::find(Path::new("/"), path.to_str().unwrap(), Which::Next).unwrap();
            text_of(&subject).map(str::to_owned).map_err(|Usage(why)| why)
        };
        let line = "qemu-system-x86_64 -drive file=caf\u{e9}.img";
        assert_eq!(text(line.as_bytes()).as_deref(), Ok(line));
        let why = text(b"qemu-system-x86_64 -drive file=caf\xe9.img").unwrap_err();
        assert!(why.contains("not UTF-8 at byte 34"), "{why}");
    }
}
