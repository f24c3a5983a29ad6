//! The storage of a data set: a local folder or an object store. Files appear in it atomically.
//!
//! ```text
//! STORE/TABLE/date=YYYY-MM-DD/host=NAME/FILE.parquet
//! ```

use std::fs;
use std::io::Write;
use std::path::{Path as LocalPath, PathBuf};
use std::sync::Arc;

use futures::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use url::Url;

/// The extension of files that readers consider.
const EXTENSION: &str = ".parquet";
/// The prefix of files that are still being written; readers ignore them.
pub(crate) const UNFINISHED: &str = ".unfinished-";
/// The prefix of files that a compaction made; a generation number follows.
pub(crate) const COMPACTED: &str = "compact-";
/// The prefixes of environment variables that configure an object store.
const SETTINGS: &[&str] = &["aws_", "azure_", "google_", "allow_http"];

/// The reason why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The location is neither a path nor a URL of a known kind.
    #[error("--store {url}: it is not a folder, and not file://, s3://, gs:// or az://: {why}")]
    Url {
        /// The location as given.
        url: String,
        /// The problem with it.
        why: String,
    },
    /// The files of a table changed during every attempt to list it.
    #[error("the files of table {table} kept changing; ask again when compactions and deletions have ended")]
    Changing {
        /// The table.
        table: &'static str,
    },
    /// An operation on a local folder or file failed.
    #[error("{what} {path} failed", path = path.display())]
    Local {
        /// The failed operation.
        what: &'static str,
        /// The folder or file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// An operation on the object store failed.
    #[error("{what} {path} in the store failed")]
    Object {
        /// The failed operation.
        what: &'static str,
        /// The path below the store.
        path: String,
        /// The cause.
        source: object_store::Error,
    },
}

/// An open store.
#[derive(Debug, Clone)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    /// The folder of a local store. Files in it are not written through `object_store`, because that would
    /// leave partial files under names that some readers read.
    local: Option<PathBuf>,
}

/// A file of the data set.
#[derive(Debug, Clone)]
pub struct File {
    /// The table.
    pub table: String,
    /// The day of its partition, as in the path.
    pub date: String,
    /// The encoded host of its partition.
    pub host: String,
    /// The file name.
    pub name: String,
    /// Size and location.
    pub meta: ObjectMeta,
}

impl File {
    fn of(meta: ObjectMeta) -> Option<Self> {
        let mut parts = meta.location.as_ref().split('/');
        let (table, date, host, name) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let (date, host) = (date.strip_prefix("date=")?, host.strip_prefix("host=")?);
        let is_file = name.ends_with(EXTENSION) && !name.starts_with('.') && parts.next().is_none();
        let [table, date, host, name] = [table, date, host, name].map(ToOwned::to_owned);
        is_file.then_some(Self { table, date, host, name, meta })
    }

    /// Tests whether a compaction made the file.
    pub(crate) fn is_compacted(&self) -> bool {
        self.name.starts_with(COMPACTED)
    }
}

/// The path of a file below the store.
#[must_use]
pub fn path(table: &str, date: &str, host: &str, name: &str) -> Path {
    // All segments are already encoded.
    Path::parse(format!("{table}/date={date}/host={host}/{name}{EXTENSION}")).unwrap_or_default()
}

