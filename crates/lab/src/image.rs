//! The image that all laboratories share: a kernel ready to enter, modules, a disk with Debian, and the emulators.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::assemble;
use crate::cache::{Cache, IMAGE_PREFIX, disk_usage};
use crate::error::Error;
use crate::kernel::FlatKernel;
use crate::packages;
use crate::progress::{OnProgress, Progress, Step};
use crate::recipe;
use crate::unpack;

/// What building needs on the disk while the packages, the unpacked tree and the image stand side by side, in MiB.
const SPACE_TO_BUILD: u64 = 3000;

/// A package that went into an image.
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
    /// Path below the image's folder.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

/// What an image is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Identifies the recipe.
    pub key: String,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel_release: String,
    /// Physical address at which the kernel lies.
    pub kernel_address: u64,
    /// Physical address of its PVH entry.
    pub kernel_entry: u64,
    /// Files that are checked.
    pub files: Vec<FileRecord>,
    /// Everything that went in.
    pub packages: Vec<PackageRecord>,
}

/// A finished image in the cache.
#[derive(Debug, Clone)]
pub struct Image {
    folder: PathBuf,
    manifest: Manifest,
}

pub(crate) const MANIFEST: &str = "manifest.json";
pub(crate) const KERNEL: &str = "kernel.flat";
pub(crate) const COMPRESSED_KERNEL: &str = "vmlinuz";
pub(crate) const DISK: &str = "disk.ext4";
pub(crate) const BUSYBOX: &str = "busybox";
pub(crate) const MODULES: &str = "modules";
pub(crate) const TOOLS: &str = "tools";

impl Image {
    /// The image of the current recipe, if it is there and whole by the sizes of its files.
    ///
    /// # Errors
    /// [`Error::Damaged`] when files are missing or have another size than was recorded.
    pub fn find(cache: &Cache) -> Result<Option<Self>, Error> {
        let folder = cache.image(&recipe::content_key());
        let path = folder.join(MANIFEST);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file("Could not read", path)(error)),
        };
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|error| Error::Damaged {
            path: path.clone(),
            problem: format!("not a manifest: {error}"),
        })?;
        let image = Self { folder, manifest };
        for record in &image.manifest.files {
            let path = image.folder.join(&record.path);
            let size = path.metadata().map(|metadata| metadata.len());
            if size.as_ref().ok() != Some(&record.bytes) {
                let found = size.map_or_else(|error| error.to_string(), |size| format!("{size} bytes"));
                return Err(Error::Damaged {
                    path,
                    problem: format!("expected {} bytes, found: {found}", record.bytes),
                });
            }
        }
        Ok(Some(image))
    }

    /// The image, built first if it is not there. Nothing half-built is ever taken for an image: it is assembled beside
    /// its place and renamed when whole.
    ///
    /// # Errors
    /// When packages cannot be fetched or unpacked, when the disk is too small, or when the kernel is not bootable.
    pub fn find_or_build(cache: &Cache, on_progress: OnProgress<'_>) -> Result<Self, Error> {
        if let Some(image) = Self::find(cache)? {
            return Ok(image);
        }
        let _lock = cache.lock_building()?;
        // Another process may have built it while this one waited.
        if let Some(image) = Self::find(cache)? {
            return Ok(image);
        }
        cache.require_space(SPACE_TO_BUILD)?;
        let packages = packages::fetch(cache, &recipe::PACKAGES, on_progress)?;
        let work = cache.root().join("building");
        remove(&work)?;
        let built = Self::build(cache, &packages, &work, on_progress);
        let removed = remove(&work);
        let image = built?;
        removed?;
        remove_other_images(cache, &image.folder);
        Ok(image)
    }

    fn build(
        cache: &Cache,
        packages: &[packages::Package],
        work: &Path,
        on_progress: OnProgress<'_>,
    ) -> Result<Self, Error> {
        let (root, folder) = (work.join("root"), work.join("image"));
        unpack::unpack(packages, &root, &recipe::LEFT_OUT, on_progress)?;
        fs::create_dir_all(&folder).map_err(Error::file("Could not make", &folder))?;
        let kernel = assemble::assemble(&root, &folder, on_progress)?;
        let manifest = manifest(&folder, packages, &kernel)?;
        let path = folder.join(MANIFEST);
        let text = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
        fs::write(&path, text).map_err(Error::file("Could not write", &path))?;
        let place = cache.image(&manifest.key);
        remove(&place)?;
        fs::rename(&folder, &place).map_err(Error::file("Could not move the finished image to", &place))?;
        Ok(Self { folder: place, manifest })
    }

    /// Compares the hash of every recorded file.
    ///
    /// # Errors
    /// [`Error::Damaged`] naming the first file that differs.
    pub fn verify(&self, on_progress: OnProgress<'_>) -> Result<(), Error> {
        let total = self.manifest.files.len() as u64;
        for (record, done) in self.manifest.files.iter().zip(0..) {
            on_progress(Progress { step: Step::Assemble, done, total });
            let path = self.folder.join(&record.path);
            let found = sha256(&path)?;
            if found != record.sha256 {
                let problem = format!("SHA-256 is {found}, and was {} when it was made", record.sha256);
                return Err(Error::Damaged { path, problem });
            }
        }
        Ok(())
    }

    /// What it is made of.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Bytes that it takes on the disk.
    pub fn disk_usage(&self) -> u64 {
        disk_usage(&self.folder)
    }

    /// Packages whose version is not the one with which the laboratories were proven: name, here, proven.
    pub fn drift(&self) -> Vec<(&str, &str, &str)> {
        let here = |name: &str| self.manifest.packages.iter().find(|package| package.name == name);
        recipe::PROVEN
            .iter()
            .filter_map(|&(name, proven)| Some((name, here(name)?.version.as_str(), proven)))
            .filter(|(_, version, proven)| version != proven)
            .collect()
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.join(below)
    }

    pub(crate) fn read(&self, below: &str) -> Result<Vec<u8>, Error> {
        let path = self.path(below);
        fs::read(&path).map_err(Error::file("Could not read", path))
    }

    pub(crate) fn kernel(&self) -> Result<FlatKernel, Error> {
        Ok(FlatKernel {
            address: self.manifest.kernel_address,
            bytes: self.read(KERNEL)?,
            entry: self.manifest.kernel_entry,
        })
    }
}

