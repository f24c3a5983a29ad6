//! Results for spreadsheets: comma-separated values (RFC 4180) with one line of titles. Titles do not depend on
//! the options; fields that a row does not have are empty.

use std::fmt::{Display, Write};

use exits::csv_cell;
use serde::Serialize;
use serde_json::Value;

/// A line of fields. Fields with special characters are quoted.
#[derive(Default)]
pub(crate) struct Line {
    text: String,
    fields: usize,
}

impl Line {
    pub(crate) fn field(&mut self, value: impl Display) -> &mut Self {
        if self.fields > 0 {
            self.text.push(',');
        }
        self.fields += 1;
        // Names come from the recording, and the text may go to a terminal.
        let value = csv_cell(&value.to_string());
        if value.contains([',', '"']) {
            // Writing to a String cannot fail.
            let _ = write!(self.text, "\"{}\"", value.replace('"', "\"\""));
        } else {
            self.text += &value;
        }
        self
    }

    pub(crate) fn optional(&mut self, value: Option<impl Display>) -> &mut Self {
        match value {
            Some(value) => self.field(value),
            None => self.field(""),
        }
    }

    /// A value by its name in JSON.
    pub(crate) fn word(&mut self, value: Option<&impl Serialize>) -> &mut Self {
        let name = value.and_then(|value| serde_json::to_value(value).ok());
        self.field(name.as_ref().and_then(Value::as_str).unwrap_or_default())
    }

    pub(crate) fn end(self, text: &mut String) {
        text.push_str(&self.text);
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_taken_apart_is_quoted() {
        let mut line = Line::default();
        line.field("a,b").field("say \"x\"").optional(None::<u32>).field("two\nlines").field(1.5);
        let mut text = String::new();
        line.end(&mut text);
        assert_eq!(text, "\"a,b\",\"say \"\"x\"\"\",,two\u{fffd}lines,1.5\n");
    }

    #[test]
    fn names_are_no_formulas() {
        let mut line = Line::default();
        for name in ["=1+1", "+A1", "-A1", "@SUM(A1)", "-1.5", "web=1", "=cmd|'/C calc'!A0,\"x"] {
            line.field(name);
        }
        let mut text = String::new();
        line.end(&mut text);
        assert_eq!(text, "'=1+1,'+A1,'-A1,'@SUM(A1),-1.5,web=1,\"'=cmd|'/C calc'!A0,\"\"x\"\n");
    }
}
