//! Parts of terminal output that results share.

pub(crate) mod columns;
pub(crate) mod curve;
pub(crate) mod labels;

use textwrap::Options;

use crate::text::one_line;

/// The minimum width of tables, even if the terminal is narrower.
pub(crate) const NARROWEST: usize = 72;

/// The text in lines of at most `width` columns, without control characters; its own line breaks are spaces.
pub(crate) fn wrapped(text: &str, width: usize, first: &str, rest: &str) -> String {
    let options = Options::new(width).initial_indent(first).subsequent_indent(rest);
    let mut text = textwrap::fill(&one_line(text), options);
    text.push('\n');
    text
}

/// Lines in the style of an escape code, if `colour` is set.
pub(crate) fn emphasised(text: &str, code: &str, colour: bool) -> String {
    if colour { format!("\u{1b}[{code}m{}\u{1b}[0m\n", text.trim_end()) } else { text.to_owned() }
}
