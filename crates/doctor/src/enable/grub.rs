//! The settings of grub-mkconfig, which are shell assignments.

use super::words::{self, WordChange};
use std::ops::Range;

/// An assignment whose value is plain text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assignment {
    /// The text between the quotes, or the bare word.
    pub(super) value: Range<usize>,
    /// The quote, if any.
    quote: Option<char>,
    /// True if it replaces the earlier value: it is not a `+=`, and uses no variable.
    replaces: bool,
}

/// All assignments of a variable in a file, in order. `Err` has one that is more than plain text, or that is in a branch and
/// so may not be executed.
fn assignments(text: &str, variable: &str) -> Result<Vec<Assignment>, String> {
    let mut found = Vec::new();
    let mut begin = 0;
    let mut depth = 0_usize;
    for line in text.split_inclusive('\n') {
        let start = begin;
        begin += line.len();
        match line.split(|end: char| end.is_whitespace() || end == ';').find(|word| !word.is_empty()) {
            Some("if" | "case" | "for" | "while" | "until" | "{") => depth += 1,
            Some("fi" | "esac" | "done" | "}") => depth = depth.saturating_sub(1),
            _ => {}
        }
        let trimmed = line.trim_start();
        let rest = trimmed.strip_prefix("export ").map_or(trimmed, str::trim_start);
        let Some(rest) = rest.strip_prefix(variable) else { continue };
        let (adds, rest) = rest.strip_prefix('+').map_or((false, rest), |rest| (true, rest));
        let Some(value) = rest.strip_prefix('=') else { continue };
        let at = start + line.len() - value.len();
        let value = value.trim_end_matches('\n');
        let one = plain(value, at).filter(|_| depth == 0);
        let mut one = one.ok_or_else(|| line.trim().to_owned())?;
        // A variable in the value may contain the earlier value.
        one.replaces = !adds && (one.quote == Some('\'') || !text[one.value.clone()].contains('$'));
        found.push(one);
    }
    Ok(found)
}

/// The effective assignments of a variable, with the indices of their files. `files` is in the order of reading. `Err` is
/// that of [`assignments`].
pub(super) fn in_force(
    files: &[(String, String)],
    variable: &str,
) -> Result<Vec<(usize, Assignment)>, String> {
    let mut all = Vec::new();
    for (number, (_, text)) in files.iter().enumerate() {
        all.extend(assignments(text, variable)?.into_iter().map(|one| (number, one)));
    }
    let first = all.iter().rposition(|(_, one)| one.replaces).unwrap_or_default();
    Ok(all.split_off(first))
}

fn plain(value: &str, at: usize) -> Option<Assignment> {
    let quote = value.chars().next().filter(|first| ['"', '\''].contains(first));
    let (inner, rest) = match quote {
        Some(quote) => value[1..].split_once(quote)?,
        None => value.split_at(value.find(char::is_whitespace).unwrap_or(value.len())),
    };
    let ends =
        rest.trim().is_empty() || rest.trim_start().starts_with('#') && rest.starts_with(char::is_whitespace);
    // A command substitution may add words that are not visible here, and an escape may hide the end of the
    // value. A plain variable cannot hide the end.
    let worked_out = quote != Some('\'') && (inner.contains(['`', '\\']) || inner.contains("$("));
    let start = at + usize::from(quote.is_some());
    (ends && !worked_out).then(|| Assignment { value: start..start + inner.len(), quote, replaces: true })
}

/// The file with changes made in one assignment; `Err` if the assignment's quoting does not allow them.
pub(super) fn changed(text: &str, assignment: &Assignment, changes: &[WordChange]) -> Result<String, String> {
    let old = &text[assignment.value.clone()];
    let new = words::changed(old, changes);
    let forbidden: &[char] = if assignment.quote == Some('\'') { &['\''] } else { &['"', '$', '`', '\\'] };
    if changes.iter().filter_map(|change| change.new.as_ref()).any(|word| word.contains(forbidden)) {
        return Err("a word with quotes cannot be written there".to_owned());
    }
    let mut whole = text.to_owned();
    let quoted = if assignment.quote.is_none() && new.contains(char::is_whitespace) {
        format!("\"{new}\"")
    } else {
        new
    };
    whole.replace_range(assignment.value.clone(), &quoted);
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(text: &str, variable: &str, new: &str) -> String {
        let all = assignments(text, variable).unwrap();
        changed(text, all.last().unwrap(), &[WordChange::add(new)]).unwrap()
    }

    #[test]
    fn the_last_assignment_gets_the_word_and_the_rest_stays() {
        let text = "# GRUB_CMDLINE_LINUX=\"x\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX=\"a\" # why\n \
            export GRUB_CMDLINE_LINUX='b  c'\nGRUB_TIMEOUT=5";
        let expected = text.replace("'b  c'", "'b  c d=1'");
        assert_eq!(change(text, "GRUB_CMDLINE_LINUX", "d=1"), expected);
        assert_eq!(change("A=\n", "A", "d=1"), "A=d=1\n");
        assert_eq!(change("A=quiet\n", "A", "d=1"), "A=\"quiet d=1\"\n");
        assert_eq!(change("A=\"$A x\"\n", "A", "d=1"), "A=\"$A x d=1\"\n");
        assert_eq!(change("A+=\" x\"\n", "A", "d=1"), "A+=\" x d=1\"\n");
    }

    #[test]
    fn an_assignment_hides_those_before_it_unless_it_takes_their_value() {
        for (text, counts) in [
            ("A=1\nA=2\n", 1),
            ("A=1\nA+=2\n", 2),
            ("A=1\nA=\"2 $A\"\nexport A=\"${A} 3\"\n", 3),
            ("A=1\nA='$A 2'\n", 1),
            ("A=1\nA=2\nA+=3\n", 2),
            ("OLD=\"$A\"\nA=\"$OLD 2\"\n", 2),
        ] {
            let files = [("a".to_owned(), "A=0\n".to_owned()), ("b".to_owned(), text.to_owned())];
            let found = in_force(&files, "A").unwrap();
            assert_eq!(found.len(), counts, "{text}");
            assert_eq!(found[0].0, usize::from(!text.starts_with("OLD")), "{text}");
        }
    }

    #[test]
    fn what_a_shell_works_out_is_named() {
        let branch = "if [ -c /dev/ttyS9 ]; then\n A=x\nfi\n";
        for text in ["A=\"$(cat x)\"\n", "A=\"a\\\n b\"\n", "A=\"never closed\n", "A='a'b\n", branch] {
            assert!(assignments(text, "A").is_err(), "{text}");
        }
        assert_eq!(assignments("if x\nthen B=2\nfi\nA=1\n", "A").unwrap().len(), 1);
        assert_eq!(assignments("AB=1\nB=A=1\n", "A").unwrap(), []);
    }
}
