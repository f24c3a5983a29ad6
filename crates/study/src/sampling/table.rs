//! Raw samples as a table for other tools: `host.parquet`, with a row for each value.

use std::collections::HashMap;

use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use prove::table::Format;

/// The table's format. `value` is as it was read: counters since boot, exits since the start of sampling.
const FORMAT: Format = Format {
    name: "host-samples",
    version: 1,
    schema: "message host_samples {
        required int64 time_ns (INTEGER(64, false));
        required binary source (STRING);
        required binary subject (STRING);
        required binary name (STRING);
        required int64 value (INTEGER(64, false));
    }",
};
/// The most rows in memory before they are compressed as a row group: 1.3 MiB.
const GROUP: usize = 1 << 16;

/// One value; `texts` are indices into [`Table::texts`].
#[derive(Debug, Clone, Copy)]
struct Row {
    time_ns: u64,
    texts: [u32; 3],
    value: u64,
}

/// A table under construction; complete row groups are compressed, so that hours of samples fit in memory.
pub(super) struct Table {
    file: prove::table::Table<Vec<u8>>,
    rows: Vec<Row>,
    texts: Vec<ByteArray>,
    places: HashMap<String, u32>,
    failed: Option<ParquetError>,
}

impl Table {
    pub(super) fn new() -> Result<Self, ParquetError> {
        let mut file = prove::table::Table::new(Vec::new(), FORMAT, |properties| properties)?;
        file.fact("version", env!("CARGO_PKG_VERSION").to_owned());
        file.fact("clock", "CLOCK_MONOTONIC".to_owned());
        Ok(Self { file, rows: Vec::new(), texts: Vec::new(), places: HashMap::new(), failed: None })
    }

    /// Adds a value of one reading.
    pub(super) fn add(&mut self, time_ns: u64, source: &str, subject: &str, name: &str, value: u64) {
        let texts = [source, subject, name].map(|text| self.place(text));
        self.rows.push(Row { time_ns, texts, value });
        if self.rows.len() >= GROUP && self.failed.is_none() {
            self.failed = self.store().err();
            self.rows.clear();
        }
    }

    fn place(&mut self, text: &str) -> u32 {
        if let Some(&place) = self.places.get(text) {
            return place;
        }
        let place = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.push(ByteArray::from(text));
        self.places.insert(text.to_owned(), place);
        place
    }

    fn store(&mut self) -> Result<(), ParquetError> {
        let (rows, texts) = (&self.rows, &self.texts);
        let mut group = self.file.group()?;
        group.required::<Int64Type>(rows.iter().map(|row| row.time_ns.cast_signed()))?;
        for at in 0..3 {
            group.required::<ByteArrayType>(rows.iter().map(|row| texts[row.texts[at] as usize].clone()))?;
        }
        group.required::<Int64Type>(rows.iter().map(|row| row.value.cast_signed()))?;
        group.close()
    }

    /// The file's bytes.
    pub(super) fn finish(mut self) -> Result<Vec<u8>, ParquetError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if !self.rows.is_empty() {
            self.store()?;
        }
        self.file.finish()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::RowAccessor as _;
    use std::io::Write as _;

    /// The rows of a table: time, the three texts, value.
    pub(in crate::sampling) fn rows_of(bytes: Vec<u8>) -> Vec<(u64, [String; 3], u64)> {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), bytes).unwrap();
        let reader = SerializedFileReader::new(path.reopen().unwrap()).unwrap();
        let text = |row: &parquet::record::Row, at| row.get_string(at).unwrap().clone();
        reader
            .get_row_iter(None)
            .unwrap()
            .map(Result::unwrap)
            .map(|row| {
                let texts = [text(&row, 1), text(&row, 2), text(&row, 3)];
                (row.get_ulong(0).unwrap(), texts, row.get_ulong(4).unwrap())
            })
            .collect()
    }

    #[test]
    fn every_row_comes_back_over_several_groups() {
        let mut table = Table::new().unwrap();
        let many = GROUP as u64 + 7;
        for at in 0..many {
            table.add(at, "cpu", &format!("cpu{}", at % 3), "user", u64::MAX - at);
        }
        let rows = rows_of(table.finish().unwrap());
        assert_eq!(rows.len() as u64, many);
        for (at, (time, texts, value)) in rows.into_iter().enumerate() {
            let at = at as u64;
            assert_eq!((time, value), (at, u64::MAX - at));
            assert_eq!(texts, ["cpu".to_owned(), format!("cpu{}", at % 3), "user".to_owned()]);
        }
    }

    #[test]
    fn a_table_without_rows_is_one_and_names_its_format() {
        let table = Table::new().unwrap().finish().unwrap();
        assert!(rows_of(table.clone()).is_empty());
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&table).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let facts = reader.metadata().file_metadata().key_value_metadata().unwrap();
        let fact =
            |key: &str| facts.iter().find(|fact| fact.key == key).and_then(|fact| fact.value.as_deref());
        assert_eq!(fact("exitless.format"), Some("host-samples"));
        assert_eq!(fact("exitless.format_version"), Some("1"));
        assert_eq!(fact("exitless.clock"), Some("CLOCK_MONOTONIC"));
    }
}
