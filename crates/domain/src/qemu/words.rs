//! The words of a statement, in the syntax of a POSIX shell, a libvirt log or a systemd unit.

use super::argument::{Argument, Quote};

/// A token.
#[derive(Debug)]
pub(super) enum Token {
    /// A word.
    Word(Argument),
    /// The end of a line without a continuation.
    LineEnd,
    /// `;`, `&`, `|`, `(` or `)`, which separate commands in a shell.
    Operator(u8),
    /// A construct that is not closed.
    Unclosed {
        /// The opened construct.
        what: &'static str,
        /// The line.
        line: usize,
    },
}

/// Reads words in turn.
#[derive(Debug, Clone)]
pub(super) struct Words<'a> {
    bytes: &'a [u8],
    /// The next byte.
    pub(super) at: usize,
    /// Its line, from 1.
    pub(super) line: usize,
}

impl<'a> Words<'a> {
    /// Words from a byte on, which is in this line.
    pub(super) const fn new(bytes: &'a [u8], at: usize, line: usize) -> Self {
        Self { bytes, at, line }
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Skips bytes.
    fn skip(&mut self, count: usize) {
        let end = (self.at + count).min(self.bytes.len());
        self.line += self.bytes[self.at..end].iter().filter(|&&byte| byte == b'\n').count();
        self.at = end;
    }

    /// The length of a line continuation at this position, 0 if there is none.
    fn continuation(&self) -> usize {
        match self.rest() {
            [b'\\', b'\n', ..] => 2,
            [b'\\', b'\r', b'\n', ..] => 3,
            _ => 0,
        }
    }

    /// Skips blanks, line ends and comments.
    pub(super) fn skip_to_word(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => self.skip(1),
                b'#' => self.skip_comment(),
                _ => break,
            }
        }
    }

    fn skip_comment(&mut self) {
        self.at += self.rest().iter().take_while(|&&byte| byte != b'\n').count();
    }

    /// Tests whether an option follows directly.
    pub(super) fn begins_with_option(&self) -> bool {
        let rest = self.rest();
        let rest = rest.strip_prefix(b"'").or_else(|| rest.strip_prefix(b"\"")).unwrap_or(rest);
        matches!(rest, [b'-', next, ..] if next.is_ascii_alphabetic())
            || matches!(rest, [b'-', b'-', next, ..] if next.is_ascii_alphabetic())
    }

    /// The rest of the line as one argument; `None` if it has quotation marks or a continuation.
    pub(super) fn whole_line(&mut self) -> Option<Argument> {
        let line = self.rest().split(|&byte| byte == b'\n').next()?.trim_ascii_end();
        if line.is_empty() || line.iter().any(|byte| b"'\"`$".contains(byte)) || line.ends_with(b"\\") {
            return None;
        }
        let mut whole = Argument::new(self.at, self.line);
        whole.take(line, self.at, Quote::Plain);
        self.at += line.len();
        Some(whole)
    }

    /// Skips the target of a redirection, whose operator is at this position.
    fn skip_redirection(&mut self) {
        while let Some(b'<' | b'>' | b'&' | b'|') = self.peek() {
            self.skip(1);
        }
        while let Some(b' ' | b'\t') = self.peek() {
            self.skip(1);
        }
        if self.peek().is_some_and(|byte| !b"\r\n;|&()<>".contains(&byte)) {
            let _ = self.word();
        }
    }

    fn word(&mut self) -> Token {
        let mut word = Argument::new(self.at, self.line);
        while let Some(byte) = self.peek() {
            let start = self.at;
            let before = self.line;
            let whole = match byte {
                b'\'' => self.single(&mut word),
                b'"' => self.double(&mut word),
                b'$' if self.rest().starts_with(b"$'") => self.ansi(&mut word),
                b'$' | b'`' => {
                    let whole = self.substitution();
                    word.take(&self.bytes[start..self.at], start, Quote::Bare);
                    whole
                }
                b'\\' => {
                    self.backslash(&mut word);
                    None
                }
                b' ' | b'\t' | b'\r' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>' => break,
                _ => {
                    let plain = |byte: &u8| !b" \t\r\n;&|()<>'\"$`\\".contains(byte);
                    let length = self.rest().iter().take_while(|byte| plain(byte)).count();
                    word.take(&self.rest()[..length], start, Quote::Bare);
                    self.at += length;
                    None
                }
            };
            if let Some(what) = whole {
                return Token::Unclosed { what, line: before };
            }
            word.written.end = word.written.end.max(self.at);
        }
        Token::Word(word)
    }

    fn backslash(&mut self, word: &mut Argument) {
        let continuation = self.continuation();
        if continuation > 0 {
            self.skip(continuation);
            return;
        }
        let start = self.at;
        // Take all bytes of a multi-byte character.
        let length = self.rest().iter().skip(2).take_while(|&&byte| byte & 0xc0 == 0x80).count();
        let end = (start + 2 + length).min(self.bytes.len());
        let said = String::from_utf8_lossy(&self.bytes[start + 1..end]).into_owned();
        word.push(&said, start..end, Quote::Bare);
        self.skip(end - start);
    }

    fn single(&mut self, word: &mut Argument) -> Option<&'static str> {
        let start = self.at + 1;
        let Some(length) = self.bytes[start..].iter().position(|&byte| byte == b'\'') else {
            return Some("quotation mark (')");
        };
        word.take(&self.bytes[start..start + length], start, Quote::Single);
        self.skip(length + 2);
        None
    }

    fn double(&mut self, word: &mut Argument) -> Option<&'static str> {
        self.at += 1;
        loop {
            let start = self.at;
            let plain = self.rest().iter().take_while(|byte| !b"\"\\$`".contains(byte)).count();
            word.take(&self.rest()[..plain], start, Quote::Double);
            self.skip(plain);
            let start = self.at;
            match self.peek() {
                None => return Some("quotation mark (\")"),
                Some(b'"') => {
                    self.at += 1;
                    return None;
                }
                Some(b'\\') => {
                    let continuation = self.continuation();
                    if continuation > 0 {
                        self.skip(continuation);
                    } else if let Some(&escaped) =
                        self.bytes.get(start + 1).filter(|byte| b"\"\\$`".contains(byte))
                    {
                        word.push(&char::from(escaped).to_string(), start..start + 2, Quote::Double);
                        self.at += 2;
                    } else {
                        word.take(b"\\", start, Quote::Double);
                        self.at += 1;
                    }
                }
                Some(_) => {
                    if let Some(what) = self.substitution() {
                        return Some(what);
                    }
                    word.take(&self.bytes[start..self.at], start, Quote::Double);
                }
            }
        }
    }

    fn ansi(&mut self, word: &mut Argument) -> Option<&'static str> {
        self.at += 2;
        loop {
            let start = self.at;
            let plain = self.rest().iter().take_while(|byte| !b"'\\".contains(byte)).count();
            word.take(&self.rest()[..plain], start, Quote::Ansi);
            self.skip(plain);
            let start = self.at;
            match self.rest() {
                [b'\'', ..] => {
                    self.at += 1;
                    return None;
                }
                [b'\\', escaped, ..] => {
                    let said = match escaped {
                        b'n' => "\n",
                        b't' => "\t",
                        b'\'' => "'",
                        b'"' => "\"",
                        b'\\' => "\\",
                        // Keep other escapes as they are: QEMU's arguments do not need them.
                        _ => "\\",
                    };
                    let length = if said == "\\" && *escaped != b'\\' { 1 } else { 2 };
                    word.push(said, start..start + length, Quote::Ansi);
                    self.at += length;
                }
                _ => return Some("quotation mark ($')"),
            }
        }
    }

    /// Skips `$name`, `${...}`, `$(...)` or backquotes, whose values only the shell knows.
    fn substitution(&mut self) -> Option<&'static str> {
        let (mut depth, close) = match self.rest() {
            [b'$', b'{', ..] => (1, b'}'),
            [b'$', b'(', ..] => (1, b')'),
            [b'`', ..] => (1, b'`'),
            _ => {
                self.at += 1;
                return None;
            }
        };
        let open = if close == b'}' { b'{' } else { b'(' };
        let mut next = self.at + if close == b'`' { 1 } else { 2 };
        while let Some(&byte) = self.bytes.get(next) {
            next += 1;
            if byte == b'\\' {
                next += 1;
            } else if byte == close {
                depth -= 1;
            } else if byte == open && close != b'`' {
                depth += 1;
            }
            if depth == 0 {
                self.skip(next - self.at);
                return None;
            }
        }
        Some("substitution ($( or `)")
    }
}

impl Iterator for Words<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        loop {
            let byte = self.peek()?;
            match byte {
                b' ' | b'\t' => self.at += 1,
                b'\r' if self.rest().get(1).is_none_or(|&next| next == b'\n') => self.at += 1,
                b'\\' if self.continuation() > 0 => self.skip(self.continuation()),
                b'#' => self.skip_comment(),
                b'\n' => {
                    self.skip(1);
                    return Some(Token::LineEnd);
                }
                b'<' | b'>' => self.skip_redirection(),
                b'&' if self.rest().get(1) == Some(&b'>') => self.skip_redirection(),
                b';' | b'&' | b'|' | b'(' | b')' => {
                    self.at += 1;
                    return Some(Token::Operator(byte));
                }
                b'\r' => self.at += 1,
                _ => {
                    let word = self.word();
                    // The number before a redirection is not an argument.
                    if let (Token::Word(word), Some(b'<' | b'>')) = (&word, self.peek())
                        && !word.text.is_empty()
                        && word.text.bytes().all(|byte| byte.is_ascii_digit())
                    {
                        continue;
                    }
                    return Some(word);
                }
            }
        }
    }
}
