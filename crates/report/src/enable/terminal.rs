//! The plan of `exitless enable` and `exitless disable`, and its result.

use doctor::enable::{Applied, AppliedStep, Arm, Effect, Plan, Standing, Step, StepOutcome};

use crate::terminal::{NARROWEST, wrapped};
use crate::text::printable;

/// The plan: the current state, the steps with their changes or the reason why nothing is done, and notes.
///
/// Lines of diffs are as wide as in the files. No other line is wider than `width` columns if `width` is at least 80.
#[must_use]
pub fn plan(plan: &Plan, width: usize, colour: bool) -> String {
    let width = width.max(NARROWEST);
    let mut text = state(plan, width);
    for refusal in &plan.refusals {
        text.push('\n');
        text += &wrapped(&format!("Refused: {}.", refusal.why), width, "", "  ");
        text += &wrapped(&format!("Next: {}.", refusal.next), width, "  ", "  ");
    }
    for (number, step) in (1..).zip(&plan.steps) {
        text.push('\n');
        text += &one(number, step, width, colour);
    }
    for note in &plan.notes {
        text.push('\n');
        text += &wrapped(&format!("Note: {note}"), width, "", "  ");
    }
    text
}

fn state(plan: &Plan, width: usize) -> String {
    let wish = if plan.arm == Arm::On { "on" } else { "off" };
    let Some(now) = &plan.now else {
        return wrapped(&format!("Wanted: {} {wish}.", plan.technology), width, "", "  ");
    };
    let already = if plan.so_already { "Already so" } else { "Wanted" };
    wrapped(&format!("{already}: {} {wish}. {} is {now}.", plan.technology, plan.place), width, "", "  ")
}

fn one(number: usize, step: &Step, width: usize, colour: bool) -> String {
    let standing = match &step.standing {
        Standing::Ready => String::new(),
        Standing::NotAsked { option } => format!(" (with {option})"),
        Standing::Blocked { .. } => " (blocked)".to_owned(),
        Standing::Suggested => " (do this yourself)".to_owned(),
    };
    let first = format!("{number}. ");
    let rest = " ".repeat(first.len());
    let mut text = wrapped(&format!("{}{standing}", step.title), width, &first, &rest);
    let line = |what: &str, said: &str| {
        wrapped(said, width, &format!("{rest}{what:<9}"), &format!("{rest}{:9}", ""))
    };
    if let Standing::Blocked { why, next } = &step.standing {
        text += &line("blocked", why);
        text += &line("next", next);
    }
    text += &line("why", &step.why);
    if let Some(source) = &step.source {
        text += &line("source", source);
    }
    text += &line(
        "effect",
        match step.effect {
            Effect::Now => "at once",
            Effect::NextLoad => "when the module is loaded next, at the latest at the next boot",
            Effect::NextBoot => "at the next boot",
        },
    );
    for file in &step.files {
        text.push('\n');
        for line in file.diff.lines() {
            let line = printable(line);
            let code = match line.as_bytes().first() {
                _ if !colour || line.starts_with("---") || line.starts_with("+++") => None,
                Some(b'-') => Some("31"),
                Some(b'+') => Some("32"),
                _ => None,
            };
            text += &match code {
                Some(code) => format!("{rest}\u{1b}[{code}m{line}\u{1b}[0m\n"),
                None => format!("{rest}{line}\n"),
            };
        }
    }
    if !step.files.is_empty() && !step.commands.is_empty() {
        text.push('\n');
    }
    for command in &step.commands {
        text += &format!("{rest}$ {}\n", printable(command));
    }
    text
}

/// The results of the steps.
#[must_use]
pub fn applied(plan: &Plan, applied: &Applied, width: usize) -> String {
    let width = width.max(NARROWEST);
    let mut text = String::new();
    for AppliedStep { name, outcome } in &applied.steps {
        let title =
            plan.steps.iter().find(|step| step.name == *name).map_or(name.as_str(), |step| &step.title);
        let said = match outcome {
            StepOutcome::Made => format!("Done: {title}."),
            StepOutcome::AlreadySo => format!("Already so: {title}."),
            StepOutcome::Failed { why } => format!("Failed, and undone: {title}. {why}."),
            StepOutcome::NotReached => format!("Not reached: {title}."),
        };
        text += &wrapped(&said, width, "", "  ");
    }
    // Requested steps that could not be tried.
    for step in plan.steps.iter().filter(|step| applied.steps.iter().all(|one| one.name != step.name)) {
        if let Standing::Blocked { why, next } = &step.standing {
            text += &wrapped(
                &format!("Not done: {}. It is blocked: {why}; {next}.", step.title),
                width,
                "",
                "  ",
            );
        }
    }
    if let Some(reads) = &applied.reads {
        text += &wrapped(&format!("{} is {reads}.", plan.place), width, "", "  ");
    }
    for note in &applied.notes {
        text += &wrapped(&format!("Note: {note}"), width, "", "  ");
    }
    text
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
