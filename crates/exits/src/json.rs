//! JSON for a terminal.

use std::io::{Error, ErrorKind, Result, Write};

use crate::is_harmful;

/// A writer of JSON that escapes the harmful characters that JSON allows in texts, for example DEL, C1 controls and
/// direction marks. To every parser the document is the same.
///
/// It is for `serde_json`, which writes whole characters; a buffer in between may cut them.
#[derive(Debug)]
pub struct JsonEscaper<W>(pub W);

impl<W: Write> Write for JsonEscaper<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        // Most fragments are plain.
        if bytes.iter().all(|byte| matches!(byte, b'\n' | b' '..=b'~')) {
            return self.0.write(bytes);
        }
        let mut rest =
            std::str::from_utf8(bytes).map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
        // Line ends are only between texts: `serde_json` has escaped those in texts, as all controls below the space.
        while let Some((at, harmful)) = rest.char_indices().find(|&(_, one)| one != '\n' && is_harmful(one)) {
            self.0.write_all(&rest.as_bytes()[..at])?;
            // All have four digits.
            write!(self.0, "\\u{:04x}", u32::from(harmful))?;
            rest = &rest[at + harmful.len_utf8()..];
        }
        self.0.write_all(rest.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmful_characters_are_escaped_and_half_a_character_is_an_error() {
        let mut escaper = JsonEscaper(Vec::new());
        escaper.write_all("{\n\"\u{9b}é\u{7f}\u{feff}\": \"\u{202e}\u{ffff}\"}".as_bytes()).unwrap();
        assert_eq!(escaper.0, "{\n\"\\u009bé\\u007f\\ufeff\": \"\\u202e\\uffff\"}".as_bytes());
        let error = escaper.write_all(&"é".as_bytes()[..1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}
