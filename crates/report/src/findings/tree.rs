//! Findings of rules as a tree: a mark, the finding, and under it the evidence and the fix.

use doctor::{Finding, Fix, Managed, Section, State, Tally};
use domain::Form;

use super::change::change_in_words;
use crate::format::counted;
use crate::terminal::{NARROWEST, emphasised, wrapped};
use crate::text::printable;

/// The settings of the display.
#[derive(Debug, Clone, Copy)]
pub struct FindingsView {
    /// Columns of the terminal; no line is wider if it is at least 80, except commands.
    pub width: usize,
    /// Escape sequences colour the marks.
    pub colour: bool,
    /// True to show checks that passed, one line each.
    pub passes: bool,
    /// True to show each check in full, including the reason for it, the rule's name and its source, and to show checks
    /// that passed.
    pub verbose: bool,
}

/// The sections with their findings. A section without visible findings is left out.
#[must_use]
pub(crate) fn findings(sections: &[Section], view: FindingsView) -> String {
    let view = FindingsView { width: view.width.max(NARROWEST), ..view };
    let mut text = String::new();
    for section in sections.iter().filter(|section| section.findings.iter().any(|one| view.shows(one))) {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &emphasised(&format!("{}\n", printable(&section.title)), "1", view.colour);
        for finding in &section.findings {
            view.finding(&mut text, finding, section.form, 0);
        }
    }
    text
}

/// The tally of all findings: "2 failures, 1 warning, 14 passed, 3 skipped".
#[must_use]
pub(crate) fn findings_summary(tally: Tally) -> String {
    let plural = |number: usize, word: &str| counted(number as u64, word);
    let mut parts = Vec::new();
    if tally.fail > 0 {
        parts.push(plural(tally.fail, "failure"));
    }
    if tally.warn > 0 {
        parts.push(plural(tally.warn, "warning"));
    }
    parts.push(format!("{} passed", tally.pass));
    if tally.skip > 0 {
        parts.push(format!("{} skipped", tally.skip));
    }
    parts.join(", ")
}

impl FindingsView {
    fn shows(self, finding: &Finding) -> bool {
        let itself = match finding.state {
            State::Fail | State::Warn => true,
            State::Pass | State::Skip(_) => self.passes || self.verbose,
        };
        itself || finding.children.iter().any(|child| self.shows(child))
    }

    fn finding(self, text: &mut String, finding: &Finding, form: Option<Form>, depth: usize) {
        if !self.shows(finding) {
            return;
        }
        let indent = " ".repeat(2 + 2 * depth);
        let below = format!("{indent}      ");
        let mark = self.mark(&finding.state);
        let title = match &finding.state {
            State::Skip(why) => format!("{}: {why}", finding.title),
            _ => format!("{}: {}", finding.title, finding.found),
        };
        // Wrap without the mark: its escape sequences would count as columns.
        let body = wrapped(&title, self.width, &below, &below);
        text.push_str(&indent);
        text.push_str(&mark);
        text.push_str(&body[indent.len() + 4..]);
        let fixes = matches!(finding.state, State::Fail | State::Warn);
        if fixes || self.verbose {
            self.details(text, finding, form, &below, fixes);
        }
        for child in &finding.children {
            self.finding(text, child, form, depth + 1);
        }
    }

    fn details(self, text: &mut String, finding: &Finding, form: Option<Form>, below: &str, fixes: bool) {
        let mut line = |label: &str, words: &str, is_command: bool| {
            let first = format!("{below}{label:<7}");
            // A shell that a command is pasted into would take a line end for its end.
            let width = if is_command { usize::MAX } else { self.width };
            *text += &wrapped(words, width, &first, &format!("{below}       "));
        };
        for evidence in &finding.evidence {
            line("seen", &format!("{}: {}", evidence.place, evidence.value), false);
        }
        line("why", &finding.why, false);
        if fixes {
            let is_managed = finding.fixes.iter().any(|fix| matches!(fix, Fix::Managed(_)));
            // The user of a managed VM does not edit its definition.
            let shown = |fix: &&Fix| !is_managed || !matches!(fix, Fix::Definition(_));
            for (number, fix) in finding.fixes.iter().filter(shown).enumerate() {
                let label = if number == 0 { "fix" } else { "or" };
                for (row, words) in fix_in_words(fix, form).iter().enumerate() {
                    let label = if row == 0 { label } else { "" };
                    line(label, words, matches!(fix, Fix::Command(_)));
                }
            }
        }
        if self.verbose {
            line("rule", &finding.rule, false);
            line("source", &finding.source, false);
            for source in finding.fixes.iter().flat_map(sources) {
                line("", source, false);
            }
        }
    }

    fn mark(self, state: &State) -> String {
        let (mark, code) = match state {
            State::Pass => ("ok  ", "32"),
            State::Warn => ("warn", "33"),
            State::Fail => ("FAIL", "1;31"),
            State::Skip(_) => ("skip", "2"),
        };
        if self.colour { format!("\u{1b}[{code}m{mark}\u{1b}[0m") } else { mark.to_owned() }
    }
}

/// The lines of a fix in the terms of the program that manages the VM.
pub(crate) fn managed_in_words(managed: &Managed) -> Vec<String> {
    let name = managed.manager.name();
    let changes = managed.changes.iter().map(|change| format!("{name}: {change}"));
    let without = managed.without.iter().map(|why| format!("{name} has no setting for it: {why}"));
    changes.chain(without).collect()
}

fn sources(fix: &Fix) -> &[String] {
    match fix {
        Fix::Managed(managed) => &managed.sources,
        _ => &[],
    }
}

fn fix_in_words(fix: &Fix, form: Option<Form>) -> Vec<String> {
    match fix {
        Fix::Command(command) => command.lines().map(str::to_owned).collect(),
        Fix::Advice(advice) => vec![advice.clone()],
        Fix::Managed(managed) => managed_in_words(managed),
        Fix::Definition(changes) => {
            changes.iter().map(|change| change_in_words(change, form.unwrap_or(Form::Qemu))).collect()
        }
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
