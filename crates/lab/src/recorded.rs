//! The parts that all kinds of images share: a manifest that records files and packages, and building beside
//! the final place, so that an image is complete or absent.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::assemble::files_below;
use crate::cache::{Cache, InUse};
use crate::error::Error;
use crate::packages::{self, Package};
use crate::progress::{OnProgress, Progress, Step};
use crate::tree::{disk_usage, sha256, take_place, write};

/// The name of an image's manifest file.
pub(crate) const MANIFEST: &str = "manifest.json";

/// A package that an image was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageRecord {
    /// Debian's package name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SHA-256 of the package file, in hexadecimal.
    pub sha256: String,
}

/// A file of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// The path below the image's folder.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

/// The manifest of an image with a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest<K> {
    /// Identifies the recipe.
    pub key: String,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel_release: String,
    /// Facts that only this kind of image has.
    #[serde(flatten)]
    pub of_kind: K,
    /// Files whose hashes are checked.
    pub files: Vec<FileRecord>,
    /// The packages that the image was made from.
    pub packages: Vec<PackageRecord>,
}

impl<K> Manifest<K> {
    /// A manifest for the image in `folder`, with the files at `paths` below it.
    pub(crate) fn new(
        key: String,
        kernel_release: String,
        of_kind: K,
        (folder, paths): (&Path, impl IntoIterator<Item = String>),
        packages: &[Package],
    ) -> Result<Self, Error> {
        let files = files(folder, paths)?;
        Ok(Self { key, kernel_release, of_kind, files, packages: records(packages)? })
    }
}

/// A manifest with the files that it records.
pub(crate) trait Recorded: DeserializeOwned {
    /// The name of this type of manifest in error messages.
    const NAME: &'static str;

    /// The files to check.
    fn files(&self) -> &[FileRecord];
}

impl<K: DeserializeOwned> Recorded for Manifest<K> {
    const NAME: &'static str = "the manifest of an image";

    fn files(&self) -> &[FileRecord] {
        &self.files
    }
}

/// The manifest in `folder`, if there is one. Checks the sizes of the recorded files.
///
/// # Errors
/// [`Error::Damaged`] when files are missing or have another size.
pub(crate) fn find<M: Recorded>(folder: &Path) -> Result<Option<M>, Error> {
    let path = folder.join(MANIFEST);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::file("Could not read", path)(error)),
    };
    let manifest: M = serde_json::from_slice(&text)
        .map_err(|error| Error::Damaged { path, problem: format!("it is not {}: {error}", M::NAME) })?;
    for record in manifest.files() {
        let path = folder.join(&record.path);
        let size = path.metadata().map(|metadata| metadata.len());
        if size.as_ref().ok() != Some(&record.bytes) {
            let found = size.map_or_else(|error| error.to_string(), |size| format!("{size} bytes"));
            let problem = format!("expected {} bytes, found: {found}", record.bytes);
            return Err(Error::Damaged { path, problem });
        }
    }
    Ok(Some(manifest))
}

/// Writes the manifest of the image under construction in `folder`.
///
/// # Errors
/// [`Error::File`] when it cannot be written.
pub(crate) fn write_manifest<M: Recorded + Serialize>(folder: &Path, manifest: &M) -> Result<(), Error> {
    write(&folder.join(MANIFEST), &serde_json::to_vec_pretty(manifest).unwrap_or_default())
}

/// Compares the hash of every recorded file in `folder`.
///
/// # Errors
/// [`Error::Damaged`] naming the first file that differs.
pub(crate) fn verify(folder: &Path, files: &[FileRecord], on_progress: OnProgress<'_>) -> Result<(), Error> {
    let total = files.len() as u64;
    for (record, done) in files.iter().zip(0..) {
        on_progress(Progress { step: Step::Assemble, done, total });
        let path = folder.join(&record.path);
        let found = sha256(&path)?;
        if found != record.sha256 {
            let problem = format!("SHA-256 is {found}, and was {} when it was made", record.sha256);
            return Err(Error::Damaged { path, problem });
        }
    }
    Ok(())
}

/// The packages whose version is not the tested one: name, version, tested version.
fn drift<'a>(
    packages: &'a [PackageRecord],
    proven: &[(&'static str, &'static str)],
) -> Vec<(&'a str, &'a str, &'static str)> {
    let here = |&(name, proven)| Some((name, version_of(packages, name)?, proven));
    proven.iter().filter_map(here).filter(|(_, here, proven)| here != proven).collect()
}

