//! Text from untrusted sources.

/// Tests whether a character can control the terminal, reorder the text around it or make a page unreadable: control
/// characters, the bidirectional formatting characters of Unicode (UAX #9), line and paragraph separators, the byte order
/// mark, and the two noncharacters that XML does not allow even as references (XML 1.0, 2.2).
#[must_use]
pub fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
                | '\u{feff}'
                | '\u{fffe}'..='\u{ffff}'
        )
}

/// Replaces each harmful character by the replacement character.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|character| if is_harmful(character) { '\u{fffd}' } else { character }).collect()
}

/// A text for a cell of CSV, without control characters. A spreadsheet would evaluate a text that begins like a formula;
/// unless it is a number, it gets a `'` in front.
#[must_use]
pub fn csv_cell(text: &str) -> String {
    let mut cell = printable(text);
    if cell.starts_with(['=', '+', '-', '@']) && cell.parse::<f64>().is_err() {
        cell.insert(0, '\'');
    }
    cell
}

/// A number with its noun: "1 exit", "34592 exits".
#[must_use]
pub fn counted(number: u64, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// A number with its digits in groups: "12,345".
#[must_use]
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// An error with its causes on one line, "a: b: c". A cause that the text has already is left out: some libraries repeat it
/// in their message.
#[must_use]
pub fn with_causes(error: &dyn std::error::Error) -> String {
    joined(error, |text, cause| format!("{text}: {cause}"))
}

/// As [`with_causes`], but "a (b) (c)", for the end of a sentence.
#[must_use]
pub fn with_causes_in_brackets(error: &dyn std::error::Error) -> String {
    joined(error, |text, cause| format!("{text} ({cause})"))
}

fn joined(error: &dyn std::error::Error, join: impl Fn(&str, &str) -> String) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) { text } else { join(&text, &cause) }
    })
}

/// The word that agrees with a number: "1 has", "0 have".
#[must_use]
pub fn agree<'a>(number: u64, of_one: &'a str, of_others: &'a str) -> &'a str {
    if number == 1 { of_one } else { of_others }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "exit")), ["0 exits", "1 exit", "2 exits"]);
        assert_eq!([0, 1, 2].map(|number| agree(number, "has", "have")), ["have", "has", "have"]);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Told(&'static str, #[source] Option<Box<Told>>);

    #[test]
    fn errors_are_told_with_all_causes_and_each_once() {
        let caused = |text, cause| Told(text, Some(Box::new(cause)));
        let error =
            caused("cannot start", caused("cannot open disk: no such file", Told("no such file", None)));
        assert_eq!(with_causes(&error), "cannot start: cannot open disk: no such file");
        assert_eq!(with_causes_in_brackets(&error), "cannot start (cannot open disk: no such file)");
        let error = caused("cannot start", caused("cannot open disk", Told("no such file", None)));
        assert_eq!(with_causes(&error), "cannot start: cannot open disk: no such file");
        assert_eq!(with_causes_in_brackets(&error), "cannot start (cannot open disk) (no such file)");
        assert_eq!(with_causes(&Told("alone", None)), "alone");
    }

    #[test]
    fn names_cannot_turn_what_stands_beside_them() {
        assert_eq!(
            printable("web\u{202e}1\u{2066}\u{200f}\u{1b}[2J\n"),
            "web\u{fffd}1\u{fffd}\u{fffd}\u{fffd}[2J\u{fffd}"
        );
        assert_eq!(printable("\u{feff}a\u{fffe}b\u{ffff}"), "\u{fffd}a\u{fffd}b\u{fffd}");
        assert_eq!(printable("שרת-1 👩‍💻 é"), "שרת-1 👩‍💻 é");
    }

    #[test]
    fn counts_have_groups_of_three() {
        assert_eq!(["0", "999", "1,000", "1,234,567"], [0, 999, 1000, 1_234_567].map(grouped));
    }
}
