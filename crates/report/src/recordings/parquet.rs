//! Single exits as a Parquet table for other tools, with a row for each exit. It is written while recordings are read.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::io::Write;
use std::sync::Arc;

use exits::{Access, ExitReason};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use traces::{ExitRecord, Recordings, Sink};

/// The schema. `recording` is the name of the file; facts that a recording lacks are null.
const SCHEMA: &str = "message exits {
    required binary recording (STRING);
    required int64 time_ns (INTEGER(64, false));
    optional int32 vm (INTEGER(32, false));
    optional int32 vcpu (INTEGER(32, false));
    optional int32 thread (INTEGER(32, false));
    required int32 cpu (INTEGER(16, false));
    required binary isa (STRING);
    required binary reason (STRING);
    required int32 reason_code (INTEGER(32, false));
    optional int64 guest_rip (INTEGER(64, false));
    optional binary access (STRING);
    optional int64 handling_ns (INTEGER(64, false));
}";

/// The number of rows in a row group. A whole group is kept in memory: about 10 MiB.
const GROUP: usize = 1 << 17;

/// The reason why the exits were not written.
#[derive(Debug, thiserror::Error)]
pub enum ExitsError {
    /// The Parquet table could not be written.
    #[error("Cannot write the exits as Parquet")]
    Parquet(#[from] ParquetError),
    /// The facts of the recordings cannot be converted to JSON.
    #[error("Cannot describe the recordings")]
    Json(#[from] serde_json::Error),
}

/// Writes single exits as Parquet. After the first error nothing more is written; [`Self::finish`] returns the error.
pub struct ExitsWriter<W: Write + Send> {
    /// `None` after an error.
    file: Option<SerializedFileWriter<W>>,
    failure: Option<ParquetError>,
    recording: ByteArray,
    waiting: Vec<ExitRecord>,
}

impl<W: Write + Send> ExitsWriter<W> {
    /// Starts a table in `to`.
    ///
    /// # Errors
    /// If the first bytes cannot be written to `to`.
    pub fn new(to: W) -> Result<Self, ExitsError> {
        // Delta encoding, because times increase a little from row to row. A dictionary does not help: few values repeat.
        let time = || ColumnPath::from("time_ns");
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_dictionary_enabled(true)
            .set_column_dictionary_enabled(time(), false)
            .set_column_encoding(time(), Encoding::DELTA_BINARY_PACKED)
            .build();
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let file = SerializedFileWriter::new(to, schema, Arc::new(properties))?;
        let waiting = Vec::with_capacity(GROUP);
        Ok(Self { file: Some(file), failure: None, recording: ByteArray::from(""), waiting })
    }

    /// Sets the recording of the following exits.
    pub fn begin(&mut self, recording: &str) {
        self.write_group();
        self.recording = ByteArray::from(recording);
    }

    /// Completes the table with facts of `recordings` as JSON in its key-value metadata (`exitless.files`,
    /// `exitless.losses`, `exitless.vm_names`, `exitless.version`).
    ///
    /// # Errors
    /// If anything could not be written, even before this call.
    pub fn finish(mut self, recordings: &Recordings) -> Result<(), ExitsError> {
        self.write_group();
        if let Some(failure) = self.failure {
            return Err(failure.into());
        }
        let Some(mut file) = self.file else { return Ok(()) };
        let metadata = [
            ("exitless.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("exitless.files", serde_json::to_string(&recordings.files)?),
            ("exitless.losses", serde_json::to_string(&recordings.profile.losses)?),
            ("exitless.vm_names", serde_json::to_string(&recordings.profile.names)?),
        ];
        for (key, value) in metadata {
            file.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        }
        let mut to = file.into_inner()?;
        to.flush().map_err(ParquetError::from)?;
        Ok(())
    }

    fn write_group(&mut self) {
        if let Some(file) = self.file.as_mut().filter(|_| !self.waiting.is_empty())
            && let Err(error) = write_rows(file, &self.recording, &self.waiting)
        {
            self.failure = Some(error);
            self.file = None;
        }
        self.waiting.clear();
    }
}

impl<W: Write + Send> Sink for ExitsWriter<W> {
    fn exit(&mut self, exit: &ExitRecord) {
        self.waiting.push(*exit);
        if self.waiting.len() == GROUP {
            self.write_group();
        }
    }
}

fn write_rows<W: Write + Send>(
    file: &mut SerializedFileWriter<W>,
    recording: &ByteArray,
    exits: &[ExitRecord],
) -> Result<(), ParquetError> {
    let mut reasons = Texts::<ExitReason>::default();
    let mut accesses = Texts::<Access>::default();
    let mut isas = Texts::default();
    let mut group = Group { group: file.next_row_group()?, exits };
    // Parquet has no unsigned physical type: the bits are stored, and the schema marks them as unsigned.
    let bits = |number: u32| number as i32;
    group.required::<ByteArrayType>(|_| recording.clone())?;
    group.required::<Int64Type>(|exit| exit.time_ns as i64)?;
    group.optional::<Int32Type>(|exit| exit.vcpu.vm.map(bits))?;
    group.optional::<Int32Type>(|exit| exit.vcpu.number.map(bits))?;
    group.optional::<Int32Type>(|exit| exit.vcpu.thread.map(bits))?;
    group.required::<Int32Type>(|exit| i32::from(exit.cpu))?;
    group.required::<ByteArrayType>(|exit| isas.of(exit.reason.isa))?;
    group.required::<ByteArrayType>(|exit| reasons.of(exit.reason))?;
    group.required::<Int32Type>(|exit| bits(exit.reason.code))?;
    group.optional::<Int64Type>(|exit| (exit.guest_rip != 0).then_some(exit.guest_rip as i64))?;
    group.optional::<ByteArrayType>(|exit| exit.access.map(|access| accesses.of(access)))?;
    group.optional::<Int64Type>(|exit| exit.handling_ns.map(|ns| ns as i64))?;
    group.group.close()?;
    Ok(())
}

/// Interned texts, each allocated once for all rows.
struct Texts<T>(HashMap<T, ByteArray>);

impl<T> Default for Texts<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Copy + Eq + Hash + Display> Texts<T> {
    fn of(&mut self, value: T) -> ByteArray {
        self.0.entry(value).or_insert_with(|| ByteArray::from(value.to_string().as_str())).clone()
    }
}

/// A row group whose columns are written one after the other.
struct Group<'g, 'e, W: Write + Send> {
    group: SerializedRowGroupWriter<'g, W>,
    exits: &'e [ExitRecord],
}

impl<W: Write + Send> Group<'_, '_, W> {
    fn required<T: DataType>(&mut self, value: impl FnMut(&ExitRecord) -> T::T) -> Result<(), ParquetError> {
        let values: Vec<T::T> = self.exits.iter().map(value).collect();
        self.column::<T>(|column| column.write_batch(&values, None, None))
    }

    fn optional<T: DataType>(
        &mut self,
        value: impl FnMut(&ExitRecord) -> Option<T::T>,
    ) -> Result<(), ParquetError> {
        let mut values = Vec::with_capacity(self.exits.len());
        let mut present = Vec::with_capacity(self.exits.len());
        for value in self.exits.iter().map(value) {
            present.push(i16::from(value.is_some()));
            values.extend(value);
        }
        self.column::<T>(|column| column.write_batch(&values, Some(&present), None))
    }

    fn column<T: DataType>(
        &mut self,
        write: impl FnOnce(&mut ColumnWriterImpl<'_, T>) -> Result<usize, ParquetError>,
    ) -> Result<(), ParquetError> {
        let Some(mut column) = self.group.next_column()? else {
            return Err(ParquetError::General("the schema has fewer columns than are written".to_owned()));
        };
        write(column.typed::<T>())?;
        column.close()
    }
}

#[cfg(test)]
#[path = "parquet_tests.rs"]
mod tests;
