//! The image that guests of studies are started from: a kernel, an initial RAM disk, and a root with the tools that plans
//! run. All guests share it: the root is read as it is needed, and what a guest changes stays in its memory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::assemble::{copy, find_kernel, list_modules, make_disk, write};
use crate::cache::{Cache, disk_usage};
use crate::error::Error;
use crate::guest_initial_ram_disk;
use crate::guest_recipe;
use crate::kernel::unpack_bzimage;
use crate::packages::Package;
use crate::progress::{Effort, OnProgress, Progress, Step};
use crate::recipe;
pub(crate) use crate::recorded::MANIFEST;
use crate::recorded::{self, Building, FileRecord, PackageRecord, Recorded, remove, take_place};
use crate::unpack;

/// What building the guest image takes. With the laboratories' packages in the cache 4 MiB are downloaded.
pub const GUEST_BUILD_EFFORT: Effort =
    Effort { download_mib: 109, disk_mib: 270, time: Duration::from_secs(60) };

/// Where an emulated host finds the image that it was given as a disk.
pub(crate) const IN_LABORATORY: &str = "/run/exitless/guest-image";
/// Folder, in the root of the image, of its other files.
pub(crate) const BESIDE_THE_ROOT: &str = "exitless";
pub(crate) const ROOT: &str = "root.ext4";
pub(crate) const KERNEL: &str = "vmlinux";
pub(crate) const COMPRESSED_KERNEL: &str = "vmlinuz";
pub(crate) const INITIAL_RAM_DISK: &str = "initrd.img";

const SPACE_TO_BUILD: u64 = 1500;
/// Room in the root's file system, in bytes. Guests cannot use it: their root is read-only.
const ROOM: u64 = 16 << 20;

/// What a guest image is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestManifest {
    /// Identifies the recipe.
    pub key: String,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel_release: String,
    /// Its files, but for the root in which this manifest lies too.
    pub files: Vec<FileRecord>,
    /// Everything that went in.
    pub packages: Vec<PackageRecord>,
}

impl Recorded for GuestManifest {
    const KIND: &'static str = "a manifest of a guest image";

    fn files(&self) -> &[FileRecord] {
        &self.files
    }
}

/// A finished guest image.
#[derive(Debug, Clone)]
pub struct GuestImage {
    folder: PathBuf,
    manifest: GuestManifest,
}

impl GuestImage {
    /// The image of the current recipe, if it is there: in an emulated host the one that it was given.
    ///
    /// # Errors
    /// [`Error::Damaged`] when files are missing or have another size than was recorded.
    pub fn find(cache: &Cache) -> Result<Option<Self>, Error> {
        match Self::in_folder(Path::new(IN_LABORATORY))? {
            Some(given) => Ok(Some(given)),
            None => Self::in_folder(&cache.guest_image(&guest_recipe::content_key())),
        }
    }

    fn in_folder(folder: &Path) -> Result<Option<Self>, Error> {
        let Some(manifest) = recorded::find(folder)? else { return Ok(None) };
        if let Err(error) = folder.join(ROOT).metadata() {
            return Err(Error::Damaged { path: folder.join(ROOT), problem: error.to_string() });
        }
        Ok(Some(Self { folder: folder.to_owned(), manifest }))
    }

    /// The image, built first if it is not there. Nothing half-built is ever taken for an image.
    ///
    /// # Errors
    /// When packages cannot be fetched or unpacked, when the disk is too small, or when the kernel is not bootable.
    pub fn find_or_build(cache: &Cache, on_progress: OnProgress<'_>) -> Result<Self, Error> {
        let building = Building {
            space_mib: SPACE_TO_BUILD,
            packages: &guest_recipe::PACKAGES,
            folder: "building-guest",
        };
        recorded::find_or_build(
            cache,
            &building,
            on_progress,
            Self::find,
            |packages, work, on_progress| Self::build(cache, packages, work, on_progress),
            |image| cache.remove_other_guest_images(&image.folder),
        )
    }

