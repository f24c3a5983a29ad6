//! The image of the Xen host: the hypervisor, the kernel and the modules of its privileged domain, and that domain's
//! disk. The emulator is that of the image which all laboratories share.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::assemble::write;
use crate::cache::{Cache, disk_usage};
use crate::error::Error;
use crate::image::{DISK, FileRecord, MANIFEST, MODULES, PackageRecord, remove, sha256};
use crate::packages::{self, Package};
use crate::progress::{Effort, OnProgress, Progress, Step};
use crate::recipe;
use crate::unpack;
use crate::xen_disk::{self, Assembled};
use crate::xen_recipe;

/// What building the image of the Xen host takes, beyond the image that all laboratories share.
pub const XEN_BUILD_EFFORT: Effort =
    Effort { download_mib: 125, disk_mib: 430, time: Duration::from_secs(30) };

pub(crate) const HYPERVISOR: &str = "xen.elf";
pub(crate) const KERNEL: &str = "vmlinux";
const SPACE_TO_BUILD: u64 = 2000;

/// What the image of the Xen host is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XenManifest {
    /// Identifies the recipe.
    pub key: String,
    /// The release of the privileged domain's kernel, as `uname -r` prints it.
    pub kernel_release: String,
    /// Modules that the privileged domain loads first, in that order.
    pub modules: Vec<String>,
    /// Its files.
    pub files: Vec<FileRecord>,
    /// Everything that went in.
    pub packages: Vec<PackageRecord>,
}

/// A finished image of the Xen host.
#[derive(Debug, Clone)]
pub struct XenImage {
    folder: PathBuf,
    manifest: XenManifest,
}

impl XenImage {
    /// The image of the current recipe, if it is there and whole by the sizes of its files.
    ///
    /// # Errors
    /// [`Error::Damaged`] when files are missing or have another size than was recorded.
    pub fn find(cache: &Cache) -> Result<Option<Self>, Error> {
        let folder = cache.xen_image(&xen_recipe::content_key());
        let path = folder.join(MANIFEST);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file("Could not read", path)(error)),
        };
        let damaged = |path: &Path, problem: String| Error::Damaged { path: path.to_owned(), problem };
        let manifest: XenManifest = serde_json::from_slice(&text)
            .map_err(|error| damaged(&path, format!("not a manifest of a Xen host: {error}")))?;
        for record in &manifest.files {
            let path = folder.join(&record.path);
            let found = path.metadata().map_err(|error| damaged(&path, error.to_string()))?.len();
            if found != record.bytes {
                let problem = format!("expected {} bytes, found: {found} bytes", record.bytes);
                return Err(damaged(&path, problem));
            }
        }
        Ok(Some(Self { folder, manifest }))
    }

    /// The image, built first if it is not there. Nothing half-built is ever taken for an image.
    ///
    /// # Errors
    /// When packages cannot be fetched or unpacked, when the disk is too small, or when the hypervisor or its kernel is
    /// not what can be booted.
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
        let packages = packages::fetch(cache, &xen_recipe::PACKAGES, on_progress)?;
        let work = cache.root().join("building-xen");
        remove(&work)?;
        let built = Self::build(cache, &packages, &work, on_progress);
        let removed = remove(&work);
        let image = built?;
        removed?;
        cache.remove_other_xen_images(&image.folder);
        Ok(image)
    }

    fn build(
        cache: &Cache,
        packages: &[Package],
        work: &Path,
        on_progress: OnProgress<'_>,
    ) -> Result<Self, Error> {
        let (root, folder) = (work.join("root"), work.join("image"));
        let left_out: Vec<&str> = recipe::LEFT_OUT.iter().chain(&xen_recipe::LEFT_OUT).copied().collect();
        unpack::unpack(packages, &root, &left_out, on_progress)?;
        let assembled = xen_disk::assemble(&root, &folder, on_progress)?;
        let manifest = manifest(&folder, packages, assembled)?;
        write(&folder.join(MANIFEST), &serde_json::to_vec_pretty(&manifest).unwrap_or_default())?;
        let place = cache.xen_image(&manifest.key);
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
    pub fn manifest(&self) -> &XenManifest {
        &self.manifest
    }

    /// Bytes that it takes on the disk.
    pub fn disk_usage(&self) -> u64 {
        disk_usage(&self.folder)
    }

    /// The hypervisor's version, as Debian's package has it.
    pub fn hypervisor_version(&self) -> Option<&str> {
        self.version_of(xen_recipe::PROVEN[0].0)
    }

    /// Packages whose version is not the one with which the laboratory was proven: name, here, proven.
    pub fn drift(&self) -> Vec<(&str, &str, &str)> {
        let here = |(name, proven)| Some((name, self.version_of(name)?, proven));
        xen_recipe::PROVEN.into_iter().filter_map(here).filter(|(_, here, proven)| here != proven).collect()
    }

    fn version_of(&self, package: &str) -> Option<&str> {
        let found = self.manifest.packages.iter().find(|record| record.name == package);
        found.map(|record| record.version.as_str())
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.join(below)
    }

    /// A module that the privileged domain loads first.
    pub(crate) fn module(&self, file: &str) -> Result<Vec<u8>, Error> {
        let path = self.folder.join(MODULES).join(file);
        fs::read(&path).map_err(Error::file("Could not read", path))
    }
}

fn manifest(folder: &Path, packages: &[Package], assembled: Assembled) -> Result<XenManifest, Error> {
    let modules = assembled.modules.iter().map(|module| format!("{MODULES}/{module}"));
    let files = [HYPERVISOR, KERNEL, DISK].map(str::to_owned).into_iter().chain(modules).map(|path| {
        let full = folder.join(&path);
        let bytes = full.metadata().map_err(Error::file("Could not look at", &full))?.len();
        Ok(FileRecord { path, bytes, sha256: sha256(&full)? })
    });
    let packages = packages.iter().map(|package| {
        let sha256 = sha256(&package.file)?;
        Ok(PackageRecord { name: package.name.clone(), version: package.version.clone(), sha256 })
    });
    Ok(XenManifest {
        key: xen_recipe::content_key(),
        kernel_release: assembled.kernel_release.clone(),
        files: files.collect::<Result<_, Error>>()?,
        packages: packages.collect::<Result<_, Error>>()?,
        modules: assembled.modules,
    })
}

#[cfg(test)]
#[path = "xen_image_tests.rs"]
mod tests;