/// The version of one of these packages.
pub(crate) fn version_of<'a>(packages: &'a [PackageRecord], name: &str) -> Option<&'a str> {
    packages.iter().find(|record| record.name == name).map(|record| record.version.as_str())
}

/// The records of files in `folder`.
pub(crate) fn files(
    folder: &Path,
    paths: impl IntoIterator<Item = String>,
) -> Result<Vec<FileRecord>, Error> {
    let record = |path: String| {
        let full = folder.join(&path);
        let bytes = full.metadata().map_err(Error::file("Could not look at", &full))?.len();
        Ok(FileRecord { path, bytes, sha256: sha256(&full)? })
    };
    paths.into_iter().map(record).collect()
}

/// The paths of all files below `below` in the image under construction in `folder`.
pub(crate) fn files_in(folder: &Path, below: &str) -> Vec<String> {
    let kept = files_below(&folder.join(below));
    let names = kept.iter().filter_map(|path| path.file_name()?.to_str());
    names.map(|name| format!("{below}/{name}")).collect()
}

/// The records of packages.
fn records(packages: &[Package]) -> Result<Vec<PackageRecord>, Error> {
    let record = |package: &Package| {
        let sha256 = sha256(&package.file)?;
        Ok(PackageRecord { name: package.name.clone(), version: package.version.clone(), sha256 })
    };
    packages.iter().map(record).collect()
}

/// The recipe of an image: what it is made from, where it is, and how it is made.
pub(crate) trait Recipe: Serialize + DeserializeOwned {
    /// The prefix of the names of such images' folders; the recipe's key follows it.
    const PREFIX: &'static str;
    /// The free disk space that building needs, in MiB.
    const SPACE_MIB: u64;
    /// The requested Debian packages; apt adds their dependencies.
    const PACKAGES: &'static [&'static str];
    /// The tested versions of packages.
    const PROVEN: &'static [(&'static str, &'static str)];
    /// The folder in the cache for building; removed at the end.
    const BUILDING: &'static str;

    /// Identifies the recipe.
    fn content_key() -> String;

    /// Makes the image's files in `folder` from the packages, using `root` for unpacking.
    fn make(
        packages: &[Package],
        root: &Path,
        folder: &Path,
        on_progress: OnProgress<'_>,
    ) -> Result<Manifest<Self>, Error>;

    /// The image of the current recipe, if it has been built.
    fn find(cache: &Cache) -> Result<Option<Built<Self>>, Error> {
        Built::in_folder(&Built::<Self>::place(cache))
    }
}

/// A finished image.
#[derive(Debug, Clone)]
pub struct Built<K> {
    folder: PathBuf,
    manifest: Manifest<K>,
    _in_use: InUse,
}

impl<K> Built<K> {
    /// The manifest: the facts about the image, its files and packages.
    pub fn manifest(&self) -> &Manifest<K> {
        &self.manifest
    }

    /// The size on disk, in bytes.
    pub fn disk_usage(&self) -> u64 {
        disk_usage(&self.folder)
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.join(below)
    }

    pub(crate) fn read(&self, below: &str) -> Result<Vec<u8>, Error> {
        let path = self.path(below);
        fs::read(&path).map_err(Error::file("Could not read", path))
    }
}

/// The place of an image, and what building needs.
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    /// The prefix of the names of folders that this image replaces.
    pub(crate) prefix: String,
    /// The name of the folder in the cache for building.
    pub(crate) building: String,
    /// The free disk space that building needs, in MiB.
    pub(crate) space_mib: u64,
}

/// Fetches the packages of an image; into the given folder, if they are not kept in the cache.
pub(crate) type Fetch<'a> = &'a dyn Fn(&Path, OnProgress<'_>) -> Result<Vec<Package>, Error>;
/// Makes the files of an image, like [`Recipe::make`].
pub(crate) type Make<'a, K> =
    &'a dyn Fn(&[Package], &Path, &Path, OnProgress<'_>) -> Result<Manifest<K>, Error>;