fn manifest(
    folder: &Path,
    packages: &[packages::Package],
    kernel: &assemble::Kernel,
) -> Result<Manifest, Error> {
    let mut paths =
        vec![KERNEL.to_owned(), COMPRESSED_KERNEL.to_owned(), DISK.to_owned(), BUSYBOX.to_owned()];
    paths.extend(kernel.modules.iter().map(|module| format!("{MODULES}/{module}")));
    paths.extend(assemble::EMULATORS.map(|program| format!("{TOOLS}/{program}")));
    let files = paths.into_iter().map(|path| {
        let full = folder.join(&path);
        let bytes = full.metadata().map_err(Error::file("Could not look at", &full))?.len();
        Ok(FileRecord { path, bytes, sha256: sha256(&full)? })
    });
    let packages = packages.iter().map(|package| {
        let sha256 = sha256(&package.file)?;
        Ok(PackageRecord { name: package.name.clone(), version: package.version.clone(), sha256 })
    });
    Ok(Manifest {
        key: recipe::content_key(),
        kernel_release: kernel.release.clone(),
        kernel_address: kernel.address,
        kernel_entry: kernel.entry,
        files: files.collect::<Result<_, Error>>()?,
        packages: packages.collect::<Result<_, Error>>()?,
    })
}

/// Images of other recipes serve no version of this program that is likely to come back.
fn remove_other_images(cache: &Cache, kept: &Path) {
    let entries =
        fs::read_dir(cache.root()).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let is_image = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(IMAGE_PREFIX)) && path != kept
    };
    for other in entries.filter(is_image) {
        if let Err(error) = remove(&other) {
            tracing::warn!("{error}");
        }
    }
}

/// SHA-256 of a file, in hexadecimal.
pub(crate) fn sha256(path: &Path) -> Result<String, Error> {
    let mut file = File::open(path).map_err(Error::file("Could not open", path))?;
    let mut hash = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece).map_err(Error::file("Could not read", path))? {
            0 => break,
            count => hash.update(&piece[..count]),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Removes a folder if it is there.
pub(crate) fn remove(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::file("Could not remove", folder)(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image_with(size: u64) -> (tempfile::TempDir, Cache) {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let folder = cache.image(&recipe::content_key());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(DISK), b"disk").unwrap();
        let record = FileRecord { path: DISK.into(), bytes: size, sha256: "00".into() };
        let manifest = Manifest {
            key: recipe::content_key(),
            kernel_release: "6.12".into(),
            kernel_address: 0,
            kernel_entry: 0,
            files: vec![record],
            packages: vec![PackageRecord {
                name: "bochs".into(),
                version: "9".into(),
                sha256: String::new(),
            }],
        };
        fs::write(folder.join(MANIFEST), serde_json::to_vec(&manifest).unwrap()).unwrap();
        (root, cache)
    }

    #[test]
    fn no_image_is_not_an_error() {
        let root = tempfile::tempdir().unwrap();
        assert!(Image::find(&Cache::at(root.path())).unwrap().is_none());
    }

    #[test]
    fn a_file_of_another_size_is_damage_that_says_what_to_do() {
        let (_root, cache) = image_with(5);
        let message = Image::find(&cache).unwrap_err().to_string();
        assert!(
            message.contains("expected 5 bytes, found: 4 bytes") && message.contains("lab clean"),
            "{message}"
        );
    }

    #[test]
    fn a_file_of_another_content_is_found_by_its_hash() {
        let (_root, cache) = image_with(4);
        let image = Image::find(&cache).unwrap().unwrap();
        assert!(matches!(image.verify(&mut |_| ()), Err(Error::Damaged { .. })));
    }

    #[test]
    fn versions_other_than_the_proven_ones_are_named() {
        let (_root, cache) = image_with(4);
        let image = Image::find(&cache).unwrap().unwrap();
        assert_eq!(image.drift(), [("bochs", "9", "3.0+dfsg-1")]);
    }
}