impl Store {
    /// Opens the store. Creates a local folder if `make` is true.
    ///
    /// # Errors
    /// The URL is not that of a store, or the folder does not exist or cannot be created.
    pub fn open(url: &str, make: bool) -> Result<Self, Error> {
        let wrong = |why: &dyn std::fmt::Display| Error::Url { url: url.to_owned(), why: why.to_string() };
        let folder = match Url::parse(url) {
            Ok(parsed) if parsed.scheme() == "file" => {
                Some(parsed.to_file_path().map_err(|()| wrong(&"the path has a host"))?)
            }
            Ok(parsed) if ["s3", "s3a", "gs", "az", "abfs", "abfss"].contains(&parsed.scheme()) => {
                let settings = std::env::vars_os().filter_map(|(key, value)| {
                    let key = key.into_string().ok()?.to_ascii_lowercase();
                    let is_one = SETTINGS.iter().any(|prefix| key.starts_with(prefix));
                    Some((key, value.into_string().ok()?)).filter(|_| is_one)
                });
                let (objects, prefix) =
                    object_store::parse_url_opts(&parsed, settings).map_err(|error| wrong(&error))?;
                return Ok(Self { objects: Arc::new(PrefixStore::new(objects, prefix)), local: None });
            }
            Ok(parsed) => return Err(wrong(&format!("{}:// is not known", parsed.scheme()))),
            // Not a URL, so it is a path.
            Err(_) => None,
        };
        let folder = folder.unwrap_or_else(|| PathBuf::from(url));
        let failed = |what, source| Error::Local { what, path: folder.clone(), source };
        if make {
            fs::create_dir_all(&folder).map_err(|source| failed("Making the folder", source))?;
        }
        let folder = fs::canonicalize(&folder).map_err(|source| failed("Opening the folder", source))?;
        let objects = LocalFileSystem::new_with_prefix(&folder).map_err(|error| wrong(&error))?;
        Ok(Self { objects: Arc::new(objects.with_automatic_cleanup(true)), local: Some(folder) })
    }

    /// A store in memory, for this process only.
    #[must_use]
    pub fn in_memory() -> Self {
        Self { objects: Arc::new(object_store::memory::InMemory::new()), local: None }
    }

    /// A store with these objects.
    #[cfg(test)]
    pub(crate) fn of(objects: Arc<dyn ObjectStore>) -> Self {
        Self { objects, local: None }
    }

    /// The object store, with paths relative to the store's root.
    #[must_use]
    pub fn objects(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.objects)
    }

    /// Writes a file that does not exist yet; it is complete and durable when this returns. Returns `false`
    /// without writing if it exists.
    ///
    /// # Errors
    /// The file could not be written. No part of it is visible to readers.
    pub async fn create(&self, path: &Path, bytes: Vec<u8>) -> Result<bool, Error> {
        if let Some(folder) = &self.local {
            let path = folder.join(path.as_ref());
            let written = tokio::task::spawn_blocking(move || create_local(&path, &bytes));
            return written.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        }
        use object_store::Error::{AlreadyExists, NotFound, PermissionDenied};
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let error = match self.objects.put_opts(path, PutPayload::from(bytes), options).await {
            Ok(_) => return Ok(true),
            // S3 answers with 409 also while another request writes the object, which may still fail.
            Err(refused @ AlreadyExists { .. }) => match self.objects.head(path).await {
                // An agent that may only write cannot look.
                Ok(_) | Err(PermissionDenied { .. }) => return Ok(false),
                Err(NotFound { .. }) => refused,
                Err(error) => error,
            },
            Err(error) => error,
        };
        Err(Error::Object { what: "Writing", path: path.to_string(), source: error })
    }

    /// The files of a table from one day to another, both included. Ignores paths that do not belong to a
    /// data set.
    ///
    /// # Errors
    /// The store cannot be listed.
    pub async fn files(&self, table: &str, days: &Days) -> Result<Vec<File>, Error> {
        let failed = |source| Error::Object { what: "Listing", path: table.to_owned(), source };
        let below = Path::from(table);
        // Skip days without listing their folders.
        let folders = self.objects.list_with_delimiter(Some(&below)).await.map_err(failed)?.common_prefixes;
        let mut files = Vec::new();
        for folder in folders {
            let date = folder.filename().and_then(|name| name.strip_prefix("date="));
            if !date.is_some_and(|date| days.have(date)) {
                continue;
            }
            let mut listed = self.objects.list(Some(&folder));
            while let Some(meta) = listed.try_next().await.map_err(failed)? {
                files.extend(File::of(meta));
            }
        }
        files.sort_by(|one, other| one.meta.location.cmp(&other.meta.location));
        Ok(files)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn read(&self, path: &Path) -> Result<Vec<u8>, object_store::Error> {
        Ok(self.objects.get(path).await?.bytes().await?.into())
    }

    /// Deletes a file. A file that does not exist is no error.
    ///
    /// # Errors
    /// The file could not be deleted.
    pub async fn delete(&self, path: &Path) -> Result<(), Error> {
        match self.objects.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(Error::Object { what: "Deleting", path: path.to_string(), source }),
        }
    }

    /// In a local store, deletes unfinished files older than a day in the folder of `file`.
    pub fn sweep(&self, file: &File) {
        let Some(folder) = &self.local else { return };
        let folder = folder.join(file.meta.location.as_ref());
        let Some(folder) = folder.parent() else { return };
        let old = |entry: &fs::DirEntry| {
            let age = entry.metadata().and_then(|meta| meta.modified()).ok()?.elapsed().ok()?;
            Some(age.as_secs() > 24 * 60 * 60)
        };
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) && old(&entry) == Some(true) {
                // Ignore an error: another sweep may have deleted it first.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn create_local(path: &LocalPath, bytes: &[u8]) -> Result<bool, Error> {
    let failed = |what| move |source| Error::Local { what, path: path.to_owned(), source };
    let folder = path.parent().unwrap_or(path);
    let make = || fs::create_dir_all(folder).map_err(failed("Making the folder of"));
    make()?;
    match write_whole(folder, path, bytes) {
        // The folder was deleted together with its last file; create it again.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            make()?;
            write_whole(folder, path, bytes)
        }
        written => written,
    }
    .map_err(failed("Writing"))
}

