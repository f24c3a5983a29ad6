//! Parts of terminal output that results share.

pub(crate) mod columns;
pub(crate) mod curve;
pub(crate) mod labels;

use textwrap::{Options, WordSplitter};

use crate::text::one_line;

/// The minimum width of tables, even if the terminal is narrower.
pub(crate) const NARROWEST: usize = 72;

/// The text in lines of at most `width` columns, without control characters; its own line breaks are spaces.
pub(crate) fn wrapped(text: &str, width: usize, first: &str, rest: &str) -> String {
    // Do not break names and options at hyphens, so that they can be copied.
    let options = Options::new(width)
        .word_splitter(WordSplitter::NoHyphenation)
        .initial_indent(first)
        .subsequent_indent(rest);
    let mut text = textwrap::fill(&one_line(text), options);
    text.push('\n');
    text
}

/// Lines in the style of an escape code, if `colour` is set.
pub(crate) fn emphasised(text: &str, code: &str, colour: bool) -> String {
    if colour { format!("\u{1b}[{code}m{}\u{1b}[0m\n", text.trim_end()) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_hyphens_stays_whole() {
        let text =
            "Nothing was changed: libvirt starts this VM. `exitless vm fix libvirt:prod-web-01` changes it.";
        for width in 40..100 {
            let text = wrapped(text, width, "", "");
            assert!(text.contains("libvirt:prod-web-01"), "{text}");
        }
    }
}
