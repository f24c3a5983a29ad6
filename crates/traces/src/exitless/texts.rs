//! The texts of a recording and their meanings. Each is parsed once, not in every row.

use std::sync::Arc;

use exits::{Access, ExitReason, Isa};
use rustc_hash::FxHashMap;

use super::batch::{Batch, Column, StringColumn, Wrong};
use super::layout::{Numbers, Strings, Texts};

/// The most texts of a dictionary; the writer's have at most 70,000.
const MOST_TEXTS: usize = 1 << 17;

/// The meaning of a text as a reason, an access or an instruction set; `None` if it is not one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Meaning {
    pub(super) reason: Option<ExitReason>,
    pub(super) access: Option<Access>,
    pub(super) isa: Option<Isa>,
}

impl Meaning {
    pub(super) fn of(text: &str) -> Self {
        Self { reason: text.parse().ok(), access: text.parse().ok(), isa: text.parse().ok() }
    }
}

/// The dictionaries of a stream, by ID.
#[derive(Debug, Default)]
pub(super) struct Dictionaries {
    by_id: FxHashMap<i64, Arc<Vec<Meaning>>>,
    strings: StringColumn,
}

impl Dictionaries {
    /// Adds a dictionary batch; `width` is the size of its offsets.
    pub(super) fn take(
        &mut self,
        id: i64,
        width: usize,
        is_delta: bool,
        mut batch: Batch<'_, '_>,
    ) -> Result<(), Wrong> {
        let rows = batch.rows;
        batch.strings(Strings { node: 0, buffer: 0, width }, rows, &mut self.strings)?;
        let meanings = Arc::make_mut(self.by_id.entry(id).or_default());
        if !is_delta {
            meanings.clear();
        }
        if meanings.len() + rows > MOST_TEXTS {
            return Err(format!("a dictionary has more than {MOST_TEXTS} texts"));
        }
        meanings.extend((0..rows).map(|row| self.strings.get(row).map(Meaning::of).unwrap_or_default()));
        Ok(())
    }
}

/// A text column of one batch.
#[derive(Debug, Default)]
pub(super) struct TextColumn {
    numbers: Column,
    /// The dictionary, if the column uses one.
    dictionary: Option<Arc<Vec<Meaning>>>,
    strings: StringColumn,
    /// The meanings of the plain texts seen so far.
    known: FxHashMap<String, Meaning>,
    plain: Vec<Meaning>,
}

impl TextColumn {
    pub(super) fn read(
        &mut self,
        place: Texts,
        dictionaries: &Dictionaries,
        batch: &mut Batch<'_, '_>,
    ) -> Result<(), Wrong> {
        let rows = batch.rows;
        match place {
            Texts::Dictionary { indices, id, .. } => {
                self.dictionary = Some(dictionaries.by_id.get(&id).cloned().unwrap_or_default());
                batch.numbers(indices, rows, &mut self.numbers)
            }
            Texts::Plain(place) => {
                self.dictionary = None;
                batch.strings(place, rows, &mut self.strings)?;
                self.plain.clear();
                for row in 0..rows {
                    let meaning = self.strings.get(row).map(|text| meaning(&mut self.known, text));
                    self.plain.push(meaning.unwrap_or_default());
                }
                Ok(())
            }
        }
    }

    /// Releases the dictionary.
    pub(super) fn release(&mut self) {
        self.dictionary = None;
        self.plain.clear();
    }

    /// The meaning of the text in a row; `None` if there is no text.
    pub(super) fn get(&self, row: usize) -> Option<Meaning> {
        match &self.dictionary {
            Some(dictionary) => {
                let number = usize::try_from(self.numbers.get(row)?).ok()?;
                // An index beyond the dictionary is a text without a meaning.
                Some(dictionary.get(number).copied().unwrap_or_default())
            }
            None => self.strings.get(row).and_then(|_| self.plain.get(row)).copied(),
        }
    }
}

fn meaning(known: &mut FxHashMap<String, Meaning>, text: &str) -> Meaning {
    if let Some(&meaning) = known.get(text) {
        return meaning;
    }
    if known.len() >= 4096 {
        known.clear();
    }
    let meaning = Meaning::of(text);
    known.insert(text.to_owned(), meaning);
    meaning
}

/// The offset sizes of the dictionaries of the columns that are read, by ID.
pub(super) fn widths(columns: impl IntoIterator<Item = Option<Texts>>) -> FxHashMap<i64, usize> {
    let dictionary = |texts| match texts {
        Texts::Dictionary { id, width, .. } => Some((id, width)),
        Texts::Plain(_) => None,
    };
    columns.into_iter().flatten().filter_map(dictionary).collect()
}

/// Reads a column. One that is not in the schema is null in every row.
pub(super) fn read_if_there(
    place: Option<Numbers>,
    batch: &mut Batch<'_, '_>,
    into: &mut Column,
) -> Result<(), Wrong> {
    match place {
        Some(place) => {
            let rows = batch.rows;
            batch.numbers(place, rows, into)
        }
        None => {
            into.clear();
            Ok(())
        }
    }
}
