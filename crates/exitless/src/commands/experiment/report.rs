//! `exitless experiment report`: the findings of a study.

use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use study::analysis::{Collected, Findings, analyse};
use study::store::{StoreError, StudyFolder};

use super::super::paths;
use super::super::recordings::write_page;
use super::{PAGE, suite};
use crate::status::Usage;
use crate::{console, status};

/// Arguments of `experiment report`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The result's folder: of a study, or of a suite.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Print everything as JSON; the page is written only to a file given by --output.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print every comparison as comma-separated values; the page is written only to a file given by
    /// --output.
    #[arg(long)]
    csv: bool,
    /// Write the page into this file, instead of report.html in the folder.
    #[arg(short, long, value_name = "FILE", value_parser = paths::output())]
    output: Option<PathBuf>,
    /// Also compare runs of different hosts or guests; the result says so.
    #[arg(long)]
    allow_unlike: bool,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.folder.join(suite::SUITE).is_file() {
        if arguments.csv || arguments.output.is_some() {
            let what = "is a suite's; of the options only --json and --allow-unlike go with it";
            return Err(Usage(format!("{} {what}", arguments.folder.display())).into());
        }
        return suite::report(&arguments.folder, arguments.allow_unlike, arguments.json);
    }
    if let Some(page) = arguments.output.as_ref().filter(|page| StudyFolder::is_read(&arguments.folder, page))
    {
        let what = "is a file of the study, which the page would replace; name another file with --output";
        return Err(Usage(format!("{} {what}", page.display())).into());
    }
    let collected = read(&arguments.folder)?;
    let is_damaged = !collected.damage.is_empty();
    let findings = analyse(&collected, arguments.allow_unlike).map_err(|error| Usage(error.to_string()))?;
    let machine_readable = arguments.json || arguments.csv;
    let page = arguments.output.clone().or_else(|| (!machine_readable).then(|| arguments.folder.join(PAGE)));
    if let Some(page) = &page {
        write_page(page, &report::study::page(&findings, way(page, &arguments.folder).as_deref()))?;
    }
    print(&findings, arguments)?;
    if let Some(page) = page.filter(|_| !machine_readable) {
        console::say(format_args!("The page: {}", page.display()));
    }
    Ok(ExitCode::from(if is_damaged { status::DAMAGED } else { 0 }))
}

/// Reads a result folder.
pub(in crate::commands) fn read(folder: &Path) -> anyhow::Result<Collected> {
    if !folder.is_dir() {
        return Err(Usage(format!(
            "{} is not a folder; give the one that `exitless experiment run` wrote",
            folder.display()
        ))
        .into());
    }
    match StudyFolder::open(folder) {
        Ok(read) => Ok(Collected::from(read)),
        Err(error @ (StoreError::NoStudy { .. } | StoreError::Format { .. })) => {
            Err(Usage(error.to_string()).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// The prefix of links from the page into the folder: empty, or `../` and names. `None` if no relative path
/// exists, or if a name in it would need escaping in a link.
fn way(page: &Path, folder: &Path) -> Option<String> {
    let parent = page.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (from, to) = (parent.canonicalize().ok()?, folder.canonicalize().ok()?);
    let (from, to): (Vec<Component<'_>>, Vec<_>) = (from.components().collect(), to.components().collect());
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n("..".to_owned(), from.len() - common);
    let down = to[common..].iter().map(|part| part.as_os_str().to_string_lossy().into_owned());
    let parts: Vec<String> = up.chain(down).collect();
    let is_plain =
        |part: &String| part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+'));
    parts.iter().all(is_plain).then(|| parts.iter().map(|part| format!("{part}/")).collect())
}

fn print(findings: &Findings, arguments: &Arguments) -> anyhow::Result<()> {
    let text = || {
        if !arguments.csv {
            return console::shown(report::study::terminal(findings, console::width(), console::colour()));
        }
        // CSV has no room for warnings.
        findings.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        report::study::csv(findings)
    };
    Ok(crate::output::print(arguments.json, || findings, text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_knows_the_way_to_the_raw_files() {
        let folder = tempfile::tempdir().unwrap();
        let result = folder.path().join("result");
        std::fs::create_dir_all(result.join("deeper")).unwrap();
        std::fs::create_dir(folder.path().join("a b")).unwrap();
        assert_eq!(way(&result.join(PAGE), &result).as_deref(), Some(""));
        assert_eq!(way(&folder.path().join("page.html"), &result).as_deref(), Some("result/"));
        assert_eq!(way(&result.join("deeper/page.html"), &result).as_deref(), Some("../"));
        assert_eq!(way(&result.join(PAGE), &folder.path().join("a b")), None);
        assert_eq!(way(&result.join(PAGE), &folder.path().join("gone")), None);
    }
}
