//! A tuning as a page of Markdown.

use std::fmt::Write as _;

use study::tuning::Tuning;

use super::diff;
use super::words::{answer, finding, left, ruling, values};
use crate::fixed::lines::readable;
use crate::study::figures;
use crate::text::plain;

/// The report: the answer, a section for each change with its figures and a link to its study, and the diff.
pub fn markdown(tuning: &Tuning) -> String {
    let mut text =
        format!("# {}\n\n{}\n\n{}\n", plain(&tuning.title), plain(&tuning.question), plain(&answer(tuning)));
    let _ = write!(
        text,
        "\nTarget: {}. A figure is told from noise by three gates: p below 0.05 and an interval without 0, \
        large enough, out of the repeats' scatter. A change is kept only if a figure that improved is also certain \
        among all figures of all changes.\n",
        plain(&tuning.target)
    );
    for (number, step) in tuning.steps.iter().enumerate() {
        let _ = write!(
            text,
            "\n## {}. {}: {}\n\n{}\n\n",
            number + 1,
            plain(&step.name),
            ruling(step),
            plain(&step.why)
        );
        let _ = writeln!(text, "{}", plain(&step.sentence));
        if !step.judged.is_empty() {
            text += "\n| figure | before | after | change | 95 % interval | found |\n|---|---:|---:|---:|---:|---|\n";
        }
        for judged in &step.judged {
            let [before, after] = values(judged);
            let _ = writeln!(
                text,
                "| {}{} | {before} | {after} | {} | {} | {} |",
                plain(&judged.figure),
                if judged.decides { " (decides)" } else { "" },
                figures::change(judged.change, judged.unit),
                figures::interval(judged.change, judged.unit),
                finding(judged),
            );
        }
        if let Some(folder) = &step.folder {
            let _ = write!(text, "\nThe study: [{folder}]({folder}/report.html)\n");
        }
    }
    let difference = diff::guest(&tuning.before, &tuning.after);
    if !difference.is_empty() {
        let _ = write!(text, "\n## The kept changes\n\n{}", block(&difference));
    }
    if let Some(tuned) = &tuning.definition {
        let _ = write!(text, "\n## The definition\n\n{}\n", plain(&tuned.name));
        let notes = [&tuned.unlike, &tuned.carried.notes, &tuned.carried.left];
        for note in notes.into_iter().flatten() {
            let _ = write!(text, "\n- {}", plain(note));
        }
        let _ = write!(text, "\n\n{}", block(&diff::definition(tuned)));
    }
    if !tuning.left.is_empty() {
        text += "\n## Not tried\n";
    }
    for one in &tuning.left {
        let _ = write!(text, "\n- {}", plain(&left(one)));
        for change in &one.changes {
            let _ = write!(text, "\n  - {}", plain(change));
        }
    }
    if !tuning.left.is_empty() {
        text.push('\n');
    }
    for note in &tuning.notes {
        let _ = write!(text, "\n{}\n", plain(note));
    }
    text
}

/// A code block with a diff of definitions, which are text of others.
fn block(difference: &str) -> String {
    // A longer fence than any in the diff, which would close it.
    let longest = difference.split(|one: char| one != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(3) + 1);
    format!("{fence}diff\n{}{fence}\n", readable(difference))
}