impl<K: Serialize + DeserializeOwned> Built<K> {
    /// Finds the image, or builds it. A build is assembled beside the image's place and renamed when
    /// complete, so that an incomplete image is never found.
    pub(crate) fn found_or_built(
        cache: &Cache,
        place: &Place,
        find: &dyn Fn() -> Result<Option<Self>, Error>,
        fetch: Fetch<'_>,
        make: Make<'_, K>,
        on_progress: OnProgress<'_>,
    ) -> Result<Self, Error> {
        if let Some(image) = find()? {
            return Ok(image);
        }
        let _lock = cache.lock_building(on_progress)?;
        // Another process may have built it while this one waited for the lock.
        if let Some(image) = find()? {
            return Ok(image);
        }
        cache.require_space(place.space_mib)?;
        let work = cache.root().join(&place.building);
        cache.discard(&work)?;
        let built = Self::build(&place.folder, &work, fetch, make, on_progress);
        let removed = cache.discard(&work);
        let image = built?;
        removed?;
        cache.remove_others(&place.prefix, &image.folder);
        Ok(image)
    }

    fn build(
        place: &Path,
        work: &Path,
        fetch: Fetch<'_>,
        make: Make<'_, K>,
        on_progress: OnProgress<'_>,
    ) -> Result<Self, Error> {
        let packages = fetch(work, on_progress)?;
        let folder = work.join("image");
        fs::create_dir_all(&folder).map_err(Error::file("Could not make", &folder))?;
        let manifest = make(&packages, &work.join("root"), &folder, on_progress)?;
        write_manifest(&folder, &manifest)?;
        take_place(&folder, place)?;
        Ok(Self { folder: place.to_owned(), manifest, _in_use: InUse::of(place) })
    }

    pub(crate) fn in_folder(folder: &Path) -> Result<Option<Self>, Error> {
        let in_use = InUse::of(folder);
        Ok(find(folder)?.map(|manifest| Self { folder: folder.to_owned(), manifest, _in_use: in_use }))
    }

    /// The names and contents of the recorded files in a folder of the image.
    pub(crate) fn files_below(&self, folder: &str) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let below = format!("{folder}/");
        let names = self.manifest.files.iter().filter_map(|file| file.path.strip_prefix(&below));
        names.map(|name| Ok((name.to_owned(), self.read(&format!("{below}{name}"))?))).collect()
    }

    /// Compares the hash of every recorded file.
    ///
    /// # Errors
    /// [`Error::Damaged`] naming the first file that differs.
    pub fn verify(&self, on_progress: OnProgress<'_>) -> Result<(), Error> {
        verify(&self.folder, &self.manifest.files, on_progress)
    }
}

#[expect(private_bounds, reason = "the kinds of images are this crate's")]
impl<K: Recipe> Built<K> {
    /// The image of the current recipe, if it exists and its files have the recorded sizes. In an emulated
    /// host, the guest image is the one that was passed to it.
    ///
    /// # Errors
    /// [`Error::Damaged`] when files are missing or have another size than was recorded.
    pub fn find(cache: &Cache) -> Result<Option<Self>, Error> {
        K::find(cache)
    }

    /// The image, built first if necessary. It is assembled beside its place and renamed when complete, so
    /// that an incomplete image is never found.
    ///
    /// # Errors
    /// When packages cannot be fetched or unpacked, when the disk is too small, or when the packages' kernel
    /// cannot be booted.
    pub fn find_or_build(cache: &Cache, on_progress: OnProgress<'_>) -> Result<Self, Error> {
        let place = Place {
            folder: Self::place(cache),
            prefix: K::PREFIX.to_owned(),
            building: K::BUILDING.to_owned(),
            space_mib: K::SPACE_MIB,
        };
        Self::found_or_built(
            cache,
            &place,
            &|| Self::find(cache),
            &|_, on_progress| packages::fetch(cache, K::PACKAGES, on_progress),
            &K::make,
            on_progress,
        )
    }

    /// The folder for the image of the current recipe.
    pub(crate) fn place(cache: &Cache) -> PathBuf {
        cache.root().join(format!("{}{}", K::PREFIX, K::content_key()))
    }

    /// The packages whose version is not the tested one: name, version, tested version.
    pub fn drift(&self) -> Vec<(&str, &str, &str)> {
        drift(&self.manifest.packages, K::PROVEN)
    }
}
