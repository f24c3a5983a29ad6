//! Raw samples as a table for other tools: `samples.parquet`, with a row for each timed sample.

use std::io::Write;
use std::iter::repeat_n;

use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;

use super::table::{Format, Table};
use super::warning::arm_in_words;
use super::{Recording, TimedRun};

/// The format. `sample` is the position within the run; `target` the vCPU that received the interrupt.
const FORMAT: Format = Format {
    name: "prove-samples",
    version: 1,
    schema: "message samples {
        required binary measure (STRING);
        required binary arm (STRING);
        required int32 position (INTEGER(32, false));
        required int32 block (INTEGER(32, false));
        optional int32 target (INTEGER(16, false));
        required int32 sample (INTEGER(32, false));
        required int64 cycles (INTEGER(64, false));
    }",
};

/// The reason why the samples were not written.
#[derive(Debug, thiserror::Error)]
pub enum SamplesError {
    /// The Parquet table could not be written.
    #[error("Cannot write the samples as Parquet")]
    Parquet(#[from] ParquetError),
    /// The fingerprint or the plan cannot be converted to JSON.
    #[error("Cannot describe the samples")]
    Json(#[from] serde_json::Error),
}

/// Writes every timed sample of `recording` as Parquet, with its fingerprint and plan as JSON in the file's
/// key-value metadata (`exitless.fingerprint`, `exitless.plan`, `exitless.version`).
///
/// # Errors
/// If `to` cannot be written.
pub fn write_samples(recording: &Recording, to: impl Write + Send) -> Result<(), SamplesError> {
    let mut table = Table::new(to, FORMAT, |properties| properties)?;
    table.fact("version", recording.version.clone());
    table.fact("fingerprint", serde_json::to_string(&recording.fingerprint)?);
    table.fact("plan", serde_json::to_string(&recording.plan)?);
    let runs = &recording.timed;
    let mut group = table.group()?;
    group.required::<ByteArrayType>(each(runs, |timed| ByteArray::from(timed.run.measure.name())))?;
    group.required::<ByteArrayType>(each(runs, |timed| ByteArray::from(arm_in_words(timed.run.arm))))?;
    group.required::<Int32Type>(each(runs, |timed| timed.position.cast_signed()))?;
    group.required::<Int32Type>(each(runs, |timed| timed.block.cast_signed()))?;
    group.optional::<Int32Type>(each(runs, |timed| timed.run.target.map(i32::from)))?;
    group.required::<Int32Type>(runs.iter().flat_map(|timed| (0..).take(timed.run.cycles.len())))?;
    group.required::<Int64Type>(
        runs.iter().flat_map(|timed| timed.run.cycles.iter().map(|cycles| cycles.cast_signed())),
    )?;
    group.close()?;
    table.finish()?;
    Ok(())
}

/// The value of a run, once for each of its samples.
fn each<T: Clone>(runs: &[TimedRun], value: impl Fn(&TimedRun) -> T) -> impl Iterator<Item = T> {
    runs.iter().flat_map(move |timed| repeat_n(value(timed), timed.run.cycles.len()))
}
