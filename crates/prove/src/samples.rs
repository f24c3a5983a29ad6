//! Raw samples as a table for other tools: `samples.parquet`, with a row for each timed sample.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::warning::arm_in_words;
use super::{Recording, TimedRun};

/// `sample` is the position within the run; `target` the vCPU that received the interrupt.
const SCHEMA: &str = "message samples {
    required binary measure (STRING);
    required binary arm (STRING);
    required int32 position (INTEGER(32, false));
    required int32 block (INTEGER(32, false));
    optional int32 target (INTEGER(16, false));
    required int32 sample (INTEGER(32, false));
    required int64 cycles (INTEGER(64, false));
}";

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
    let metadata = vec![
        KeyValue::new("exitless.version".to_owned(), recording.version.clone()),
        KeyValue::new("exitless.fingerprint".to_owned(), serde_json::to_string(&recording.fingerprint)?),
        KeyValue::new("exitless.plan".to_owned(), serde_json::to_string(&recording.plan)?),
    ];
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(true)
        .set_key_value_metadata(Some(metadata))
        .build();
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut file = SerializedFileWriter::new(to, schema, Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    let runs = &recording.timed;
    strings(&mut group, runs, |timed| timed.run.measure.name())?;
    strings(&mut group, runs, |timed| arm_in_words(timed.run.arm))?;
    numbers(&mut group, runs, |timed| timed.position)?;
    numbers(&mut group, runs, |timed| timed.block)?;
    targets(&mut group, runs)?;
    let places: Vec<i32> = runs.iter().flat_map(|timed| (0..).take(timed.run.cycles.len())).collect();
    column::<_, Int32Type>(&mut group, &places, None)?;
    // Parquet has no unsigned physical type: the bits are stored, and the schema marks them as unsigned.
    let cycles: Vec<i64> =
        runs.iter().flat_map(|timed| timed.run.cycles.iter().map(|&cycles| cycles as i64)).collect();
    column::<_, Int64Type>(&mut group, &cycles, None)?;
    group.close()?;
    file.close()?;
    Ok(())
}

fn strings<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    runs: &[TimedRun],
    name: impl Fn(&TimedRun) -> &'static str,
) -> Result<(), ParquetError> {
    let values: Vec<ByteArray> =
        runs.iter().flat_map(|timed| vec![ByteArray::from(name(timed)); timed.run.cycles.len()]).collect();
    column::<_, ByteArrayType>(group, &values, None)
}

fn numbers<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    runs: &[TimedRun],
    number: impl Fn(&TimedRun) -> u32,
) -> Result<(), ParquetError> {
    let values: Vec<i32> =
        runs.iter().flat_map(|timed| vec![number(timed) as i32; timed.run.cycles.len()]).collect();
    column::<_, Int32Type>(group, &values, None)
}

fn targets<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    runs: &[TimedRun],
) -> Result<(), ParquetError> {
    let mut values = Vec::new();
    let mut present = Vec::new();
    for timed in runs {
        let samples = timed.run.cycles.len();
        values.extend(timed.run.target.iter().flat_map(|&target| vec![i32::from(target); samples]));
        present.extend(vec![i16::from(timed.run.target.is_some()); samples]);
    }
    column::<_, Int32Type>(group, &values, Some(&present))
}

fn column<W: Write + Send, T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    present: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("the schema has fewer columns than are written".to_owned()));
    };
    column.typed::<T>().write_batch(values, present, None)?;
    column.close()
}
