//! The image of study guests: a kernel, an initial RAM disk, and a root file system with the tools that plans
//! use. All guests share it: the root is read on demand, and changes by a guest stay in the guest's memory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::assemble::{PackedKernel, list_modules, make_disk};
use crate::cache::Cache;
use crate::error::Error;
use crate::guest_initial_ram_disk;
use crate::guest_recipe;
use crate::packages::Package;
use crate::progress::{Effort, OnProgress, Progress, Step};
use crate::recipe;
pub(crate) use crate::recorded::MANIFEST;
use crate::recorded::{self, Built, Manifest, Recipe};
use crate::tree::{copy, furnish, remove, write};
use crate::unpack;

/// The effort of building the guest image. If the cache already has the laboratories' packages, only 4 MiB
/// are downloaded.
pub const GUEST_BUILD_EFFORT: Effort =
    Effort { download_mib: 109, disk_mib: 270, time: Duration::from_secs(60) };

/// The mount point of the image in an emulated host that gets it as a disk.
pub(crate) const IN_LABORATORY: &str = "/run/exitless/guest-image";
/// The folder in the image's root that contains the image's other files.
pub(crate) const BESIDE_THE_ROOT: &str = "exitless";
pub(crate) const ROOT: &str = "root.ext4";
pub(crate) const KERNEL: &str = "vmlinux";
pub(crate) const COMPRESSED_KERNEL: &str = "vmlinuz";
pub(crate) const INITIAL_RAM_DISK: &str = "initrd.img";

const SPACE_TO_BUILD: u64 = 1500;
/// Free space in the root file system, in bytes. Guests cannot use it, because their root is read-only.
const ROOM: u64 = 16 << 20;

/// The guest. The manifest records all files but the root, because the root contains the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {}

/// A finished guest image.
pub type GuestImage = Built<Guest>;

impl Recipe for Guest {
    const PREFIX: &'static str = "guest-";
    const SPACE_MIB: u64 = SPACE_TO_BUILD;
    const PACKAGES: &'static [&'static str] = &guest_recipe::PACKAGES;
    const PROVEN: &'static [(&'static str, &'static str)] = &[];
    const BUILDING: &'static str = "building-guest";

    fn content_key() -> String {
        guest_recipe::content_key()
    }

    fn make(
        packages: &[Package],
        root: &Path,
        folder: &Path,
        on_progress: OnProgress<'_>,
    ) -> Result<Manifest<Self>, Error> {
        let modules_and_kernel = |folder: &&str| !matches!(*folder, "boot" | "usr/lib/modules");
        let left_out = recipe::LEFT_OUT.iter().chain(&guest_recipe::LEFT_OUT).copied();
        let at_once: Vec<&str> = left_out.filter(modules_and_kernel).collect();
        unpack::unpack(packages, root, &at_once, on_progress)?;
        let mut done = 0;
        let mut step = || {
            on_progress(Progress { step: Step::Assemble, done, total: 3 });
            done += 1;
        };
        step();
        let kernel = PackedKernel::of(root)?;
        write(&folder.join(KERNEL), &kernel.elf)?;
        write(&folder.join(COMPRESSED_KERNEL), &kernel.compressed)?;
        list_modules(root, &kernel.release)?;
        write(&folder.join(INITIAL_RAM_DISK), &guest_initial_ram_disk::make(root, &kernel.release)?)?;
        ["boot", "usr/lib/modules"].iter().try_for_each(|below| remove(&root.join(below)))?;
        step();
        let files = [KERNEL, COMPRESSED_KERNEL, INITIAL_RAM_DISK];
        let recorded = (folder, files.map(str::to_owned));
        let manifest = Manifest::new(Self::content_key(), kernel.release, Self {}, recorded, packages)?;
        prepare_tree(root)?;
        let beside = root.join(BESIDE_THE_ROOT);
        fs::create_dir_all(&beside).map_err(Error::file("Could not make", &beside))?;
        recorded::write_manifest(&beside, &manifest)?;
        for file in files {
            copy(&folder.join(file), &beside.join(file))?;
        }
        step();
        make_disk(root, &folder.join(ROOT), ROOM)?;
        Ok(manifest)
    }

    /// Finds the image; in an emulated host, the one that was passed to it.
    fn find(cache: &Cache) -> Result<Option<GuestImage>, Error> {
        let image = match GuestImage::in_folder(Path::new(IN_LABORATORY))? {
            Some(given) => Some(given),
            None => GuestImage::in_folder(&GuestImage::place(cache))?,
        };
        // Check only that the root exists: it contains the manifest, so the manifest cannot record it.
        if let Some(path) = image.as_ref().map(GuestImage::root) {
            path.metadata().map_err(|error| Error::Damaged { path, problem: error.to_string() })?;
        }
        Ok(image)
    }
}

impl GuestImage {
    /// The Debian packages requested for the image; their dependencies are not listed.
    pub const REQUESTED_PACKAGES: &[&str] = &guest_recipe::PACKAGES;

    /// The kernel as an ELF file with a PVH entry point, so that guests need not decompress it.
    pub fn kernel(&self) -> PathBuf {
        self.path(KERNEL)
    }

    /// The same kernel, compressed as in Debian's package.
    pub fn compressed_kernel(&self) -> PathBuf {
        self.path(COMPRESSED_KERNEL)
    }

    /// The initial RAM disk, without the agent.
    pub fn initial_ram_disk(&self) -> PathBuf {
        self.path(INITIAL_RAM_DISK)
    }

    /// The root file system: a file or block device with ext4.
    pub fn root(&self) -> PathBuf {
        self.path(ROOT)
    }
}

/// Creates the files and folders that maintainer scripts of packages would create.
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
    furnish(root, &FOLDERS, &files)?;
    let awk = root.join("usr/bin/awk");
    if !awk.exists() {
        symlink("gawk", &awk).map_err(Error::file("Could not link", &awk))?;
    }
    Ok(())
}
