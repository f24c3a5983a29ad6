//! Prints answers as text, JSON and CSV.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use comfy_table::{ContentArrangement, Table, presets};
use exits::{JsonEscaper, counted, csv_cell, printable};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::engine::Answer;
use crate::read::LeftOut;

/// The format number of JSON documents.
pub const FORMAT: u32 = 1;
/// The width of tables if that of the terminal is unknown.
pub const WIDTH: u16 = 80;

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// A table.
    Table,
    /// One JSON document.
    Json,
    /// Comma-separated values.
    Csv,
}

#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    version: &'static str,
    is_cut: bool,
    left_out: &'a [LeftOut],
    rows: Box<RawValue>,
}

/// Reports on standard error why a program failed, and returns the exit status.
pub fn failed(program: &str, error: &anyhow::Error, status: u8) -> ExitCode {
    eprintln!("{program}: {}", printable(&format!("{error:#}")));
    ExitCode::from(status)
}

/// Reports on standard error which files were left out, and why.
pub fn tell(program: &str, left_out: &[LeftOut]) {
    /// Further files are only counted.
    const NAMED: usize = 20;
    for one in left_out.iter().take(NAMED) {
        eprintln!("{program}: {}: {}", printable(&one.file), printable(&one.why));
    }
    if !left_out.is_empty() {
        eprintln!("Left out: {}", counted(left_out.len() as u64, "file"));
    }
}

/// Tests whether writing to standard output failed because nobody reads it any more.
#[must_use]
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    // Not a cause of the error: a connection to a store or cluster may break, too.
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    kind == Some(std::io::ErrorKind::BrokenPipe)
}

/// Ignores that nobody reads a summary: the status says what was done and what was not.
///
/// # Errors
/// Writing failed for another reason.
pub fn summary(written: anyhow::Result<()>) -> anyhow::Result<()> {
    written.or_else(|error| if is_closed_pipe(&error) { Ok(()) } else { Err(error) })
}

/// Writes an answer.
///
/// # Errors
/// Writing failed, or a value cannot be shown.
pub fn answer(out: &mut impl Write, answer: &Answer, form: Form, width: u16) -> anyhow::Result<()> {
    match form {
        Form::Table => writeln!(out, "{}", table(answer, width)?)?,
        Form::Json => {
            let document = Document {
                format: FORMAT,
                version: env!("CARGO_PKG_VERSION"),
                is_cut: answer.is_cut,
                left_out: &answer.left_out,
                rows: rows(&answer.batches)?,
            };
            json(out, &document)?;
        }
        Form::Csv => csv(out, answer)?,
    }
    Ok(())
}

/// Writes a document in one line. Its texts cannot control a terminal.
///
/// # Errors
/// Writing failed.
pub fn json(out: &mut impl Write, document: &impl Serialize) -> anyhow::Result<()> {
    // The error of the writing itself, which may be that of a closed pipe.
    serde_json::to_writer(JsonEscaper(&mut *out), document).map_err(std::io::Error::from)?;
    Ok(writeln!(out)?)
}

fn csv(out: &mut impl Write, answer: &Answer) -> anyhow::Result<()> {
    // An answer without rows may have no batch, so the header comes from an empty one.
    let header = RecordBatch::new_empty(answer.schema.clone());
    for (index, batch) in std::iter::once(&header).chain(&answer.batches).enumerate() {
        // In memory first, because an error of arrow would not be that of a closed pipe.
        let mut bytes = Vec::new();
        let mut writer = arrow::csv::WriterBuilder::new().with_header(index == 0).build(&mut bytes);
        writer.write(&cells(batch)?).context("The rows cannot be written as CSV")?;
        drop(writer);
        out.write_all(&bytes)?;
    }
    Ok(())
}

/// Rows as a JSON array of objects, including nulls.
///
/// # Errors
/// A value has no form in JSON.
pub fn rows(batches: &[RecordBatch]) -> anyhow::Result<Box<RawValue>> {
    let mut bytes = Vec::new();
    let mut writer = arrow::json::WriterBuilder::new()
        .with_explicit_nulls(true)
        .build::<_, arrow::json::writer::JsonArray>(&mut bytes);
    for batch in batches {
        writer.write(batch).context("The rows cannot be written as JSON")?;
    }
    writer.finish()?;
    drop(writer);
    let text = if bytes.is_empty() { "[]".to_owned() } else { String::from_utf8(bytes)? };
    Ok(RawValue::from_string(text)?)
}

fn table(answer: &Answer, width: u16) -> anyhow::Result<Table> {
    let mut table = plain(width);
    table.set_header(answer.schema.fields().iter().map(|field| printable(field.name())));
    let options = FormatOptions::new().with_display_error(true);
    for batch in &answer.batches {
        let columns: Result<Vec<_>, _> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options)).collect();
        let columns = columns?;
        for row in 0..batch.num_rows() {
            table.add_row(columns.iter().map(|column| printable(&column.value(row).to_string())));
        }
    }
    Ok(table)
}

/// A table without separators between columns.
#[must_use]
pub fn plain(width: u16) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_width(width).set_content_arrangement(ContentArrangement::Dynamic);
    table
}

/// Converts all values to cells of CSV, which has no lists.
fn cells(batch: &RecordBatch) -> anyhow::Result<RecordBatch> {
    use arrow::array::{ArrayRef, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use std::sync::Arc;

    let options = FormatOptions::new();
    let mut fields = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let format = ArrayFormatter::try_new(column, &options)?;
        let texts = (0..column.len()).map(|row| format.value(row).try_to_string());
        let texts: Vec<String> =
            texts.map(|text| text.map(|text| csv_cell(&text))).collect::<Result<_, _>>()?;
        columns.push(Arc::new(StringArray::from(texts)));
        fields.push(Field::new(csv_cell(field.name()), DataType::Utf8, false));
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}
