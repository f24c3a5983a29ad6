//! Converts exits to Arrow columns.

use std::fmt::Display;
use std::hash::Hash;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder, StructBuilder, UInt64Builder};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_schema::{ArrowError, Schema};
use exits::{Access, ExitReason, Isa};
use rustc_hash::FxHashMap;

use super::schema::{earlier_fields, earlier_item};
use crate::{AccessRecord, ExitRecord};

/// The most texts that a dictionary keeps for the next batches; a larger one is restarted.
const MOST_TEXTS: usize = 4096;

/// Exits that wait for the next batch.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    exits: Vec<ExitRecord>,
    /// The accesses of all exits, one after the other, and the end of those of each exit.
    accesses: Vec<AccessRecord>,
    ends: Vec<usize>,
}

impl Waiting {
    pub(super) fn push(&mut self, exit: &ExitRecord, accesses: &[AccessRecord]) {
        self.exits.push(*exit);
        self.accesses.extend_from_slice(accesses);
        self.ends.push(self.accesses.len());
    }

    /// The number of rows or of accesses, whichever is larger.
    pub(super) fn len(&self) -> usize {
        self.exits.len().max(self.accesses.len())
    }

    pub(super) fn exits(&self) -> &[ExitRecord] {
        &self.exits
    }

    pub(super) fn clear(&mut self) {
        self.exits.clear();
        self.accesses.clear();
        self.ends.clear();
    }

    /// The accesses of each exit.
    fn accesses(&self) -> impl Iterator<Item = &[AccessRecord]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.accesses[start..end])
    }
}

/// The dictionaries of a recording, which grow with it.
#[derive(Debug, Default)]
pub(super) struct Dictionaries {
    isas: Texts<Isa>,
    reasons: Texts<ExitReason>,
    accesses: Texts<Access>,
}

impl Dictionaries {
    /// The exits as a batch with this schema.
    pub(super) fn batch(
        &mut self,
        schema: &Arc<Schema>,
        waiting: &Waiting,
    ) -> Result<RecordBatch, ArrowError> {
        let exits = || waiting.exits.iter();
        let optional = |number: fn(&ExitRecord) -> Option<u32>| -> ArrayRef {
            Arc::new(exits().map(number).collect::<UInt32Array>())
        };
        let last = || waiting.accesses().map(<[AccessRecord]>::last);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from_iter_values(exits().map(|exit| exit.time_ns))),
            optional(|exit| exit.vcpu.vm),
            optional(|exit| exit.vcpu.number),
            optional(|exit| exit.vcpu.thread),
            Arc::new(UInt16Array::from_iter_values(exits().map(|exit| exit.cpu))),
            self.isas.column(exits().map(|exit| Some(exit.reason.isa)))?,
            self.reasons.column(exits().map(|exit| Some(exit.reason)))?,
            Arc::new(UInt32Array::from_iter_values(exits().map(|exit| exit.reason.code))),
            Arc::new(
                exits().map(|exit| (exit.guest_rip != 0).then_some(exit.guest_rip)).collect::<UInt64Array>(),
            ),
            self.accesses.column(last().map(|last| last.map(|last| last.access)))?,
            Arc::new(exits().map(|exit| exit.handling_ns).collect::<UInt64Array>()),
            Arc::new(last().map(|last| last.and_then(|last| last.handling_ns)).collect::<UInt64Array>()),
            earlier(waiting),
        ];
        RecordBatch::try_new(Arc::clone(schema), columns)
    }
}

/// All accesses but the last of each exit; null if there are none, as for most exits.
fn earlier(waiting: &Waiting) -> ArrayRef {
    let fields: Vec<Box<dyn arrow_array::builder::ArrayBuilder>> =
        vec![Box::new(StringBuilder::new()), Box::new(UInt64Builder::new())];
    let mut lists = ListBuilder::new(StructBuilder::new(earlier_fields(), fields)).with_field(earlier_item());
    for accesses in waiting.accesses() {
        let [earlier @ .., _] = accesses else {
            lists.append_null();
            continue;
        };
        for one in earlier {
            let row = lists.values();
            if let Some(access) = row.field_builder::<StringBuilder>(0) {
                access.append_value(one.access.to_string());
            }
            if let Some(handling) = row.field_builder::<UInt64Builder>(1) {
                handling.append_option(one.handling_ns);
            }
            row.append(true);
        }
        lists.append(!earlier.is_empty());
    }
    Arc::new(lists.finish())
}

/// A growing dictionary.
#[derive(Debug)]
struct Texts<T> {
    numbers: FxHashMap<T, i32>,
    texts: Vec<String>,
    /// The texts in the last batch; an unchanged array is not written again.
    values: Arc<StringArray>,
}

impl<T> Default for Texts<T> {
    fn default() -> Self {
        let values = Arc::new(StringArray::from(Vec::<String>::new()));
        Self { numbers: FxHashMap::default(), texts: Vec::new(), values }
    }
}

impl<T: Copy + Eq + Hash + Display> Texts<T> {
    fn column(&mut self, values: impl Iterator<Item = Option<T>>) -> Result<ArrayRef, ArrowError> {
        if self.texts.len() > MOST_TEXTS {
            *self = Self::default();
        }
        let known = self.texts.len();
        let keys: Int32Array = values.map(|value| value.map(|value| self.number(value))).collect();
        if self.texts.len() > known {
            self.values = Arc::new(StringArray::from_iter_values(&self.texts));
        }
        let values: ArrayRef = Arc::<StringArray>::clone(&self.values);
        Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(keys, values)?))
    }

    fn number(&mut self, value: T) -> i32 {
        *self.numbers.entry(value).or_insert_with(|| {
            self.texts.push(value.to_string());
            self.texts.len() as i32 - 1
        })
    }
}