    fn build(
        cache: &Cache,
        packages: &[Package],
        work: &Path,
        on_progress: OnProgress<'_>,
    ) -> Result<Self, Error> {
        let (root, folder) = (work.join("root"), work.join("image"));
        let modules_and_kernel = |folder: &&str| !matches!(*folder, "boot" | "usr/lib/modules");
        let left_out = recipe::LEFT_OUT.iter().chain(&guest_recipe::LEFT_OUT).copied();
        let at_once: Vec<&str> = left_out.filter(modules_and_kernel).collect();
        unpack::unpack(packages, &root, &at_once, on_progress)?;
        let mut done = 0;
        let mut step = || {
            on_progress(Progress { step: Step::Assemble, done, total: 3 });
            done += 1;
        };
        step();
        let (path, kernel_release) = find_kernel(&root)?;
        let compressed = fs::read(&path).map_err(Error::file("Could not read", &path))?;
        write(&folder.join(KERNEL), &unpack_bzimage(&path, &compressed)?)?;
        write(&folder.join(COMPRESSED_KERNEL), &compressed)?;
        list_modules(&root, &kernel_release)?;
        write(&folder.join(INITIAL_RAM_DISK), &guest_initial_ram_disk::make(&root, &kernel_release)?)?;
        ["boot", "usr/lib/modules"].iter().try_for_each(|below| remove(&root.join(below)))?;
        step();
        let manifest = manifest(&folder, packages, kernel_release)?;
        recorded::write_manifest(&folder, &manifest)?;
        prepare_tree(&root)?;
        for file in [MANIFEST, KERNEL, COMPRESSED_KERNEL, INITIAL_RAM_DISK] {
            let to = root.join(BESIDE_THE_ROOT);
            fs::create_dir_all(&to).map_err(Error::file("Could not make", &to))?;
            copy(&folder.join(file), &to.join(file))?;
        }
        step();
        make_disk(&root, &folder.join(ROOT), ROOM)?;
        let place = cache.guest_image(&manifest.key);
        take_place(&folder, &place)?;
        Ok(Self { folder: place, manifest })
    }

    /// What it is made of.
    pub fn manifest(&self) -> &GuestManifest {
        &self.manifest
    }

    /// Bytes that it takes on the disk.
    pub fn disk_usage(&self) -> u64 {
        disk_usage(&self.folder)
    }

    /// The kernel as an ELF file with a PVH entry, which no guest has to decompress.
    pub fn kernel(&self) -> PathBuf {
        self.folder.join(KERNEL)
    }

    /// The same kernel as Debian packs it.
    pub fn compressed_kernel(&self) -> PathBuf {
        self.folder.join(COMPRESSED_KERNEL)
    }

    /// The initial RAM disk, without this program.
    pub fn initial_ram_disk(&self) -> PathBuf {
        self.folder.join(INITIAL_RAM_DISK)
    }

    /// The root: a file or a block device with an ext4 file system.
    pub fn root(&self) -> PathBuf {
        self.folder.join(ROOT)
    }
}

fn manifest(folder: &Path, packages: &[Package], kernel_release: String) -> Result<GuestManifest, Error> {
    Ok(GuestManifest {
        key: guest_recipe::content_key(),
        kernel_release,
        files: recorded::files(folder, [KERNEL, COMPRESSED_KERNEL, INITIAL_RAM_DISK].map(str::to_owned))?,
        packages: recorded::packages(packages)?,
    })
}

/// What packages' scripts would have made, as far as the tools need it.
fn prepare_tree(root: &Path) -> Result<(), Error> {
    const FOLDERS: [&str; 12] = [
        "proc",
        "sys",
        "dev",
        "run",
        "tmp",
        "root",
        "mnt",
        "work",
        "var/tmp",
        "var/log/nginx",
        "var/lib/nginx",
        "var/lib/mosquitto",
    ];
    for folder in FOLDERS {
        let path = root.join(folder);
        fs::create_dir_all(&path).map_err(Error::file("Could not make", &path))?;
    }
    let files = [
        (
            "etc/passwd",
            "root:x:0:0:root:/root:/bin/bash\nwww-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n\
             mosquitto:x:101:101::/var/lib/mosquitto:/usr/sbin/nologin\nsshd:x:102:65534::/run/sshd:/usr/sbin/nologin\n\
             nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        ),
        ("etc/group", "root:x:0:\nwww-data:x:33:\nmosquitto:x:101:\nnogroup:x:65534:\n"),
        ("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n10.0.2.2 host\n"),
        ("etc/hostname", "guest\n"),
    ];
    for (path, contents) in files {
        write(&root.join(path), contents.as_bytes())?;
    }
    let awk = root.join("usr/bin/awk");
    if !awk.exists() {
        symlink("gawk", &awk).map_err(Error::file("Could not link", &awk))?;
    }
    Ok(())
}
