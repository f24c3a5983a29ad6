//! Names and sentences: escaped, shortened or wrapped, the same in every medium.

/// Removes control characters, with which a file could control the reader's terminal.
pub(crate) use exits::printable;
pub(crate) use pages::format::minus;
use textwrap::core::display_width;

/// Text from outside as one line, in which line breaks and tabs are spaces.
pub(crate) fn one_line(text: &str) -> String {
    printable(&text.replace(['\n', '\t'], " "))
}

/// Text from outside as one line of Markdown, without tables, links, images and HTML.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::new();
    for character in one_line(text).chars() {
        match character {
            '<' => plain.push_str("&lt;"),
            '|' | '[' | '\\' => plain.extend(['\\', character]),
            _ => plain.push(character),
        }
    }
    plain
}

/// Shortens `text` to at most `width` columns in the middle, because names differ at their ends.
pub(crate) fn elided(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let head = fitting(text.chars(), kept.div_ceil(2));
    let tail = fitting(text.chars().rev(), kept - display_width(&head));
    format!("{head}…{}", tail.chars().rev().collect::<String>())
}

/// Shortens `text` to at most `width` columns at its end.
pub(crate) fn elided_at_end(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    format!("{}…", fitting(text.chars(), width.saturating_sub(1)).trim_end())
}

/// The first characters that fit into `width` columns.
fn fitting(characters: impl Iterator<Item = char>, width: usize) -> String {
    let mut taken = 0;
    let fits = |character: &char| {
        taken += display_width(character.encode_utf8(&mut [0; 4]));
        taken <= width
    };
    characters.take_while(fits).collect()
}

/// Breaks `text` into lines of at most `width` columns, at spaces and after separators within names. Words are never
/// cut.
pub(crate) fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut length = 0;
    for word in words(text) {
        let room = display_width(word.trim_end());
        if length > 0 && length + room > width {
            lines.push(String::new());
            length = 0;
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(word);
        }
        length += display_width(word);
    }
    lines.iter_mut().for_each(|line| line.truncate(line.trim_end().len()));
    lines
}

/// The width of the longest word, which [`folded`] does not break.
pub(crate) fn longest_word(text: &str) -> usize {
    words(text).map(|word| display_width(word.trim_end())).max().unwrap_or(0)
}

/// Words, each with its final separator.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive([' ', '-', '_', '.', '/', ','])
}

/// The text with its first letter in upper case.
pub(crate) fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + characters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(elided("EXTERNAL_INTERRUPT +0x4000000", 16), "EXTERNAL…4000000");
        assert_eq!(elided("HLT", 16), "HLT");
    }

    #[test]
    fn shortened_text_is_measured_in_columns() {
        assert_eq!(elided("東日日日日日日日日京", 15), "東日日…日日日京");
        assert_eq!(elided_at_end("東日日日日", 8), "東日日…");
        assert_eq!(elided_at_end("one two", 5), "one…");
        // A combining mark takes no column.
        assert_eq!(
            (elided("we\u{301}b", 3), elided_at_end("we\u{301}b", 3)),
            ("we\u{301}b".to_owned(), "we\u{301}b".to_owned())
        );
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
        // These characters take two columns each.
        assert_eq!(folded("日本-日本", 8), ["日本-", "日本"]);
        assert_eq!(longest_word("日本-日本"), 5);
    }

    #[test]
    fn text_from_outside_is_one_line_without_syntax() {
        assert_eq!(one_line("Is it\nfaster?\u{1b}"), "Is it faster?\u{fffd}");
        assert_eq!(plain("a|b\n![c](d) <e> \\["), "a\\|b !\\[c](d) &lt;e> \\\\\\[");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb"), "a\u{fffd}[31mb");
    }
}
