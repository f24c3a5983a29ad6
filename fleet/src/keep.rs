//! Keeps a data set small: joins the small files of a day, and deletes old days.

use std::collections::{BTreeMap, HashSet};

use arrow::array::RecordBatch;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde::Serialize;

use crate::read::{self, LeftOut};
use crate::schema::{TABLES, Table};
use crate::store::{COMPACTED, Days, File, Store, path};
use crate::write;

/// The most bytes of files of a day and host that are joined, because they are read into memory.
const LARGEST: u64 = 512 << 20;
/// The most bytes of memory for the rows of a day and host that are joined, because a small file may contain
/// large rows.
const LARGEST_ROWS: usize = 2 << 30;

/// The result of a compaction.
#[derive(Debug, Default, Serialize)]
pub struct Compacted {
    /// The number of days of hosts whose files were joined.
    pub partitions: usize,
    /// The number of files that were deleted because their rows are in another one.
    pub deleted: usize,
    /// The files that could not be joined, with the reason.
    pub left_out: Vec<LeftOut>,
}

/// Joins the files of each table, host and day up to `until`.
///
/// A joined file lists those that it replaces, and our readers ignore these. So even a kill at any moment
/// loses or duplicates no row; the next compaction deletes the replaced files.
///
/// # Errors
/// The store failed. What was joined before stays joined.
pub async fn compact(store: &Store, until: &str) -> Result<Compacted, write::Error> {
    compact_up_to(store, until, LARGEST_ROWS).await
}

/// [`compact`] with a limit on the memory for rows.
async fn compact_up_to(store: &Store, until: &str, most: usize) -> Result<Compacted, write::Error> {
    let days = Days { since: None, until: Some(until.to_owned()) };
    let mut all = Compacted::default();
    for table in TABLES {
        let files = read::files(store, table, &days, &read::Ends::default()).await?;
        // A joined file that cannot be read does not say which files it replaces. Those may still be there, and the next
        // generation may have the name of one, so its day stays as it is.
        let unread: HashSet<String> = files
            .left_out
            .iter()
            .filter_map(|one| one.file.rsplit_once('/'))
            .filter(|(_, name)| name.starts_with(COMPACTED))
            .map(|(folder, _)| folder.to_owned())
            .collect();
        all.left_out.extend(files.left_out);
        let mut parts: BTreeMap<(String, String), Vec<File>> = BTreeMap::new();
        for file in files.good {
            parts.entry((file.date.clone(), file.host.clone())).or_default().push(file);
        }
        for ((date, host), good) in parts {
            // All files of a part are in one folder.
            if let Some(file) = good.first() {
                store.sweep(file);
            }
            let folder = format!("{}/date={date}/host={host}", table.name);
            if good.len() < 2 || unread.contains(&folder) {
                continue;
            }
            // The joined file would not have this column, and its values would be deleted with the files.
            if let Some(column) = files.unknown.get(&(date.clone(), host.clone())) {
                let why = format!(
                    "the day's files have the column {column}, which this version does not know; compact with a newer one"
                );
                all.left_out.push(LeftOut { file: folder, why });
                continue;
            }
            let bytes: u64 = good.iter().map(|file| file.meta.size).sum();
            if bytes > LARGEST {
                let why = format!("the day's files have {bytes} bytes; up to {LARGEST} are joined");
                all.left_out.push(LeftOut { file: folder, why });
                continue;
            }
            let stands_for = files.names.get(&(date.clone(), host.clone())).cloned().unwrap_or_default();
            match join(store, table, (&date, &host), &good, stands_for, most).await? {
                Ok(()) => {
                    all.partitions += 1;
                    for file in &good {
                        store.delete(&file.meta.location).await?;
                    }
                    all.deleted += good.len();
                }
                Err(left_out) => all.left_out.push(left_out),
            }
        }
        for file in files.replaced {
            store.delete(&file.meta.location).await?;
            all.deleted += 1;
        }
    }
    Ok(all)
}