/// Writes a file under a temporary name, syncs it and renames it. Returns `false` if the name is taken.
///
/// # Errors
/// The cause. The file does not exist then.
pub fn write_whole(folder: &LocalPath, path: &LocalPath, bytes: &[u8]) -> std::io::Result<bool> {
    let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)?;
    file.write_all(bytes)?;
    // Allow other users to read it.
    use std::os::unix::fs::PermissionsExt;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Ok(_) => {}
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(false),
        Err(error) => return Err(error.error),
    }
    fs::File::open(folder)?.sync_all()?;
    Ok(true)
}

/// A range of days, both ends included; a missing end is unbounded.
#[derive(Debug, Clone, Default)]
pub struct Days {
    /// The first day, as `YYYY-MM-DD`.
    pub since: Option<String>,
    /// The last day.
    pub until: Option<String>,
}

impl Days {
    /// Tests whether a text is a day within the range.
    #[must_use]
    pub fn have(&self, date: &str) -> bool {
        // Days in this format sort as text.
        is_day(date)
            && self.since.as_deref().is_none_or(|since| since <= date)
            && self.until.as_deref().is_none_or(|until| date <= until)
    }
}

/// Tests whether a text is a day in the format YYYY-MM-DD.
#[must_use]
pub fn is_day(date: &str) -> bool {
    date.len() == 10 && chrono::NaiveDate::parse_from_str(date, "%Y-%m-%d").is_ok()
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use futures::stream::BoxStream;
    use object_store::memory::InMemory;
    use object_store::{
        CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, PutMultipartOptions, PutResult,
        Result,
    };

    use super::*;

    /// A store that answers each request to write that another one is under way.
    #[derive(Debug)]
    struct Conflicting(InMemory);

    impl std::fmt::Display for Conflicting {
        fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.fmt(to)
        }
    }

    #[async_trait]
    impl ObjectStore for Conflicting {
        async fn put_opts(&self, path: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
            Err(object_store::Error::AlreadyExists { path: path.to_string(), source: "409 Conflict".into() })
        }

        async fn put_multipart_opts(
            &self,
            path: &Path,
            options: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.0.put_multipart_opts(path, options).await
        }

        async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
            self.0.get_opts(path, options).await
        }

        fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
            self.0.delete_stream(paths)
        }

        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
            self.0.list(prefix)
        }

        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
            self.0.list_with_delimiter(prefix).await
        }

        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
            self.0.copy_opts(from, to, options).await
        }
    }

    #[tokio::test]
    async fn an_object_that_another_request_writes_does_not_exist_yet() {
        let objects = InMemory::new();
        let (there, missing) = (Path::from("there"), Path::from("missing"));
        objects.put(&there, "x".into()).await.unwrap();
        let store = Store::of(Arc::new(Conflicting(objects)));
        assert!(!store.create(&there, Vec::new()).await.unwrap());
        let error = store.create(&missing, Vec::new()).await.unwrap_err();
        assert_eq!(error.to_string(), "Writing missing in the store failed");
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        assert!(cause.is_some_and(|cause| cause.contains("409 Conflict")), "{error:?}");
    }
}
