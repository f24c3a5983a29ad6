//! The image of the Xen host: the hypervisor, the kernel and the modules of its privileged domain, and that domain's
//! disk. The emulator is that of the image which all laboratories share.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cache::{Cache, disk_usage};
use crate::definition::Emulator;
use crate::error::Error;
use crate::image::{DISK, MODULES};
use crate::packages::Package;
use crate::progress::{Effort, OnProgress};
use crate::recipe;
use crate::recorded::{self, Building, FileRecord, PackageRecord, Recorded, take_place};
use crate::unpack;
use crate::xen_disk::{self, Assembled};
use crate::xen_recipe;

/// What building the image of the Xen host takes, beyond the image that all laboratories share.
pub const XEN_BUILD_EFFORT: Effort =
    Effort { download_mib: 125, disk_mib: 430, time: Duration::from_secs(30) };

pub(crate) const HYPERVISOR: &str = "xen.elf";
pub(crate) const KERNEL: &str = "vmlinux";
const SPACE_TO_BUILD: u64 = 2000;

/// Modules of a privileged domain, each list in the order of loading.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct XenModules {
    /// Those of Xen and of the file system.
    pub always: Vec<String>,
    /// Those of the disk that QEMU gives it.
    pub virtio: Vec<String>,
    /// Those of the disk that Bochs gives it.
    pub ata: Vec<String>,
}

impl XenModules {
    /// All of them, each once.
    pub(crate) fn all(&self) -> Vec<&String> {
        let mut all: Vec<&String> = Vec::new();
        for module in self.always.iter().chain(&self.virtio).chain(&self.ata) {
            if !all.contains(&module) {
                all.push(module);
            }
        }
        all
    }

    /// Those that `emulator`'s machine needs.
    pub(crate) fn needed(&self, emulator: Emulator) -> impl Iterator<Item = &String> {
        let disk = match emulator {
            Emulator::Bochs => &self.ata,
            Emulator::Qemu => &self.virtio,
        };
        self.always.iter().chain(disk)
    }
}

/// What the image of the Xen host is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XenManifest {
    /// Identifies the recipe.
    pub key: String,
    /// The release of the privileged domain's kernel, as `uname -r` prints it.
    pub kernel_release: String,
    /// Modules that the privileged domain loads first.
    pub modules: XenModules,
    /// Its files.
    pub files: Vec<FileRecord>,
    /// Everything that went in.
    pub packages: Vec<PackageRecord>,
}

impl Recorded for XenManifest {
    const KIND: &'static str = "a manifest of a Xen host";

    fn files(&self) -> &[FileRecord] {
        &self.files
    }
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
        Ok(recorded::find(&folder)?.map(|manifest| Self { folder, manifest }))
    }

    /// The image, built first if it is not there. Nothing half-built is ever taken for an image.
    ///
    /// # Errors
    /// When packages cannot be fetched or unpacked, when the disk is too small, or when the hypervisor or its kernel is
    /// not what can be booted.
    pub fn find_or_build(cache: &Cache, on_progress: OnProgress<'_>) -> Result<Self, Error> {
        let building =
            Building { space_mib: SPACE_TO_BUILD, packages: &xen_recipe::PACKAGES, folder: "building-xen" };
        recorded::find_or_build(
            cache,
            &building,
            on_progress,
            Self::find,
            |packages, work, on_progress| Self::build(cache, packages, work, on_progress),
            |image| cache.remove_other_xen_images(&image.folder),
        )
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
        recorded::write_manifest(&folder, &manifest)?;
        let place = cache.xen_image(&manifest.key);
        take_place(&folder, &place)?;
        Ok(Self { folder: place, manifest })
    }

    /// Compares the hash of every recorded file.
    ///
    /// # Errors
    /// [`Error::Damaged`] naming the first file that differs.
    pub fn verify(&self, on_progress: OnProgress<'_>) -> Result<(), Error> {
        recorded::verify(&self.folder, &self.manifest.files, on_progress)
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
        recorded::version_of(&self.manifest.packages, xen_recipe::PROVEN[0].0)
    }

    /// Packages whose version is not the one with which the laboratory was proven: name, here, proven.
    pub fn drift(&self) -> Vec<(&str, &str, &str)> {
        recorded::drift(&self.manifest.packages, &xen_recipe::PROVEN)
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
    let modules = assembled.modules.all().into_iter().map(|module| format!("{MODULES}/{module}"));
    let files = [HYPERVISOR, KERNEL, DISK].map(str::to_owned).into_iter().chain(modules);
    Ok(XenManifest {
        key: xen_recipe::content_key(),
        kernel_release: assembled.kernel_release.clone(),
        files: recorded::files(folder, files)?,
        packages: recorded::packages(packages)?,
        modules: assembled.modules,
    })
}

#[cfg(test)]
#[path = "xen_image_tests.rs"]
mod tests;
