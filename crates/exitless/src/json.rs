//! JSON for standard output, whose texts cannot control a terminal.

use std::io::{Result, Write};

use exits::JsonEscaper;
use serde::Serialize;

/// Writes a document in one line, and ends the line.
pub(crate) fn write(mut out: impl Write, document: &(impl ?Sized + Serialize)) -> Result<()> {
    serde_json::to_writer(JsonEscaper(&mut out), document)?;
    writeln!(out)
}

/// Writes a document with indented lines, and ends the last one.
#[expect(clippy::disallowed_methods, reason = "the writer escapes")]
pub(crate) fn write_pretty(mut out: impl Write, document: &(impl ?Sized + Serialize)) -> Result<()> {
    serde_json::to_writer_pretty(JsonEscaper(&mut out), document)?;
    writeln!(out)
}

/// A document in one line, with its end.
pub(crate) fn line(document: &(impl ?Sized + Serialize)) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write(&mut bytes, document)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::io::ErrorKind;

    fn line(document: &Value) -> String {
        String::from_utf8(super::line(document).unwrap()).unwrap()
    }

    fn pretty(document: &Value) -> String {
        let mut bytes = Vec::new();
        write_pretty(&mut bytes, document).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn names_cannot_control_a_terminal_and_are_the_same_to_a_parser() {
        let document = json!({ "a\u{9b}2J": ["\u{7f}\u{202e}ä\n\"\u{1b}", "\u{feff}"], "b\u{2028}": null });
        for text in [line(&document), pretty(&document)] {
            assert!(!text.contains(|one: char| one != '\n' && exits::is_harmful(one)), "{text:?}");
            assert!(text.contains("a\\u009b2J") && text.contains('ä'), "{text}");
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), document);
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "to compare with")]
    fn other_documents_are_written_as_usual() {
        let document = json!({ "a": [1, 2.5, "x\ty", [], {}, { "b": true }], "c": { "d": null } });
        assert_eq!(line(&document), format!("{document}\n"));
        assert_eq!(pretty(&document), serde_json::to_string_pretty(&document).unwrap() + "\n");
    }

    #[test]
    fn the_kind_of_an_error_of_the_output_is_kept() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _bytes: &[u8]) -> Result<usize> {
                Err(ErrorKind::BrokenPipe.into())
            }

            fn flush(&mut self) -> Result<()> {
                Ok(())
            }
        }
        for written in [write(Closed, &json!({})), write_pretty(Closed, &json!({}))] {
            assert_eq!(written.unwrap_err().kind(), ErrorKind::BrokenPipe);
        }
    }
}
