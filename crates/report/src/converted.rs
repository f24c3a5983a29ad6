//! Losses and notes of a converted definition.

use domain::convert::Converted;

use crate::terminal::NARROWEST;
use crate::terminal::labels::itemized;

/// Notes, arguments that were passed through, and losses; empty without any.
///
/// No line is wider than `width` columns if `width` is at least 80.
#[must_use]
pub fn terminal(converted: &Converted, width: usize) -> String {
    let width = width.max(NARROWEST);
    let mut text = String::new();
    let mut part = |title: &str, lines: &[String]| {
        if !lines.is_empty() {
            text += &format!("{}{title}\n", if text.is_empty() { "" } else { "\n" });
            text += &itemized(lines, width);
        }
    };
    part("Notes", &converted.notes);
    part(
        "Passed through in <qemu:commandline>, for libvirt has no element for it",
        &converted.passed_through,
    );
    let losses: Vec<String> =
        converted.losses.iter().map(|loss| format!("{}: {}", loss.what, loss.why)).collect();
    part("Not in the new text", &losses);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::convert::Loss;

    #[test]
    fn each_part_is_told_when_there_is_something_in_it() {
        assert_eq!(terminal(&Converted::default(), 80), "");
        let whole = Converted {
            passed_through: vec!["-device edu".into()],
            losses: vec![Loss { what: "seclabel\u{1b}[2J".into(), why: "libvirt sets it.".into() }],
            ..Converted::default()
        };
        let text = terminal(&whole, 80);
        assert!(text.contains("  - -device edu\n\nNot in the new text\n  - seclabel"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }
}
