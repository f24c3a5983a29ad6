//! The outcome of a suite on the terminal.

use study::suite::{StudyOutcome, SuiteOutcome};

use super::{Row, answer, not_made, row, runs};
use crate::terminal::columns::{self, Column};
use crate::terminal::{NARROWEST, wrapped};
use crate::text::printable;

/// A table for each study, and the counts last. No line is wider than `width` columns.
pub fn terminal(outcome: &SuiteOutcome, width: usize) -> String {
    let width = width.max(NARROWEST);
    let mut text = wrapped(&outcome.title, width, "", "");
    for study in outcome.studies.iter().filter(|study| study.planned > 0) {
        text.push('\n');
        text += &wrapped(&format!("{}: {}", study.study.name, runs(study)), width, "", "   ");
        for warning in &study.warnings {
            text += &wrapped(&format!("warning: {warning}"), width, "   ", "   ");
        }
        text += &match &study.why_not {
            Some(why) => wrapped(&format!("not compared: {why}"), width, "   ", "   "),
            None => table(study, width),
        };
    }
    text.push('\n');
    if let Some(missing) = not_made(outcome) {
        text += &wrapped(&format!("Not made yet: {missing}"), width, "", "   ");
    }
    text += &wrapped(&answer(outcome), width, "", "");
    text
}

fn table(study: &StudyOutcome, width: usize) -> String {
    if study.figures.is_empty() {
        return String::new();
    }
    let rows: Vec<Row<'_>> = study.figures.iter().map(row).collect();
    let of = |cell: fn(&Row<'_>) -> String| rows.iter().map(|row| printable(&cell(row))).collect::<Vec<_>>();
    let columns = vec![
        Column::names("figure", of(|row| row.figure.to_owned())),
        Column::figures("published", of(|row| row.published.clone())),
        Column::figures("change", of(|row| row.change.clone())),
        Column::figures("95 % interval", of(|row| row.interval.clone())),
        Column::figures("n", of(|row| row.repeats.clone())),
        Column::names("", of(|row| row.agreement.to_owned())),
    ];
    columns::drawn(columns, width, false, false)
}
