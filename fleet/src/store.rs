//! The place of a data set: a local folder, or an object store. Files appear in it whole or not at all.
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

/// What a reader takes for a file of the data set.
const EXTENSION: &str = ".parquet";
/// Begins the name of a file that is being written; readers leave out such names.
const UNFINISHED: &str = ".unfinished-";
/// Begins the name of a file that a compaction made; its generation follows.
pub(crate) const COMPACTED: &str = "compact-";
/// Keys of the environment that are given to an object store begin so.
const SETTINGS: &[&str] = &["aws_", "azure_", "google_", "allow_http"];

/// Why the place cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither a path nor a URL of a kind that is known.
    #[error("--store {url}: it is not a folder, and not file://, s3://, gs:// or az://: {why}")]
    Url {
        /// As it was given.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// Files came and went each time that a table was listed.
    #[error("the files of table {table} kept changing; ask again when compactions and deletions have ended")]
    Changing {
        /// The table.
        table: &'static str,
    },
    /// A local folder or file.
    #[error("{what} {path} failed", path = path.display())]
    Local {
        /// What was tried.
        what: &'static str,
        /// The folder or file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The object store's.
    #[error("{what} {path} in the store failed")]
    Object {
        /// What was tried.
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
    /// The folder, if it is local. Files are written there without the object store, which would leave the beginning of a
    /// file under a name that some readers read.
    local: Option<PathBuf>,
}

/// A file of the data set.
#[derive(Debug, Clone)]
pub struct File {
    /// Its table.
    pub table: String,
    /// The day of its partition, as in the path.
    pub date: String,
    /// The value of its partition `host`, encoded.
    pub host: String,
    /// Its name.
    pub name: String,
    /// The rest.
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

    /// Tests whether a compaction made it.
    pub(crate) fn is_compacted(&self) -> bool {
        self.name.starts_with(COMPACTED)
    }
}

/// The path of a file below the store.
#[must_use]
pub fn path(table: &str, date: &str, host: &str, name: &str) -> Path {
    // Of segments that are encoded already.
    Path::parse(format!("{table}/date={date}/host={host}/{name}{EXTENSION}")).unwrap_or_default()
}

impl Store {
    /// Opens the store. A local folder is made if `make` says so.
    ///
    /// # Errors
    /// The URL is not one of a store, or the folder is not there or cannot be made.
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
            // A path.
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

    /// A store in memory, which ends with the program.
    #[must_use]
    pub fn in_memory() -> Self {
        Self { objects: Arc::new(object_store::memory::InMemory::new()), local: None }
    }

    /// A store of these objects.
    #[cfg(test)]
    pub(crate) fn of(objects: Arc<dyn ObjectStore>) -> Self {
        Self { objects, local: None }
    }

    /// The files as objects, below the store's root.
    #[must_use]
    pub fn objects(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.objects)
    }

    /// Writes a file: whole, durable and under its name when this returns, and not there before. `false` if it is there
    /// already; then nothing was written.
    ///
    /// # Errors
    /// It could not be written; then nothing of it is there under a name that readers read.
    pub async fn create(&self, path: &Path, bytes: Vec<u8>) -> Result<bool, Error> {
        if let Some(folder) = &self.local {
            let path = folder.join(path.as_ref());
            let written = tokio::task::spawn_blocking(move || create_local(&path, &bytes));
            return written.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        }
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.objects.put_opts(path, PutPayload::from(bytes), options).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(source) => Err(Error::Object { what: "Writing", path: path.to_string(), source }),
        }
    }

    /// The files of a table between two days, both included; paths that are none of the data set are left out.
    ///
    /// # Errors
    /// The store cannot be listed.
    pub async fn files(&self, table: &str, days: &Days) -> Result<Vec<File>, Error> {
        let failed = |source| Error::Object { what: "Listing", path: table.to_owned(), source };
        let below = Path::from(table);
        // Whole days are left out without listing them.
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

    /// The content of a file.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn read(&self, path: &Path) -> Result<Vec<u8>, object_store::Error> {
        Ok(self.objects.get(path).await?.bytes().await?.into())
    }

    /// Deletes a file; one that is not there is no error.
    ///
    /// # Errors
    /// It could not be deleted.
    pub async fn delete(&self, path: &Path) -> Result<(), Error> {
        match self.objects.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(Error::Object { what: "Deleting", path: path.to_string(), source }),
        }
    }

    /// Deletes what kills left behind in a folder of a local store, if it is older than a day.
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
                // Another sweep may have been faster.
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
        // The last file of a folder is deleted together with the folder.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            make()?;
            write_whole(folder, path, bytes)
        }
        written => written,
    }
    .map_err(failed("Writing"))
}

/// Writes a file beside its place, syncs it and gives it its name. `false` if that name is there already.
///
/// # Errors
/// The cause; the name is not there then.
pub fn write_whole(folder: &LocalPath, path: &LocalPath, bytes: &[u8]) -> std::io::Result<bool> {
    let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)?;
    file.write_all(bytes)?;
    // Readers may be other users.
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

/// Days from one to another, both included; no end is open.
#[derive(Debug, Clone, Default)]
pub struct Days {
    /// The first, as `YYYY-MM-DD`.
    pub since: Option<String>,
    /// The last.
    pub until: Option<String>,
}

impl Days {
    /// Whether this text is a day, and one of them.
    #[must_use]
    pub fn have(&self, date: &str) -> bool {
        // Days of this form sort as texts.
        is_day(date)
            && self.since.as_deref().is_none_or(|since| since <= date)
            && self.until.as_deref().is_none_or(|until| date <= until)
    }
}

/// Whether a text is a day of the form YYYY-MM-DD.
#[must_use]
pub fn is_day(date: &str) -> bool {
    date.len() == 10 && chrono::NaiveDate::parse_from_str(date, "%Y-%m-%d").is_ok()
}
