//! Results of one plan on two sides, side by side.

use study::analysis::{ComparedFigure, DifferenceRow, EffectRow, Finding, Source, StudyDifference};

use crate::format::{NONE, counted};
use crate::study::figures::{self, Measure, chance};
use crate::terminal::columns::{Column, drawn};
use crate::terminal::labels::listed;
use crate::terminal::{NARROWEST, wrapped};
use crate::text;

/// Results of one plan on two sides: the differences between the hosts and in how both were measured, each figure before
/// and after, and the changes of the arms' effects.
///
/// Figures of the host are only shown if they differ. No line is wider than `width` columns if `width` is at least 80.
pub fn terminal(difference: &StudyDifference, width: usize) -> String {
    let width = width.max(NARROWEST);
    let [before, after] = &difference.studies;
    let extent = |side: usize| {
        let runs = counted(difference.runs[side] as u64, "run");
        match difference.results[side] {
            1 => runs,
            results => format!("{}, {runs}", counted(results as u64, "result")),
        }
    };
    let mut text = wrapped(
        &format!(
            "{}: {} ({}) before, {} ({}) after",
            before.title,
            before.target,
            extent(0),
            after.target,
            extent(1)
        ),
        width,
        "",
        "",
    );
    text.push_str("\nDifferences between the hosts and the measurements\n\n");
    if difference.unlike.is_empty() {
        text.push_str("  Nothing that is known.\n");
    }
    for unlike in &difference.unlike {
        let value =
            |at: usize| unlike.values.get(at).cloned().flatten().unwrap_or_else(|| "unknown".to_owned());
        text.push_str(&wrapped(
            &format!("{}: {} → {}", unlike.field, value(0), value(1)),
            width,
            "  - ",
            "    ",
        ));
    }
    text.push_str("\nFigures before and after (n: guests that ran at once)\n\n");
    text.push_str(&figures(difference, width));
    if !difference.effects.is_empty() {
        text.push_str("\nWhat the arms do, before and after (n: guests that ran at once)\n\n");
        text.push_str(&effects(difference, width));
    }
    text += &listed("On one side only", &difference.only_one, width);
    let sides = ["before", "after"].into_iter().zip(&difference.warnings);
    let warnings = sides.flat_map(|(side, all)| all.iter().map(move |one| format!("{side}: {one}")));
    let warnings = warnings.chain(difference.doubts.iter().map(ToString::to_string));
    text += &listed("Warnings", warnings, width);
    let made = &difference.multiplicity;
    if made.made == 0 {
        return text;
    }
    text.push('\n');
    text.push_str(&wrapped(&chance(made), width, "", ""));
    text
}

/// Tests whether a row is shown: those of the host's figures are only if they differ.
fn is_shown(figure: &ComparedFigure, finding: Finding) -> bool {
    figure.source == Source::Workload || finding.is_found()
}

/// The name of the arm with this index.
fn arm(difference: &StudyDifference, at: usize) -> String {
    difference.arms.get(at).map_or_else(|| NONE.to_owned(), |arm| text::printable(&arm.name))
}

fn figures(difference: &StudyDifference, width: usize) -> String {
    let rows: Vec<_> = difference.rows.iter().filter(|row| is_shown(&row.figure, row.finding)).collect();
    if rows.is_empty() {
        return "  None is in both results.\n".to_owned();
    }
    let level = |figure: &ComparedFigure, levels: [f64; 2], side: usize| {
        let largest = levels[0].abs().max(levels[1].abs());
        Measure::of_metric(&figure.metric, figure.unit, largest).shown(levels[side])
    };
    let cells = |cell: &dyn Fn(&DifferenceRow) -> String| rows.iter().map(|row| cell(row)).collect();
    let columns = vec![
        Column::names("figure", cells(&|row| text::printable(&row.figure.name()))),
        Column::names("arm", cells(&|row| arm(difference, row.arm))),
        Column::figures("n", cells(&|row| row.figure.guests.to_string())),
        Column::figures("before", cells(&|row| level(&row.figure, row.levels, 0))).may_go(1),
        Column::figures("after", cells(&|row| level(&row.figure, row.levels, 1))).may_go(2),
        Column::figures("change", cells(&|row| figures::change(row.change, row.figure.unit))),
        Column::figures("95 % interval", cells(&|row| figures::interval(row.change, row.figure.unit)))
            .may_go(3),
        Column::whole_names(
            "finding",
            cells(&|row| figures::finding(row.finding, row.figure.better).to_owned()),
        ),
    ];
    drawn(columns, width, false, false)
}

fn effects(difference: &StudyDifference, width: usize) -> String {
    let rows: Vec<_> = difference.effects.iter().filter(|row| is_shown(&row.figure, row.finding)).collect();
    if rows.is_empty() {
        return "  The arms do the same in both results.\n".to_owned();
    }
    let finding = |row: &EffectRow| match row.finding.is_found() {
        true => "differs".to_owned(),
        false => figures::finding(row.finding, row.figure.better).to_owned(),
    };
    let cells = |cell: &dyn Fn(&EffectRow) -> String| rows.iter().map(|row| cell(row)).collect();
    let columns = vec![
        Column::names("figure", cells(&|row| text::printable(&row.figure.name()))),
        Column::names("arm", cells(&|row| arm(difference, row.arm))),
        Column::figures("n", cells(&|row| row.figure.guests.to_string())),
        Column::figures("before", cells(&|row| figures::change(row.effects[0], row.figure.unit))),
        Column::figures("after", cells(&|row| figures::change(row.effects[1], row.figure.unit))),
        Column::figures("difference", cells(&|row| figures::change(row.change, row.figure.unit))),
        Column::whole_names("finding", cells(&finding)),
    ];
    drawn(columns, width, false, false)
}