async fn join(
    store: &Store,
    table: &Table,
    (date, host): (&str, &str),
    files: &[File],
    mut stands_for: Vec<String>,
    most: usize,
) -> Result<Result<(), LeftOut>, write::Error> {
    let (mut batches, mut room) = (Vec::new(), most);
    for file in files {
        let location = &file.meta.location;
        let read = match store.read(location).await {
            Ok(bytes) => rows(table, bytes.into(), &mut room).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok(Some(rows)) => batches.extend(rows),
            Ok(None) => {
                let file = format!("{}/date={date}/host={host}", table.name);
                let why = format!(
                    "the day's rows take more than {most} bytes of memory; up to that many are joined"
                );
                return Ok(Err(LeftOut { file, why }));
            }
            Err(why) => return Ok(Err(LeftOut { file: location.to_string(), why })),
        }
    }
    stands_for.extend(files.iter().map(|file| file.name.trim_end_matches(".parquet").to_owned()));
    stands_for.sort();
    stands_for.dedup();
    let generation =
        stands_for.iter().filter_map(|name| name.strip_prefix(COMPACTED)?.parse::<u32>().ok()).max();
    let generation = generation.unwrap_or(0).saturating_add(1);
    let file = path(table.name, date, host, &format!("{COMPACTED}{generation:06}"));
    let bytes = write::parquet(table, &batches, &stands_for)?;
    // If two compactions race, only one creates the file of this generation; the other finds that it exists.
    Ok(if store.create(&file, bytes).await? {
        Ok(())
    } else {
        Err(LeftOut { file: file.to_string(), why: "another compaction was faster".to_owned() })
    })
}

/// The rows of a file in the table's schema, with nulls in missing columns. Subtracts the memory that they
/// take from `room`; `None` if it is not enough.
fn rows(
    table: &Table,
    bytes: Bytes,
    room: &mut usize,
) -> Result<Option<Vec<RecordBatch>>, arrow::error::ArrowError> {
    let schema = table.schema();
    let mut batches = Vec::new();
    for batch in ParquetRecordBatchReaderBuilder::try_new(bytes)?.build()? {
        let batch = batch?;
        let column =
            |field: &std::sync::Arc<arrow::datatypes::Field>| match batch.column_by_name(field.name()) {
                Some(column) => std::sync::Arc::clone(column),
                None => arrow::array::new_null_array(field.data_type(), batch.num_rows()),
            };
        let batch = RecordBatch::try_new(schema.clone(), schema.fields().iter().map(column).collect())?;
        match room.checked_sub(batch.get_array_memory_size()) {
            Some(left) => *room = left,
            None => return Ok(None),
        }
        batches.push(batch);
    }
    Ok(Some(batches))
}

/// The old files of a data set.
#[derive(Debug, Default, Serialize)]
pub struct Old {
    /// The first day that is kept.
    pub keep_from: String,
    /// The number of files by table and day.
    pub days: BTreeMap<String, usize>,
    /// The number of files.
    pub files: usize,
    /// The size of the files, in bytes.
    pub bytes: u64,
    /// The files were deleted.
    pub deleted: bool,
}

