//! The outcome of a suite as a page of Markdown.

use std::fmt::Write as _;

use study::suite::{StudyOutcome, SuiteOutcome};

use super::{answer, command, not_made, row, runs};
use crate::text::plain;

/// The page: the counts, and for each study its source, setups, figures, and the command that repeats it. `again` is the
/// command that repeats the whole suite.
pub fn markdown(outcome: &SuiteOutcome, again: &str) -> String {
    let mut text = format!("# {}\n\n{}\n", plain(&outcome.title), answer(outcome));
    for study in outcome.studies.iter().filter(|study| study.planned > 0) {
        section(&mut text, again, study);
    }
    if let Some(missing) = not_made(outcome) {
        let _ = writeln!(text, "\n## Not made yet\n\n{}", plain(&missing));
    }
    text
}

fn section(text: &mut String, again: &str, study: &StudyOutcome) {
    let about = &study.study;
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n## {}\n\n```sh\n{}\n```", plain(&about.name), command(again, study));
    for (name, said) in
        [("Published", &about.source), ("Setup there", &about.setup), ("Here", &about.differs)]
    {
        if !said.is_empty() {
            let _ = writeln!(text, "\n{name}: {}", plain(said));
        }
    }
    let _ = writeln!(text, "\n{}", plain(&runs(study)));
    for warning in &study.warnings {
        let _ = writeln!(text, "\nWarning: {}", plain(&warning.to_string()));
    }
    if let Some(why) = &study.why_not {
        let _ = writeln!(text, "\nNot compared: {}", plain(why));
    }
    if study.figures.is_empty() || study.why_not.is_some() {
        return;
    }
    *text += "\n| figure | published | here, before and after | change | 95 % interval | n | |\n|---|---:|---:|---:|---:|---:|---|\n";
    for figure in &study.figures {
        let row = row(figure);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            plain(row.figure),
            row.published,
            row.levels,
            row.change,
            row.interval,
            row.repeats,
            row.agreement
        );
    }
}
