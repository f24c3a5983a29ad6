//! A definition fixed by rules: the diff, the rules of its changes, and the remaining findings.

use std::fmt::Write as _;

use doctor::Tally;
use doctor::fix::{Fixed, Left};
use domain::Form;

use crate::findings::change::change_in_words;
use crate::findings::tree::findings_summary;
use crate::fixed::lines::{in_lines, unified_diff};
use crate::terminal::{NARROWEST, wrapped};
use crate::text::printable;

/// A fixed definition and the settings of its display.
#[derive(Debug, Clone, Copy)]
pub struct FixedView<'a> {
    /// The name of the definition.
    pub name: &'a str,
    /// Its form.
    pub form: Form,
    /// The old text.
    pub old: &'a [u8],
    /// The fixed definition.
    pub fixed: &'a Fixed,
    /// The state of the new text, or the next step for the reader: a sentence.
    pub ending: &'a str,
    /// Columns of the terminal. The diff's lines are not wrapped.
    pub width: usize,
    /// Escape sequences colour the diff.
    pub colour: bool,
}

/// The diff, the rules with their changes, the remaining findings with reasons, and the ending.
#[must_use]
pub fn terminal(view: FixedView<'_>) -> String {
    let width = view.width.max(NARROWEST);
    let FixedView { form, fixed, .. } = view;
    let mut text = diff(&view);
    let name_width = fixed.plan.rules.iter().map(|rule| rule.rule.len()).max().unwrap_or(0);
    if !fixed.plan.rules.is_empty() {
        text += "\nChanges\n\n";
        for rule in &fixed.plan.rules {
            for (number, change) in rule.changes.iter().enumerate() {
                let name = if number == 0 { rule.rule.as_str() } else { "" };
                let first = format!("  {name:<name_width$}  ");
                let rest = " ".repeat(first.len());
                text += &wrapped(&change_in_words(change, form), width, &first, &rest);
            }
        }
    }
    if view.old.contains(&0) && !fixed.plan.changes.is_empty() {
        let _ = write!(text, "\nCommand line\n\n{}", lines(&in_lines(&fixed.bytes)));
    }
    text += &left(fixed, width);
    for (heading, sentences) in [
        ("Refused", fixed.refused.iter().map(|refusal| &refusal.reason).collect::<Vec<_>>()),
        ("Notes", fixed.notes.iter().collect()),
    ] {
        if !sentences.is_empty() {
            let _ = write!(text, "\n{heading}\n\n");
            for sentence in sentences {
                text += &wrapped(sentence, width, "  - ", "    ");
            }
        }
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text += &wrapped(view.ending, width, "", "");
    let tally = Tally::of(fixed.after.iter().flat_map(|section| &section.findings));
    let remain = format!("What remains: {}.", findings_summary(tally));
    text += &wrapped(&remain, width, "", "");
    text
}

fn left(fixed: &Fixed, width: usize) -> String {
    let mut text = String::new();
    for (why, words) in [
        (Left::GuestFollows, "the guest has to follow; --rule NAME or --all makes the change"),
        (Left::Contradicts, "another rule's change contradicts"),
        (Left::Advice, "for people; see `exitless vm lint`"),
    ] {
        let rules: Vec<_> =
            fixed.plan.left.iter().filter(|left| left.why == why).map(|left| left.rule.as_str()).collect();
        if !rules.is_empty() {
            let sentence = format!("{}: {words}", rules.join(", "));
            text += &wrapped(&sentence, width, "  - ", "    ");
        }
    }
    if text.is_empty() { text } else { format!("\nLeft\n\n{text}") }
}

fn diff(view: &FixedView<'_>) -> String {
    let diff = unified_diff(view.name, &in_lines(view.old), &in_lines(&view.fixed.bytes));
    let lines = lines(&diff);
    if !view.colour {
        return lines;
    }
    let coloured = |line: &str| {
        let code = match line.as_bytes().first() {
            Some(b'+') => "32",
            Some(b'-') => "31",
            Some(b'@') => "36",
            _ => return format!("{line}\n"),
        };
        format!("\u{1b}[{code}m{line}\u{1b}[0m\n")
    };
    lines.lines().map(coloured).collect()
}

/// Lines without control characters; tabs become blanks.
fn lines(text: &str) -> String {
    text.lines().map(|line| printable(&line.replace('\t', "    ")) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use doctor::fix::{Chosen, fix};
    use doctor::lint::HostSide;
    use domain::{NoFiles, Text};
    use exits::Isa;

    const XML: &str = include_str!("domain.xml");

    fn view(chosen: &Chosen, show: impl Fn(FixedView<'_>) -> String) -> String {
        let text = Text::new("web.xml", XML);
        let host = HostSide::of_vendor(Isa::Svm);
        let fixed = fix(&text, Form::Libvirt, &NoFiles, &host, chosen).unwrap();
        show(FixedView {
            name: "web.xml",
            form: Form::Libvirt,
            old: XML.as_bytes(),
            fixed: &fixed,
            ending: "Nothing was written; --apply writes it.",
            width: 80,
            colour: false,
        })
    }

    #[test]
    fn the_diff_the_rules_and_what_is_left() {
        insta::assert_snapshot!(view(&Chosen::Safe, terminal));
    }

    #[test]
    fn the_same_for_programs() {
        let said = view(&Chosen::Safe, |view| {
            let document = crate::fixed::json(view.name, view.old, view.fixed, false);
            serde_json::to_string_pretty(&document).unwrap()
        });
        insta::assert_snapshot!(said);
    }

    #[test]
    fn colour_adds_escape_sequences_alone() {
        let plain = view(&Chosen::All, terminal);
        let coloured = view(&Chosen::All, |view| terminal(FixedView { colour: true, ..view }));
        let stripped = ["\u{1b}[32m", "\u{1b}[31m", "\u{1b}[36m", "\u{1b}[0m"];
        let stripped = stripped.iter().fold(coloured.clone(), |text, code| text.replace(code, ""));
        assert_ne!(coloured, plain);
        assert_eq!(stripped, plain);
    }
}
