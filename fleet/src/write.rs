//! Writes rows as files of the data set.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::json::ReaderBuilder;
use chrono::DateTime;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use serde_json::Value;

use crate::document::{Row, Rows, digest};
use crate::name::encoded;
use crate::schema::{REPLACES_KEY, TABLE_KEY, Table, VERSION, VERSION_KEY};
use crate::store::{self, Store, path};

/// The reason why rows could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A row does not fit its table.
    #[error("a row of {table} does not fit the schema: {why}")]
    Row {
        /// The table.
        table: &'static str,
        /// The problem with the row.
        why: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// The result of writing.
#[derive(Debug, Default, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Written {
    /// The number of rows in new files.
    pub rows: usize,
    /// The number of new files.
    pub files: usize,
    /// The number of files that existed: the same rows were added before.
    pub known: usize,
}

/// Writes a file for each table, day and host. File names are derived from the rows, so writing the same rows
/// twice has no effect.
///
/// # Errors
/// A row does not fit, and nothing was written; or the store failed after some files were written.
pub async fn rows(store: &Store, rows: &Rows) -> Result<Written, Error> {
    let mut files = Vec::new();
    for (&name, rows) in rows {
        let table = named(name)?;
        let mut parts: BTreeMap<(String, &str), Vec<&Row>> = BTreeMap::new();
        for row in rows {
            let host = row.get("host_name").and_then(Value::as_str).unwrap_or_default();
            parts.entry((day(row).unwrap_or_default(), host)).or_default().push(row);
        }
        for ((date, host), rows) in parts {
            let batch = batch(table, &rows)?;
            let first =
                rows.iter().filter_map(|row| row.get("time")?.as_i64()).min().unwrap_or(0) / 1_000_000;
            let content = serde_json::to_vec(&rows).unwrap_or_default();
            let file = path(name, &date, &encoded(host), &format!("{first:010}-{}", digest(&content)));
            files.push((name, file, rows.len(), parquet(table, &[batch], &[])?));
        }
    }
    // The last row of `verify` in `hosts` says which rows of `vms` are the last, so it must not come before them.
    files.sort_by_key(|(table, ..)| *table == "hosts");
    let mut written = Written::default();
    for (_, file, rows, bytes) in files {
        if store.create(&file, bytes).await? {
            written.rows += rows;
            written.files += 1;
        } else {
            written.known += 1;
        }
    }
    Ok(written)
}

fn named(name: &'static str) -> Result<&'static Table, Error> {
    Table::named(name).ok_or_else(|| Error::Row { table: name, why: "no such table".to_owned() })
}

/// Checks that all rows fit the schema.
#[cfg(test)]
pub(crate) fn check(rows: &Rows) -> Result<(), Error> {
    for (&name, rows) in rows {
        let table = named(name)?;
        let rows: Vec<&Row> = rows.iter().collect();
        assert_eq!(batch(table, &rows)?.num_rows(), rows.len());
    }
    Ok(())
}

/// The day of a row's time, in UTC.
fn day(row: &Row) -> Option<String> {
    let time = DateTime::from_timestamp_micros(row.get("time")?.as_i64()?)?;
    Some(time.format("%Y-%m-%d").to_string())
}

/// Converts rows to a batch in their table's schema.
fn batch(table: &Table, rows: &[&Row]) -> Result<RecordBatch, Error> {
    let wrong = |error: arrow::error::ArrowError| Error::Row { table: table.name, why: error.to_string() };
    // Strict mode: a field without a column is a bug of ours.
    let mut decoder = ReaderBuilder::new(table.schema())
        .with_strict_mode(true)
        .with_batch_size(rows.len().max(1))
        .build_decoder()
        .map_err(wrong)?;
    decoder.serialize(rows).map_err(wrong)?;
    Ok(decoder.flush().map_err(wrong)?.unwrap_or_else(|| RecordBatch::new_empty(table.schema())))
}

/// The contents of a file with these batches, which replaces the files named in `replaces`.
///
/// # Errors
/// The batches do not have the table's schema.
pub(crate) fn parquet(table: &Table, batches: &[RecordBatch], replaces: &[String]) -> Result<Vec<u8>, Error> {
    let wrong =
        |error: parquet::errors::ParquetError| Error::Row { table: table.name, why: error.to_string() };
    let said = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
    let mut metadata = vec![said(VERSION_KEY, VERSION.to_owned()), said(TABLE_KEY, table.name.to_owned())];
    if !replaces.is_empty() {
        metadata.push(said(REPLACES_KEY, replaces.join("\n")));
    }
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(format!("exitless-fleet {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(metadata))
        .build();
    let mut bytes = Vec::new();
    let mut writer =
        ArrowWriter::try_new(&mut bytes, Arc::clone(&table.schema()), Some(properties)).map_err(wrong)?;
    for batch in batches {
        writer.write(batch).map_err(wrong)?;
    }
    writer.close().map_err(wrong)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{self, Origin};
    use crate::store::Days;

    #[tokio::test]
    async fn a_host_is_written_after_its_vms() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_str().unwrap(), true).unwrap();
        let add = async |second| {
            let time = DateTime::from_timestamp(second, 0).unwrap();
            let origin = Origin { file: "a test's".to_owned(), host: Some("web".to_owned()), time };
            let text = include_bytes!("../tests/fixtures/verify.json");
            super::rows(&store, &document::rows(text, &origin).unwrap()).await
        };
        add(1).await.unwrap();
        let (vms, away) = (folder.path().join("vms"), folder.path().join("away"));
        std::fs::rename(&vms, &away).unwrap();
        std::fs::write(&vms, "").unwrap();
        assert!(matches!(add(2).await, Err(Error::Store(_))));
        std::fs::remove_file(&vms).unwrap();
        std::fs::rename(&away, &vms).unwrap();
        let count = async |table| store.files(table, &Days::default()).await.unwrap().len();
        assert_eq!((count("hosts").await, count("vms").await), (1, 1));
        add(2).await.unwrap();
        assert_eq!((count("hosts").await, count("vms").await), (2, 2));
    }
}
