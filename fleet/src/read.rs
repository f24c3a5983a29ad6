//! Finds the readable files of a data set, and the problems with the others.

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

/// The number of files whose metadata are read at the same time.
const AT_ONCE: usize = 16;
/// The most attempts to list a table while compactions and deletions change it.
const LOOKS: usize = 100;

/// A file that is left out.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize)]
pub struct LeftOut {
    /// The path below the store.
    pub file: String,
    /// The reason.
    pub why: String,
}

/// The files of a table.
#[derive(Debug, Default)]
pub struct Files {
    /// The files to read.
    pub good: Vec<File>,
    /// The files that a compacted file replaces: it has their rows.
    pub replaced: Vec<File>,
    /// The names of the files that compacted files replace, by day and host. Those files may be gone.
    pub names: BTreeMap<(String, String), Vec<String>>,
    /// A column that this program does not know, by the day and host of the files that have it.
    pub unknown: BTreeMap<(String, String), String>,
    /// The files that cannot be read.
    pub left_out: Vec<LeftOut>,
}

/// The part of a file's metadata, which is at its end, that is used here.
#[derive(Debug)]
struct End {
    replaces: Vec<String>,
    /// The first column that this program does not know.
    unknown: Option<String>,
}

/// The size and metadata of each file.
type ByPath = HashMap<Path, (u64, Arc<End>)>;

/// The metadata of files that have been read, by table. Files never change, so another look at the store
/// reads only new ones.
#[derive(Debug, Default)]
pub struct Ends(Mutex<HashMap<&'static str, ByPath>>);

impl Ends {
    /// Removes and returns the metadata of a table.
    fn take(&self, table: &'static str) -> ByPath {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(table).unwrap_or_default()
    }

    fn keep(&self, table: &'static str, ends: ByPath) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(table, ends);
    }
}

/// Examines the files of a table. Reads the metadata of those that are not in `known`, which then has all of
/// them.
///
/// While the store is listed, a compaction may create a file and delete those it replaces, so that the
/// listing has neither. So a listing is valid only if the next one still has all its files, and no new
/// compacted file.
///
/// # Errors
/// The store cannot be listed, or its files changed during each attempt.
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

/// Sorts the files of a listing into readable, replaced and unreadable ones.
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
                let part = (file.date.clone(), file.host.clone());
                if let Some(column) = &end.unknown {
                    found.unknown.insert(part.clone(), column.clone());
                }
                found.names.entry(part).or_default().extend(end.replaces.iter().cloned());
                kept.insert(file.meta.location.clone(), (file.meta.size, end));
                good.push(file);
            }
            // Compacted or deleted since the listing.
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

/// Reads and checks a file's metadata; `None` if the file is gone.
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
    let known = table.schema();
    let unknown = schema.fields().iter().find(|field| known.field_with_name(field.name()).is_err());
    let unknown = unknown.map(|field| field.name().clone());
    let replaces = said(metadata, REPLACES_KEY).unwrap_or_default().lines().map(ToOwned::to_owned).collect();
    Ok(Some(End { replaces, unknown }))
}

/// Reads only the metadata at the end of a file; `None` if the file is gone.
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

/// Checks a file's schema. Columns that may be null may be missing, and unknown columns are ignored, but
/// known ones must have the right type.
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
