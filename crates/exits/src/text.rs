//! Text from untrusted sources.

/// Tests whether a character can control the terminal or reorder the text around it: control characters, the
/// bidirectional formatting characters of Unicode (UAX #9), line and paragraph separators, and the byte order mark.
#[must_use]
pub fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
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

    #[test]
    fn names_cannot_turn_what_stands_beside_them() {
        assert_eq!(
            printable("web\u{202e}1\u{2066}\u{200f}\u{1b}[2J\n"),
            "web\u{fffd}1\u{fffd}\u{fffd}\u{fffd}[2J\u{fffd}"
        );
        assert_eq!(printable("שרת-1 👩‍💻 é"), "שרת-1 👩‍💻 é");
    }

    #[test]
    fn counts_have_groups_of_three() {
        assert_eq!(["0", "999", "1,000", "1,234,567"], [0, 999, 1000, 1_234_567].map(grouped));
    }
}
