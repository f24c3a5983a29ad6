//! JSON objects as arguments of `-device`, `-blockdev`, `-object` and `-netdev`, with the place of every value.

use super::Property;
use std::ops::Range;

/// The limit of nesting: QEMU's own objects have at most four levels.
const DEPTH: usize = 32;
/// The limit of a value's name, in bytes: QEMU's longest have about 60. Every value has its whole name, so a long one
/// around many values would take their product of memory.
const LONGEST_NAME: usize = 128;

/// The values of an object; values in nested objects and lists have names with dots
/// (`iothread-vq-mapping.0.iothread`). `None` if the whole text is not an object, or a name is longer than QEMU's.
pub(super) fn properties(text: &str) -> Option<Vec<Property>> {
    let mut reader = Reader { text, at: 0, found: Vec::new() };
    reader.value(&mut String::new(), 0, 0)?;
    reader.space();
    (reader.at == text.len() && text.starts_with('{')).then_some(reader.found)
}

/// A text as JSON.
pub(in super::super) fn written(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    found: Vec<Property>,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.space();
        (self.peek() == Some(byte)).then(|| self.at += 1)
    }

    /// After a member, tests whether another follows.
    fn more(&mut self, close: u8) -> Option<bool> {
        self.space();
        let byte = self.peek()?;
        self.at += 1;
        match byte {
            b',' => Some(true),
            _ if byte == close => Some(false),
            _ => None,
        }
    }

    /// A value whose name begins at `whole`.
    fn value(&mut self, path: &mut String, whole: usize, depth: usize) -> Option<()> {
        self.space();
        let start = self.at;
        match self.peek()? {
            _ if depth > DEPTH => return None,
            b'{' => return self.object(path, depth),
            b'[' => return self.list(path, depth),
            b'"' => {
                let value = self.string()?;
                self.add(path, value, whole, start..self.at);
            }
            _ => {
                let rest = &self.text[start..];
                let length = rest.find(|one: char| !one.is_ascii_alphanumeric() && !"+-.".contains(one));
                self.at = start + length.unwrap_or(rest.len());
                let value = match &self.text[start..self.at] {
                    "" => return None,
                    "true" => "on",
                    "false" => "off",
                    other => other,
                };
                self.add(path, value.to_owned(), whole, start..self.at);
            }
        }
        Some(())
    }

    fn add(&mut self, path: &str, value: String, whole: usize, value_at: Range<usize>) {
        let whole = whole..value_at.end;
        self.found.push(Property { key: path.to_owned(), value, value_at, whole, pair: true });
    }

    fn object(&mut self, path: &mut String, depth: usize) -> Option<()> {
        self.at += 1;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Some(());
        }
        loop {
            self.space();
            let start = self.at;
            let key = self.string()?;
            self.expect(b':')?;
            self.member(path, &key, start, depth)?;
            if !self.more(b'}')? {
                return Some(());
            }
        }
    }

    fn list(&mut self, path: &mut String, depth: usize) -> Option<()> {
        self.at += 1;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Some(());
        }
        for number in 0_usize.. {
            self.space();
            self.member(path, &number.to_string(), self.at, depth)?;
            if !self.more(b']')? {
                break;
            }
        }
        Some(())
    }

    fn member(&mut self, path: &mut String, key: &str, start: usize, depth: usize) -> Option<()> {
        let length = path.len();
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
        if path.len() > LONGEST_NAME {
            return None;
        }
        self.value(path, start, depth + 1)?;
        path.truncate(length);
        Some(())
    }

    fn string(&mut self) -> Option<String> {
        let start = self.at;
        self.expect(b'"')?;
        let bytes = self.text.as_bytes();
        loop {
            match bytes.get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        serde_json::from_str(self.text.get(start..self.at)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_values_have_names_with_dots_and_places() {
        let text = r#"{"driver": "virtio-blk-pci", "iothread-vq-mapping":[{"iothread":"a\"b","vqs":[0,1]}, {}],"x":true}"#;
        let found = properties(text).expect("is an object");
        let pairs: Vec<_> = found.iter().map(|one| (one.key.as_str(), one.value.as_str())).collect();
        let expected = [
            ("driver", "virtio-blk-pci"),
            ("iothread-vq-mapping.0.iothread", "a\"b"),
            ("iothread-vq-mapping.0.vqs.0", "0"),
            ("iothread-vq-mapping.0.vqs.1", "1"),
            ("x", "on"),
        ];
        assert_eq!(pairs, expected);
        assert_eq!(&text[found[0].value_at.clone()], "\"virtio-blk-pci\"");
        assert_eq!(&text[found[4].whole.clone()], "\"x\":true");
    }

    #[test]
    fn what_is_no_object_gives_nothing() {
        for text in [
            "{",
            "{\"a\"}",
            "{\"a\":}",
            "{} x",
            "{\"a\":1,}",
            "[]",
            "{\"a\":\"",
            "{\"a\":\"\\",
            "{\"a\":\"\\u12\"}",
        ] {
            assert_eq!(properties(text), None, "{text}");
        }
        assert_eq!(properties(&"{\"a\":".repeat(100_000)), None);
        assert_eq!(properties("{}"), Some(Vec::new()));
        let named = |length: usize| properties(&format!("{{\"{}\":{{\"a\":1}}}}", "k".repeat(length - 2)));
        assert!(named(LONGEST_NAME).is_some() && named(LONGEST_NAME + 1).is_none());
    }
}
