//! Figures and names as text, the same in every medium.

use exits::Change;
use experiment::prove::Difference;
pub(crate) use experiment::prove::grouped as count;
use experiment::prove::{ArmPair, Judgement};
use probe::Arms;
use probe::run::Arm;
use stats::Interval;

/// The text for an absent figure.
pub(crate) const NONE: &str = "–";

/// Cycles, rounded to whole ones: "4,720".
pub(crate) fn cycles(value: f64) -> String {
    count(value.round().max(0.0) as u64)
}

/// Percent with its sign: "-71.3", "+2.0"; a change that rounds to zero has no sign.
pub(crate) fn percent(value: f64) -> String {
    let text = format!("{value:+.1}");
    if text == "-0.0" || text == "+0.0" { "0.0".to_owned() } else { text }
}

/// An interval in percent: "-71.6 to -71.0 %".
pub(crate) fn interval(interval: Interval) -> String {
    format!("{} to {} %", percent(interval.low), percent(interval.high))
}

/// The percentage with its sign and unit, or a dash.
pub(crate) fn percent_of(difference: Option<Difference>) -> String {
    difference.map_or_else(|| NONE.to_owned(), |difference| format!("{} %", percent(difference.percent)))
}

/// The interval, or a dash.
pub(crate) fn interval_of(difference: Option<Difference>) -> String {
    difference.and_then(|difference| difference.interval).map_or_else(|| NONE.to_owned(), interval)
}

/// Percent with its unit, or a word if it cannot be given in percent.
pub(crate) fn change(change: Option<Change>) -> String {
    match change {
        Some(Change::Percent(value)) => format!("{} %", percent(value)),
        Some(Change::FromNothing) => "new".to_owned(),
        Some(Change::StillNothing) => "0.0 %".to_owned(),
        None => NONE.to_owned(),
    }
}

/// The change of exits for each operation; `None` without both arms.
pub(crate) fn change_between(exits: ArmPair<Option<u64>>, operations: ArmPair<u64>) -> Option<Change> {
    let rate = |exits: Option<u64>, operations: u64| {
        (operations > 0).then_some(())?;
        Some(exits? as f64 / operations as f64)
    };
    Some(Change::between(rate(exits.off, operations.off)?, rate(exits.on, operations.on)?))
}

/// The interval of a change of exits for each operation, from the numbers of exits only.
pub(crate) fn interval_between(exits: ArmPair<Option<u64>>, operations: ArmPair<u64>) -> String {
    let interval = exits
        .off
        .zip(exits.on)
        .and_then(|(off, on)| stats::poisson::rate_change([off, on], [operations.off, operations.on]));
    crate::compared::of_interval(interval)
}

/// The count, or a dash.
pub(crate) fn count_of(value: Option<u64>) -> String {
    value.map_or_else(|| NONE.to_owned(), count)
}

/// The rate, or a dash.
pub(crate) fn rate_of(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), rate)
}

/// The only arm; `None` if there are both.
pub(crate) fn only_arm(arms: &Arms) -> Option<Arm> {
    match arms {
        Arms::Both { .. } => None,
        Arms::OnlyOff { .. } => Some(Arm::Off),
        Arms::OnlyOn { .. } => Some(Arm::On),
    }
}

/// The arm as a word.
pub(crate) fn arm(arm: Arm) -> &'static str {
    match arm {
        Arm::Off => "off",
        Arm::On => "on",
    }
}

/// Exits for each operation: "2.002", and "<0.001" instead of a misleading zero.
pub(crate) fn rate(value: f64) -> String {
    if value > 0.0 && value < 0.0005 { "<0.001".to_owned() } else { format!("{value:.3}") }
}

/// The judgement as a label.
pub(crate) fn judgement(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::WorthIt => "Worth it",
        Judgement::Mixed => "Gives and takes",
        Judgement::Worse => "Costs more than it saves",
        Judgement::NoDifference => "No difference",
        Judgement::TooFewRuns => "Too few runs",
        Judgement::OneArm => "One arm only",
        Judgement::Contradicted => "Contradicted",
        Judgement::Nothing => "Nothing of interrupts measured",
    }
}

/// Replaces hyphens by minus signs, which are as wide as a plus.
pub(crate) fn minus(text: &str) -> String {
    text.replace('-', "−")
}

/// Shortens `text` to at most `width` characters in the middle, because names differ at their ends.
pub(crate) fn elided(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let head = kept.div_ceil(2);
    let tail: String = text.chars().skip(length - (kept - head)).collect();
    format!("{}…{tail}", text.chars().take(head).collect::<String>())
}

/// Breaks `text` into lines of at most `width` characters, at blanks, and after characters that join words in
/// names. Words are never cut.
pub(crate) fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut length = 0;
    for word in words(text) {
        let room = word.trim_end().chars().count();
        if length > 0 && length + room > width {
            lines.push(String::new());
            length = 0;
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(word);
        }
        length += word.chars().count();
    }
    lines.iter_mut().for_each(|line| line.truncate(line.trim_end().len()));
    lines
}

/// The characters of the longest word that [`folded`] keeps whole.
pub(crate) fn longest_word(text: &str) -> usize {
    words(text).map(|word| word.trim_end().chars().count()).max().unwrap_or(0)
}

/// Words, each with its final separator.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive([' ', '-', '_', '.', '/', ','])
}

/// Removes control characters that a file could send to the reader's terminal.
pub(crate) use exits::printable;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_have_a_sign_unless_they_are_nothing() {
        assert_eq!(["-71.3", "+2.0", "0.0", "0.0"], [-71.27, 2.0, 0.01, -0.01].map(percent));
    }

    #[test]
    fn small_rates_are_not_rounded_to_nothing() {
        assert_eq!(["0.000", "<0.001", "0.001", "2.000"], [0.0, 0.0001, 0.001, 2.0].map(rate));
    }

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(elided("EXTERNAL_INTERRUPT +0x4000000", 16), "EXTERNAL…4000000");
        assert_eq!(elided("HLT", 16), "HLT");
    }

    #[test]
    fn names_are_folded_between_words() {
        assert_eq!(
            folded("VM exits in all during random-read", 16),
            ["VM exits in all", "during random-", "read"]
        );
        assert_eq!(folded("EXTERNAL_INTERRUPT +0x4000000", 10), ["EXTERNAL_", "INTERRUPT", "+0x4000000"]);
        assert_eq!(folded("0xfffffffffffff000:W", 8), ["0xfffffffffffff000:W"]);
        assert_eq!(folded("HLT", 8), ["HLT"]);
        assert_eq!(longest_word("VM exits EXTERNAL_INTERRUPT"), 9);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb"), "a\u{fffd}[31mb");
    }
}
