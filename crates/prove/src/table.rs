//! Parquet tables for other tools. Their metadata has the name and the version of their format, as `exitless.format` and
//! `exitless.format_version`.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

/// The format of a table. Within one version columns and facts are added, never changed.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Its name, which no other format has.
    pub name: &'static str,
    /// Its version.
    pub version: u32,
    /// Its columns, as a message type of Parquet.
    pub schema: &'static str,
}

/// A table under construction, compressed with zstd.
pub struct Table<W: Write + Send>(SerializedFileWriter<W>);

impl<W: Write + Send> Table<W> {
    /// Starts a table in `to`, whose properties `tune` may change.
    ///
    /// # Errors
    /// If the first bytes cannot be written to `to`.
    pub fn new(
        to: W,
        format: Format,
        tune: impl FnOnce(WriterPropertiesBuilder) -> WriterPropertiesBuilder,
    ) -> Result<Self, ParquetError> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_dictionary_enabled(true);
        let schema = Arc::new(parse_message_type(format.schema)?);
        let mut table = Self(SerializedFileWriter::new(to, schema, Arc::new(tune(properties).build()))?);
        table.fact("format", format.name.to_owned());
        table.fact("format_version", format.version.to_string());
        Ok(table)
    }

    /// Adds a fact to the table's metadata, under `exitless.NAME`.
    pub fn fact(&mut self, name: &str, value: String) {
        self.0.append_key_value_metadata(KeyValue::new(format!("exitless.{name}"), value));
    }

    /// Starts a row group. Its columns are written one after the other, in the schema's order.
    ///
    /// # Errors
    /// If the group before it was not closed.
    pub fn group(&mut self) -> Result<Group<'_, W>, ParquetError> {
        self.0.next_row_group().map(Group)
    }

    /// Completes the table, and returns what it was written to.
    ///
    /// # Errors
    /// If the rest cannot be written.
    pub fn finish(self) -> Result<W, ParquetError> {
        let mut to = self.0.into_inner()?;
        to.flush()?;
        Ok(to)
    }
}

/// A row group under construction.
///
/// Parquet has no unsigned physical type: the bits are stored as a signed number, and the schema marks them as unsigned.
pub struct Group<'t, W: Write + Send>(SerializedRowGroupWriter<'t, W>);

impl<W: Write + Send> Group<'_, W> {
    /// Writes the next column, which has a value in each row.
    ///
    /// # Errors
    /// If it cannot be written, or if the schema has no such column.
    pub fn required<T: DataType>(&mut self, values: impl Iterator<Item = T::T>) -> Result<(), ParquetError> {
        let values: Vec<T::T> = values.collect();
        self.column::<T>(|column| column.write_batch(&values, None, None))
    }

    /// Writes the next column, which is null in some rows.
    ///
    /// # Errors
    /// Those of [`Self::required`].
    pub fn optional<T: DataType>(
        &mut self,
        values: impl Iterator<Item = Option<T::T>>,
    ) -> Result<(), ParquetError> {
        let (mut given, mut present) = (Vec::new(), Vec::new());
        for value in values {
            present.push(i16::from(value.is_some()));
            given.extend(value);
        }
        self.column::<T>(|column| column.write_batch(&given, Some(&present), None))
    }

    /// Ends the group.
    ///
    /// # Errors
    /// If it cannot be written, or if a column is missing.
    pub fn close(self) -> Result<(), ParquetError> {
        self.0.close().map(drop)
    }

    fn column<T: DataType>(
        &mut self,
        write: impl FnOnce(&mut ColumnWriterImpl<'_, T>) -> Result<usize, ParquetError>,
    ) -> Result<(), ParquetError> {
        let Some(mut column) = self.0.next_column()? else {
            return Err(ParquetError::General("the schema has fewer columns than are written".to_owned()));
        };
        write(column.typed::<T>())?;
        column.close()
    }
}
