//! The words of xl.cfg (`tools/libs/util/libxlu_cfg_l.l` of Xen 4.20).

/// A word's kind, with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// `[a-z][._0-9a-z]*`
    Name(String),
    /// `[0-9][0-9a-fx]*`, or a string in quotation marks with its escapes replaced.
    Atom(String),
    /// `[`
    Open,
    /// `]`
    Close,
    /// `,`
    Comma,
    /// `=`
    Set,
    /// `+=`
    Add,
    /// `;`
    Semicolon,
    /// The end of a line, with the comment before it.
    Newline,
    /// Anything else, up to the next blank.
    Wrong,
}

/// A word with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
    /// Its line, from 1.
    pub(super) line: usize,
}

/// Reads a text word by word.
#[derive(Debug, Clone)]
pub(super) struct Words<'t> {
    bytes: &'t [u8],
    at: usize,
    line: usize,
}

impl<'t> Words<'t> {
    pub(super) fn of(bytes: &'t [u8]) -> Self {
        Self { bytes, at: 0, line: 1 }
    }

    /// The number of bytes from here that satisfy the predicate.
    fn run(&self, belongs: impl Fn(u8) -> bool) -> usize {
        self.bytes[self.at..].iter().take_while(|&&byte| belongs(byte)).count()
    }

    fn text(&self, length: usize) -> String {
        String::from_utf8_lossy(&self.bytes[self.at..self.at + length]).into_owned()
    }

    /// A string's length with both quotation marks; `None` if it does not end on its line.
    fn quoted(&self, mark: u8) -> Option<usize> {
        let mut escaped = false;
        for (length, &byte) in self.bytes[self.at..].iter().enumerate().skip(1) {
            match byte {
                b'\n' if !escaped => return None,
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                byte if byte == mark => return Some(length + 1),
                _ => {}
            }
        }
        None
    }
}

impl Iterator for Words<'_> {
    type Item = Word;

    fn next(&mut self) -> Option<Word> {
        self.at += self.run(|byte| byte == b' ' || byte == b'\t');
        let first = *self.bytes.get(self.at)?;
        let (kind, length) = match first {
            b'a'..=b'z' => {
                let name =
                    |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._".contains(&byte);
                let length = self.run(name);
                (Kind::Name(self.text(length)), length)
            }
            b'0'..=b'9' => {
                let length = self.run(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'x'));
                (Kind::Atom(self.text(length)), length)
            }
            b'[' => (Kind::Open, 1),
            b']' => (Kind::Close, 1),
            b',' => (Kind::Comma, 1),
            b'=' => (Kind::Set, 1),
            b'+' if self.bytes.get(self.at + 1) == Some(&b'=') => (Kind::Add, 2),
            b';' => (Kind::Semicolon, 1),
            b'\n' => (Kind::Newline, 1),
            b'#' => {
                let comment = self.run(|byte| byte != b'\n');
                (Kind::Newline, (comment + 1).min(self.bytes.len() - self.at))
            }
            b'\'' | b'"' => match self.quoted(first) {
                Some(length) => {
                    let inner = &self.bytes[self.at + 1..self.at + length - 1];
                    (unescaped(inner).map_or(Kind::Wrong, Kind::Atom), length)
                }
                None => (Kind::Wrong, self.run(|byte| byte != b'\n')),
            },
            _ => (Kind::Wrong, self.run(|byte| !b" \t\n".contains(&byte)).max(1)),
        };
        let word = Word { kind, start: self.at, end: self.at + length, line: self.line };
        self.line += self.bytes[word.start..word.end].iter().filter(|&&byte| byte == b'\n').count();
        self.at = word.end;
        Some(word)
    }
}

/// A string without its escapes (`xlu__cfgl_dequote` in `libxlu_cfg.c`); `None` for one that `xl` refuses.
/// Numeric escapes are refused here, because Xen 4.20 inserts nothing for them.
fn unescaped(inner: &[u8]) -> Option<String> {
    let mut text = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        text.push(match byte {
            b'\\' => match bytes.next()? {
                mark @ (b'"' | b'\'' | b'\\') => *mark,
                b'a' => 0x07,
                b'b' => 0x08,
                b'f' => 0x0c,
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'v' => 0x0b,
                _ => return None,
            },
            other => other,
        });
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}
