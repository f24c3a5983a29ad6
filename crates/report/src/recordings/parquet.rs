//! Single exits as a Parquet table for other tools, with a row for each exit. It is written while recordings are read.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::io::Write;

use exits::{Access, ExitReason};
use parquet::basic::Encoding;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnPath;
use prove::table::{Format, Table};
use traces::{ExitRecord, Recordings, Sink};

/// The format. `recording` is the name of the file; facts that a recording lacks are null.
const FORMAT: Format = Format {
    name: "recorded-exits",
    version: 1,
    schema: "message exits {
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
    }",
};

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
    table: Option<Table<W>>,
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
        let table = Table::new(to, FORMAT, |properties| {
            properties
                .set_column_dictionary_enabled(time(), false)
                .set_column_encoding(time(), Encoding::DELTA_BINARY_PACKED)
        })?;
        let waiting = Vec::with_capacity(GROUP);
        Ok(Self { table: Some(table), failure: None, recording: ByteArray::from(""), waiting })
    }

    /// Sets the recording of the following exits.
    pub fn begin(&mut self, recording: &str) {
        self.write_group();
        self.recording = ByteArray::from(recording);
    }

    /// Completes the table with facts of `recordings` as JSON in its metadata (`exitless.files`, `exitless.losses`,
    /// `exitless.vm_names`), and with `exitless.version`.
    ///
    /// # Errors
    /// If anything could not be written, even before this call.
    pub fn finish(mut self, recordings: &Recordings) -> Result<(), ExitsError> {
        self.write_group();
        if let Some(failure) = self.failure {
            return Err(failure.into());
        }
        let Some(mut table) = self.table else { return Ok(()) };
        table.fact("version", env!("CARGO_PKG_VERSION").to_owned());
        table.fact("files", serde_json::to_string(&recordings.files)?);
        table.fact("losses", serde_json::to_string(&recordings.profile.losses)?);
        table.fact("vm_names", serde_json::to_string(&recordings.profile.names)?);
        table.finish()?;
        Ok(())
    }

    fn write_group(&mut self) {
        if let Some(table) = self.table.as_mut().filter(|_| !self.waiting.is_empty())
            && let Err(error) = write_rows(table, &self.recording, &self.waiting)
        {
            self.failure = Some(error);
            self.table = None;
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
    table: &mut Table<W>,
    recording: &ByteArray,
    exits: &[ExitRecord],
) -> Result<(), ParquetError> {
    let mut reasons = Texts::<ExitReason>::default();
    let mut accesses = Texts::<Access>::default();
    let mut isas = Texts::default();
    let mut group = table.group()?;
    group.required::<ByteArrayType>(exits.iter().map(|_| recording.clone()))?;
    group.required::<Int64Type>(exits.iter().map(|exit| exit.time_ns.cast_signed()))?;
    group.optional::<Int32Type>(exits.iter().map(|exit| exit.vcpu.vm.map(u32::cast_signed)))?;
    group.optional::<Int32Type>(exits.iter().map(|exit| exit.vcpu.number.map(u32::cast_signed)))?;
    group.optional::<Int32Type>(exits.iter().map(|exit| exit.vcpu.thread.map(u32::cast_signed)))?;
    group.required::<Int32Type>(exits.iter().map(|exit| i32::from(exit.cpu)))?;
    group.required::<ByteArrayType>(exits.iter().map(|exit| isas.of(exit.reason.isa)))?;
    group.required::<ByteArrayType>(exits.iter().map(|exit| reasons.of(exit.reason)))?;
    group.required::<Int32Type>(exits.iter().map(|exit| exit.reason.code.cast_signed()))?;
    group.optional::<Int64Type>(
        exits.iter().map(|exit| (exit.guest_rip != 0).then_some(exit.guest_rip.cast_signed())),
    )?;
    group
        .optional::<ByteArrayType>(exits.iter().map(|exit| exit.access.map(|access| accesses.of(access))))?;
    group.optional::<Int64Type>(exits.iter().map(|exit| exit.handling_ns.map(u64::cast_signed)))?;
    group.close()
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

#[cfg(test)]
#[path = "parquet_tests.rs"]
mod tests;
