//! JSON for standard output, whose texts cannot control a terminal.

use std::io::Write;

use exits::JsonEscaper;
use serde::Serialize;

/// Writes a document in one line.
pub(crate) fn write(out: impl Write, document: &(impl ?Sized + Serialize)) -> serde_json::Result<()> {
    serde_json::to_writer(JsonEscaper(out), document)
}

/// Writes a document with indented lines.
#[expect(clippy::disallowed_methods, reason = "the writer escapes")]
pub(crate) fn write_pretty(out: impl Write, document: &(impl ?Sized + Serialize)) -> serde_json::Result<()> {
    serde_json::to_writer_pretty(JsonEscaper(out), document)
}

/// A document in one line.
pub(crate) fn line(document: &(impl ?Sized + Serialize)) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    write(&mut bytes, document)?;
    Ok(String::from_utf8(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pretty(document: &Value) -> String {
        let mut bytes = Vec::new();
        write_pretty(&mut bytes, document).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn names_cannot_control_a_terminal_and_are_the_same_to_a_parser() {
        let document = json!({ "a\u{9b}2J": ["\u{7f}\u{202e}ä\n\"\u{1b}", "\u{feff}"], "b\u{2028}": null });
        for text in [line(&document).unwrap(), pretty(&document)] {
            assert!(!text.contains(|one: char| one != '\n' && exits::is_harmful(one)), "{text:?}");
            assert!(text.contains("a\\u009b2J") && text.contains('ä'), "{text}");
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), document);
        }
    }

    #[test]
    fn other_documents_are_written_as_usual() {
        let document = json!({ "a": [1, 2.5, "x\ty", [], {}, { "b": true }], "c": { "d": null } });
        assert_eq!(line(&document).unwrap(), document.to_string());
        assert_eq!(pretty(&document), serde_json::to_string_pretty(&document).unwrap());
    }
}
