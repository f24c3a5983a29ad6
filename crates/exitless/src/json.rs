//! JSON for standard output, whose texts cannot control a terminal.

use std::io::{Result, Write};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

/// Writes a document in one line.
pub(crate) fn write(out: impl Write, document: &(impl ?Sized + Serialize)) -> serde_json::Result<()> {
    document.serialize(&mut Serializer::with_formatter(out, Harmless(CompactFormatter)))
}

/// Writes a document with indented lines.
pub(crate) fn write_pretty(out: impl Write, document: &(impl ?Sized + Serialize)) -> serde_json::Result<()> {
    document.serialize(&mut Serializer::with_formatter(out, Harmless(PrettyFormatter::new())))
}

/// A document in one line.
pub(crate) fn line(document: &(impl ?Sized + Serialize)) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    write(&mut bytes, document)?;
    Ok(String::from_utf8(bytes)?)
}

/// Escapes the harmful characters that JSON allows in texts, for example DEL, C1 controls and direction marks. To every
/// parser the document is the same.
struct Harmless<F>(F);

impl<F: Formatter> Formatter for Harmless<F> {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> Result<()> {
        // Most texts are plain, and `serde_json` has escaped the controls below the space.
        if fragment.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return writer.write_all(fragment.as_bytes());
        }
        let mut rest = fragment;
        while let Some((at, harmful)) = rest.char_indices().find(|&(_, one)| exits::is_harmful(one)) {
            writer.write_all(&rest.as_bytes()[..at])?;
            // All have four digits.
            write!(writer, "\\u{:04x}", u32::from(harmful))?;
            rest = &rest[at + harmful.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.0.begin_array(writer)
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.0.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        self.0.begin_array_value(writer, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.0.end_array_value(writer)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.0.end_object_value(writer)
    }
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