/// Finds the files of days before `keep_from`, and deletes them if `apply` is true.
///
/// # Errors
/// The store failed. Files deleted before are gone.
pub async fn retain(store: &Store, keep_from: &str, apply: bool) -> Result<Old, write::Error> {
    let mut old = Old { keep_from: keep_from.to_owned(), deleted: apply, ..Old::default() };
    for table in TABLES {
        for file in store.files(table.name, &Days::default()).await? {
            if file.date.as_str() >= keep_from {
                continue;
            }
            if apply {
                store.delete(&file.meta.location).await?;
            }
            *old.days.entry(format!("{}/{}", table.name, file.date)).or_default() += 1;
            old.files += 1;
            old.bytes += file.meta.size;
        }
    }
    Ok(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{self, Origin};
    use crate::schema::{TABLE_KEY, VERSION, VERSION_KEY};
    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema};
    use chrono::DateTime;
    use object_store::ObjectStoreExt;
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::KeyValue;
    use parquet::file::properties::WriterProperties;
    use std::sync::Arc;

    /// Adds two VMs, which are in a file of their own.
    async fn add(store: &Store, second: i64) {
        let time = DateTime::from_timestamp(1_800_000_000 + second, 0).unwrap();
        let origin = Origin { file: "a test's".to_owned(), host: Some("web".to_owned()), time };
        let rows = document::rows(include_bytes!("../tests/fixtures/vms.json"), &origin).unwrap();
        write::rows(store, &rows).await.unwrap();
    }

    #[tokio::test]
    async fn the_day_of_a_joined_file_that_cannot_be_read_stays_as_it_is() {
        const UNTIL: &str = "2027-12-31";
        let store = Store::in_memory();
        for (seconds, joined) in [(0..3, 3), (3..4, 2)] {
            for second in seconds {
                add(&store, second).await;
            }
            assert_eq!(compact(&store, UNTIL).await.unwrap().deleted, joined);
        }
        let last = path("vms", "2027-01-15", "web", "compact-000002");
        let bytes = store.read(&last).await.unwrap();
        store.objects().put(&last, bytes[..bytes.len() / 2].to_vec().into()).await.unwrap();
        for second in 4..6 {
            add(&store, second).await;
        }
        let done = compact(&store, UNTIL).await.unwrap();
        assert_eq!((done.partitions, done.deleted, done.left_out.len()), (0, 0, 1), "{done:?}");
        // Once it can be read again, no row is missing.
        store.objects().put(&last, bytes.into()).await.unwrap();
        assert_eq!(compact(&store, UNTIL).await.unwrap().deleted, 3);
        let table = Table::named("vms").unwrap();
        let files = read::files(&store, table, &Days::default(), &read::Ends::default()).await.unwrap();
        let (mut count, mut room) = (0, LARGEST_ROWS);
        for file in files.good {
            let bytes = store.read(&file.meta.location).await.unwrap();
            let batches = rows(table, bytes.into(), &mut room).unwrap().unwrap();
            count += batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        }
        assert_eq!(count, 6 * 2);
    }

    /// The contents of a file of `vms` with a column that this version does not know.
    fn of_a_later_version(bytes: Vec<u8>) -> Vec<u8> {
        let mut room = LARGEST_ROWS;
        let known = rows(Table::named("vms").unwrap(), bytes.into(), &mut room).unwrap();
        let batch = known.unwrap().remove(0);
        let mut fields = batch.schema().fields().to_vec();
        fields.push(Arc::new(Field::new("extra", DataType::Int64, true)));
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(Int64Array::from(vec![7_i64; batch.num_rows()])));
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        let said = |key: &str, value: &str| KeyValue::new(key.to_owned(), value.to_owned());
        let metadata = vec![said(VERSION_KEY, VERSION), said(TABLE_KEY, "vms")];
        let properties = WriterProperties::builder().set_key_value_metadata(Some(metadata)).build();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        bytes
    }

    #[tokio::test]
    async fn a_day_with_a_column_of_a_later_version_keeps_it() {
        let store = Store::in_memory();
        for second in [0, 1] {
            add(&store, second).await;
        }
        let files = store.files("vms", &Days::default()).await.unwrap();
        let newer = &files[1].meta.location;
        let bytes = of_a_later_version(store.read(newer).await.unwrap());
        store.objects().put(newer, bytes.clone().into()).await.unwrap();
        let done = compact(&store, "2027-12-31").await.unwrap();
        assert_eq!((done.partitions, done.deleted), (0, 0));
        let told: Vec<_> = done.left_out.iter().map(|one| format!("{}: {}", one.file, one.why)).collect();
        assert_eq!(
            told,
            [
                "vms/date=2027-01-15/host=web: the day's files have the column extra, which this version does not know; \
                 compact with a newer one"
            ]
        );
        assert_eq!(store.files("vms", &Days::default()).await.unwrap().len(), 2);
        assert_eq!(store.read(newer).await.unwrap(), bytes);
    }

    #[tokio::test]
    async fn rows_that_take_too_much_memory_are_left_as_they_are_and_named() {
        let store = Store::in_memory();
        for second in [0, 1] {
            add(&store, second).await;
        }
        let small = compact_up_to(&store, "2027-12-31", 100).await.unwrap();
        assert_eq!((small.partitions, small.deleted), (0, 0));
        let told: Vec<_> = small.left_out.iter().map(|one| format!("{}: {}", one.file, one.why)).collect();
        assert_eq!(
            told,
            [
                "vms/date=2027-01-15/host=web: the day's rows take more than 100 bytes of memory; up to that many are joined"
            ]
        );
        assert_eq!(store.files("vms", &Days::default()).await.unwrap().len(), 2);
        let joined = compact(&store, "2027-12-31").await.unwrap();
        assert_eq!((joined.partitions, joined.deleted, joined.left_out.len()), (1, 2, 0));
    }
}
