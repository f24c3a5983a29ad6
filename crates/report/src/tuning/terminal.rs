//! A tuning on the terminal: a table of changes, the diff, and the answer last.

use study::tuning::{Preview, Tuning, TuningPlan};

use super::diff;
use super::words::{answer, finding, left, ruling, values};
use crate::fixed::lines::readable;
use crate::format::counted;
use crate::study::figures;
use crate::terminal::{NARROWEST, wrapped};
use crate::text::printable;

/// The result. No line is wider than `width` columns except those of the diff.
pub fn terminal(tuning: &Tuning, width: usize) -> String {
    let width = width.max(NARROWEST);
    let mut text = wrapped(&format!("{}: {}", tuning.title, tuning.question), width, "", "");
    for (number, step) in tuning.steps.iter().enumerate() {
        let head = format!("{}. {}: {}", number + 1, step.name, ruling(step));
        text.push('\n');
        text += &wrapped(&head, width, "", "   ");
        text += &wrapped(&step.sentence, width, "   ", "   ");
        for judged in &step.judged {
            let [before, after] = values(judged);
            let line = format!(
                "{}: {before}, then {after} ({}, {}){}",
                judged.figure,
                figures::change(judged.change, judged.unit),
                finding(judged),
                if judged.decides { ", decides" } else { "" },
            );
            text += &wrapped(&line, width, "   - ", "     ");
        }
    }
    let of_guests = diff::guest(&tuning.before, &tuning.after);
    let differences = [of_guests, tuning.definition.as_ref().map(diff::definition).unwrap_or_default()];
    for difference in differences.iter().filter(|difference| !difference.is_empty()) {
        text.push('\n');
        text += &readable(difference);
    }
    let carried =
        tuning.definition.iter().flat_map(|tuned| tuned.carried.notes.iter().chain(&tuned.carried.left));
    let notes: Vec<&String> = carried.chain(&tuning.notes).collect();
    if !notes.is_empty() {
        text.push('\n');
        notes.into_iter().for_each(|note| text += &wrapped(note, width, "", ""));
    }
    if !tuning.left.is_empty() {
        text += "\nNot tried\n\n";
    }
    for one in &tuning.left {
        text += &wrapped(&left(one), width, "- ", "  ");
        one.changes.iter().for_each(|change| text += &wrapped(change, width, "    ", "      "));
    }
    text.push('\n');
    text += &wrapped(&answer(tuning), width, "", "");
    text
}

/// The steps of a plan before it is run: each change, the reason, and its effect on the definition.
pub fn steps(plan: &TuningPlan, steps: &[Preview], before: &[String], width: usize) -> String {
    let width = width.max(NARROWEST);
    let mut text = wrapped(&format!("{}: {}", plan.base.title, plan.base.question), width, "", "");
    for (number, Preview { name, why, after, runs }) in steps.iter().enumerate() {
        text.push('\n');
        text +=
            &wrapped(&format!("{}. {name} ({}): {why}", number + 1, counted(*runs, "run")), width, "", "   ");
        let changed = diff::guest(before, after);
        for line in changed.lines().skip(2).filter(|line| line.starts_with(['+', '-'])) {
            text += &format!("   {}\n", printable(line));
        }
    }
    if let Some(advised) = &plan.rules.advised {
        let then = format!(
            "Then at most {} by what is advised for the exits of the best so far, each for a device that takes {} % of \
             a CPU or more.",
            counted(u64::from(advised.steps), "change"),
            advised.worth
        );
        text.push('\n');
        text += &wrapped(&then, width, "", "");
    }
    text
}
