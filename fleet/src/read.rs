//! The files of a data set that can be read, and what is wrong with the others.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::Schema;
use futures::StreamExt;
use object_store::ObjectMeta;
use object_store::path::Path;
use parquet::DecodeResult;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::file::metadata::{FileMetaData, ParquetMetaData, ParquetMetaDataPushDecoder};

use crate::schema::{REPLACES_KEY, TABLE_KEY, Table, VERSION, VERSION_KEY};
use crate::store::{Days, Error, File, Store};

/// Files whose ends are read at the same time.
const AT_ONCE: usize = 16;
/// A table is listed again so often while its files are compacted or deleted.
const LOOKS: usize = 100;

/// A file that is left out.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct LeftOut {
    /// Its path below the store.
    pub file: String,
    /// Why.
    pub why: String,
}

/// The files of a table.
#[derive(Debug, Default)]
pub struct Files {
    /// Those to read.
    pub good: Vec<File>,
    /// Those that a compacted file stands for. Their rows are in it.
    pub replaced: Vec<File>,
    /// The names that compacted files stand for, by day and host: of files that may have gone.
    pub names: BTreeMap<(String, String), Vec<String>>,
    /// Those that cannot be read.
    pub left_out: Vec<LeftOut>,
}

/// The end of a file: what it says of itself.
#[derive(Debug)]
struct End {
    replaces: Vec<String>,
}

/// Sizes and ends of files.
type ByPath = HashMap<Path, (u64, Arc<End>)>;

/// Ends of files that were read before, of each table: files are never changed, so a look at the same store reads those alone
/// that are new.
#[derive(Debug, Default)]
pub struct Ends(Mutex<HashMap<&'static str, ByPath>>);

impl Ends {
    /// The ends of a table, which are then no longer here.
    fn take(&self, table: &'static str) -> ByPath {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(table).unwrap_or_default()
    }

    fn keep(&self, table: &'static str, ends: ByPath) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(table, ends);
    }
}

/// Looks at the files of a table: reads the end of each that is not in `known`, which then has those of all files.
///
/// A compaction may make a file and delete those that it stands for during a listing, which then has neither. So a listing
/// counts only if the next one lacks none of its files and has no other compacted file.
///
/// # Errors
/// The store cannot be listed, or files came and went each time.
pub async fn files(store: &Store, table: &Table, days: &Days, known: &Ends) -> Result<Files, Error> {
    let mut listed = store.files(table.name, days).await?;
    for _ in 0..LOOKS {
        let before: HashSet<Path> = listed.iter().map(|file| file.meta.location.clone()).collect();
        let found = found(store, table, listed, known).await;
        listed = store.files(table.name, days).await?;
        let (same, other): (Vec<_>, Vec<_>) =
            listed.iter().partition(|file| before.contains(&file.meta.location));
        if same.len() == before.len() && !other.into_iter().any(File::is_compacted) {
            return Ok(found);
        }
    }
    Err(Error::Changing { table: table.name })
}

/// What the files of a listing are.
async fn found(store: &Store, table: &Table, listed: Vec<File>, known: &Ends) -> Files {
    let before = known.take(table.name);
    let same = |meta: &ObjectMeta| {
        let (size, end) = before.get(&meta.location)?;
        (*size == meta.size).then(|| Arc::clone(end))
    };
    let mut ends = futures::stream::iter(listed)
        .map(|file| async {
            let end = match same(&file.meta) {
                Some(end) => Ok(Some(end)),
                None => end(store, table, &file).await.map(|end| end.map(Arc::new)),
            };
            (file, end)
        })
        .buffered(AT_ONCE);
    let mut kept = HashMap::new();
    let mut found = Files::default();
    let mut good = Vec::new();
    while let Some((file, end)) = ends.next().await {
        match end {
            Ok(Some(end)) => {
                let names = found.names.entry((file.date.clone(), file.host.clone())).or_default();
                names.extend(end.replaces.iter().cloned());
                kept.insert(file.meta.location.clone(), (file.meta.size, end));
                good.push(file);
            }
            // Compacted or expired since the list was made.
            Ok(None) => {}
            Err(why) => found.left_out.push(LeftOut { file: file.meta.location.to_string(), why }),
        }
    }
    drop(ends);
    known.keep(table.name, kept);
    let replaced: HashSet<[&str; 3]> = found
        .names
        .iter()
        .flat_map(|((date, host), names)| {
            names.iter().map(move |name| [date.as_str(), host.as_str(), name.as_str()])
        })
        .collect();
    for file in good {
        let name = file.name.trim_end_matches(".parquet");
        let is_replaced = replaced.contains(&[file.date.as_str(), file.host.as_str(), name]);
        if is_replaced { found.replaced.push(file) } else { found.good.push(file) }
    }
    found
}

/// The end of a file; `None` if the file has gone.
async fn end(store: &Store, table: &Table, file: &File) -> Result<Option<End>, String> {
    let metadata = match metadata(store, file).await {
        Ok(Some(metadata)) => metadata,
        Ok(None) => return Ok(None),
        Err(error) => return Err(format!("it is no whole Parquet file: {error}")),
    };
    let metadata = metadata.file_metadata();
    let version = said(metadata, VERSION_KEY)
        .ok_or("it has no exitless.schema in its metadata: another program wrote it")?;
    if version != VERSION {
        return Err(format!("its schema is version {version}, and this program reads {VERSION}"));
    }
    if said(metadata, TABLE_KEY) != Some(table.name) {
        return Err(format!(
            "it is of table {}, not of {}",
            said(metadata, TABLE_KEY).unwrap_or("none"),
            table.name
        ));
    }
    let schema = parquet_to_arrow_schema(metadata.schema_descr(), metadata.key_value_metadata())
        .map_err(|error| format!("its schema cannot be read: {error}"))?;
    fits(table, &schema)?;
    let replaces = said(metadata, REPLACES_KEY).unwrap_or_default().lines().map(ToOwned::to_owned).collect();
    Ok(Some(End { replaces }))
}

/// The metadata at the end of a file: reads no more than that. `None` if the file has gone.
async fn metadata(store: &Store, file: &File) -> anyhow::Result<Option<ParquetMetaData>> {
    let mut decoder = ParquetMetaDataPushDecoder::try_new(file.meta.size)?;
    loop {
        match decoder.try_decode()? {
            DecodeResult::NeedsData(ranges) => {
                match store.objects().get_ranges(&file.meta.location, &ranges).await {
                    Ok(bytes) => decoder.push_ranges(ranges, bytes)?,
                    Err(object_store::Error::NotFound { .. }) => return Ok(None),
                    Err(error) => return Err(error.into()),
                }
            }
            DecodeResult::Data(metadata) => return Ok(Some(metadata)),
            DecodeResult::Finished => anyhow::bail!("its metadata ends too early"),
        }
    }
}

fn said<'a>(metadata: &'a FileMetaData, key: &str) -> Option<&'a str> {
    metadata.key_value_metadata()?.iter().find(|one| one.key == key)?.value.as_deref()
}

/// A column may be missing if it may be null, and another one is nobody's; but what is there has its type.
fn fits(table: &Table, schema: &Schema) -> Result<(), String> {
    for field in table.schema().fields() {
        match schema.field_with_name(field.name()) {
            Ok(found) if found.data_type() != field.data_type() => {
                return Err(format!(
                    "column {} is {}, and should be {}",
                    field.name(),
                    found.data_type(),
                    field.data_type()
                ));
            }
            Err(_) if !field.is_nullable() => return Err(format!("column {} is missing", field.name())),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
