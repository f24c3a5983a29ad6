//! The settings of xl.cfg (`tools/libs/util/libxlu_cfg_y.y` of Xen 4.20).

use super::words::{Kind, Word, Words};
use crate::Place;
use std::collections::HashMap;
use std::iter::Peekable;

/// The limit of nested lists.
const DEEPEST: usize = 16;
/// The largest number of doubts.
const MOST_DOUBTS: usize = 32;
/// The largest number of bytes of a setting's text to quote.
const LONGEST_EVIDENCE: usize = 120;

/// A value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// A string or number.
    Atom(String),
    /// A list; each item with its place.
    List(Vec<(Value, Place)>),
}

impl Value {
    /// The whole value as one text, with commas between the items of lists.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Atom(text) => text.clone(),
            Self::List(items) => items.iter().map(|(item, _)| item.text()).collect::<Vec<_>>().join(", "),
        }
    }
}

/// A setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) value: Value,
    /// Its whole place, including the name.
    pub(super) place: Place,
}

struct Parser<'t> {
    bytes: &'t [u8],
    words: Peekable<Words<'t>>,
    settings: Vec<Setting>,
    /// The last setting of each name.
    last: HashMap<String, usize>,
    doubts: Vec<String>,
    /// The end of the last word.
    end: usize,
}

/// The effective settings (the last of each name), in the order of the text, and a sentence for each mistake.
pub(super) fn parse(bytes: &[u8]) -> (Vec<Setting>, Vec<String>) {
    let mut parser = Parser::of(bytes);
    while parser.statement() {}
    let Parser { settings, last, doubts, .. } = parser;
    let counts = settings.into_iter().enumerate().filter(|(at, setting)| last.get(&setting.name) == Some(at));
    (counts.map(|(_, setting)| setting).collect(), doubts)
}

/// Tests whether the first statement is a setting without a mistake.
pub(super) fn begins_with_one(bytes: &[u8]) -> bool {
    let mut parser = Parser::of(bytes);
    while parser.settings.is_empty() && parser.doubts.is_empty() && parser.statement() {}
    !parser.settings.is_empty() && parser.doubts.is_empty()
}

impl<'t> Parser<'t> {
    fn of(bytes: &'t [u8]) -> Self {
        Self {
            bytes,
            words: Words::of(bytes).peekable(),
            settings: Vec::new(),
            last: HashMap::new(),
            doubts: Vec::new(),
            end: 0,
        }
    }

    fn take(&mut self) -> Option<Word> {
        let word = self.words.next()?;
        self.end = word.end;
        Some(word)
    }

    fn take_if(&mut self, wanted: impl Fn(&Kind) -> bool) -> Option<Word> {
        let word = self.words.next_if(|word| wanted(&word.kind))?;
        self.end = word.end;
        Some(word)
    }

    fn place(&self, start: usize, line: usize) -> Place {
        let most = self.end.min(start + 4 * LONGEST_EVIDENCE);
        let text = String::from_utf8_lossy(&self.bytes[start..most]);
        let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.len() > LONGEST_EVIDENCE {
            let cut = (0..=LONGEST_EVIDENCE).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            text.truncate(cut);
            text.push('…');
        }
        Place { start, end: self.end, line, text }
    }

    /// Parses one statement with its end; `false` at the end of the text.
    fn statement(&mut self) -> bool {
        let Some(word) = self.take() else { return false };
        match word.kind {
            Kind::Newline | Kind::Semicolon => {}
            Kind::Name(name) => {
                if let Err(problem) = self.setting(name, word.start, word.line) {
                    self.mistake(&problem);
                }
            }
            _ => self.mistake(&Mistake { start: word.start, line: word.line, wanted: "a setting's name" }),
        }
        true
    }

    fn setting(&mut self, name: String, start: usize, line: usize) -> Result<(), Mistake> {
        let added = match self.take() {
            Some(Word { kind: Kind::Set, .. }) => false,
            Some(Word { kind: Kind::Add, .. }) => true,
            other => return Err(Mistake::at(other, self.bytes.len(), line, "= or +=")),
        };
        let value = self.value(0, line)?;
        let place = self.place(start, line);
        match self.take() {
            None | Some(Word { kind: Kind::Newline | Kind::Semicolon, .. }) => {}
            other => return Err(Mistake::at(other, self.bytes.len(), line, "the end of the line or ;")),
        }
        let value = if added { self.joined(&name, value) } else { value };
        self.last.insert(name.clone(), self.settings.len());
        self.settings.push(Setting { name, value, place });
        Ok(())
    }

    /// Appends to the previous setting with the same name (`xlu__cfg_concat_vals`). The previous value is
    /// moved, not copied: a long file of additions must not store all intermediate values.
    fn joined(&mut self, name: &str, value: Value) -> Value {
        let Some(before) = self.last.get(name).map(|&at| &mut self.settings[at].value) else { return value };
        match (before, value) {
            (Value::Atom(before), Value::Atom(value)) => Value::Atom(std::mem::take(before) + &value),
            (Value::List(before), Value::List(value)) => {
                let mut all = std::mem::take(before);
                all.extend(value);
                Value::List(all)
            }
            (_, value) => value,
        }
    }

    fn value(&mut self, depth: usize, line: usize) -> Result<Value, Mistake> {
        match self.take() {
            Some(Word { kind: Kind::Atom(text), .. }) => Ok(Value::Atom(text)),
            Some(Word { kind: Kind::Open, line, .. }) if depth < DEEPEST => self.list(depth, line),
            other => Err(Mistake::at(other, self.bytes.len(), line, "a string, a number or a list")),
        }
    }

    fn list(&mut self, depth: usize, mut line: usize) -> Result<Value, Mistake> {
        let mut items = Vec::new();
        loop {
            self.lines();
            if self.take_if(|kind| *kind == Kind::Close).is_some() {
                return Ok(Value::List(items));
            }
            let start = self.words.peek().map_or(self.bytes.len(), |word| word.start);
            line = self.words.peek().map_or(line, |word| word.line);
            let value = self.value(depth + 1, line)?;
            items.push((value, self.place(start, line)));
            self.lines();
            if self.take_if(|kind| *kind == Kind::Comma).is_none() {
                let next = self.take();
                if matches!(next, Some(Word { kind: Kind::Close, .. })) {
                    return Ok(Value::List(items));
                }
                return Err(Mistake::at(next, self.bytes.len(), line, ", or ]"));
            }
        }
    }

    fn lines(&mut self) {
        while self.take_if(|kind| *kind == Kind::Newline).is_some() {}
    }

    /// Reports a mistake, and continues after the end of its line.
    fn mistake(&mut self, mistake: &Mistake) {
        if self.doubts.len() < MOST_DOUBTS {
            self.doubts.push(format!(
                "Line {}, byte {}: {} is expected here; `xl` refuses the file.",
                mistake.line, mistake.start, mistake.wanted
            ));
        }
        // The mistake itself may be the newline.
        if self.end > mistake.start && self.bytes.get(self.end - 1) == Some(&b'\n') {
            return;
        }
        loop {
            match self.take() {
                None | Some(Word { kind: Kind::Newline, .. }) => return,
                Some(_) => {}
            }
        }
    }
}

struct Mistake {
    start: usize,
    line: usize,
    wanted: &'static str,
}

impl Mistake {
    fn at(word: Option<Word>, end: usize, line: usize, wanted: &'static str) -> Self {
        match word {
            Some(word) => Self { start: word.start, line: word.line, wanted },
            None => Self { start: end, line, wanted },
        }
    }
}
