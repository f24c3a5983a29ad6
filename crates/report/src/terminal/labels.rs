//! Lines with a label on the left, and lists of notes.

use crate::terminal::wrapped;

/// The width of the labels on the left.
const LABEL: usize = 11;

/// A line with `label` on the left and the text `said`.
pub(crate) fn line(label: &str, said: &str, width: usize) -> String {
    let first = format!("{label:LABEL$}");
    wrapped(&kept_together(said), width, &first, &" ".repeat(LABEL)).replace(NO_BREAK, " ")
}

const NO_BREAK: &str = "\u{a0}";

/// Keeps a figure and its unit on one line.
fn kept_together(text: &str) -> String {
    let is_unit = |word: &str| {
        matches!(word.trim_end_matches([',', ';', '.', ':', ')']), "ns" | "µs" | "ms" | "s" | "M/s" | "%")
    };
    let mut together = String::new();
    for word in text.split(' ') {
        if !together.is_empty() {
            let is_figure = together.ends_with(|c: char| c.is_ascii_digit());
            together += if is_figure && is_unit(word) { NO_BREAK } else { " " };
        }
        together += word;
    }
    together
}

/// Sentences as a list with a title; empty without any.
pub(crate) fn listed<S: AsRef<str>>(
    title: &str,
    sentences: impl IntoIterator<Item = S>,
    width: usize,
) -> String {
    let list = itemized(sentences, width);
    if list.is_empty() { list } else { format!("\n{title}\n\n{list}") }
}

/// Sentences as a list.
pub(crate) fn itemized<S: AsRef<str>>(sentences: impl IntoIterator<Item = S>, width: usize) -> String {
    sentences.into_iter().map(|sentence| wrapped(sentence.as_ref(), width, "  - ", "    ")).collect()
}
