//! What a host with devices boots in place of the laboratories' kernel: Debian's generic one, because the cloud kernel
//! knows no AMD IOMMU; modules for it; and a guest that drives the devices.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::archive::Archive;
use crate::assemble::{copy, files_below, find_kernel, list_modules, unpacked_module, write};
use crate::cache::{Cache, disk_usage};
use crate::error::Error;
use crate::guest_initial_ram_disk::{Loading, loading};
use crate::kernel::unpack_bzimage;
use crate::packages::Package;
use crate::progress::{Effort, OnProgress, Progress, Step};
use crate::recipe::{self, COMPONENTS, RELEASE};
use crate::recorded::{self, Building, FileRecord, PackageRecord, Recorded, take_place};
use crate::unpack;

/// What building it takes, beyond the image that all laboratories share.
pub const DEVICE_BUILD_EFFORT: Effort =
    Effort { download_mib: 110, disk_mib: 130, time: Duration::from_secs(30) };

/// Raised when the steps that turn packages into it change.
const STEPS: u32 = 1;
const PACKAGES: [&str; 3] = ["linux-image-amd64", "busybox-static", "kmod"];
/// Versions with which it was proven.
const PROVEN: [(&str, &str); 1] = [("linux-image-amd64", "6.12.118-1")];
const SPACE_TO_BUILD: u64 = 1000;

/// Modules that the host loads before it has its disk, or waits for an order.
const EARLY_MODULES: [&str; 4] = ["crc32c_generic", "ext4", "virtio_blk", "kvm_amd"];
/// Modules that `modprobe` finds in the host.
const LATER_MODULES: [&str; 8] =
    ["vfio_pci", "vfio_iommu_type1", "igb", "igbvf", "nvme", "tun", "vhost_net", "overlay"];
/// Modules that the guest loads.
const GUEST_MODULES: [&str; 2] = ["igbvf", "nvme"];

pub(crate) const KERNEL: &str = "vmlinux";
/// The folder of modules, as depmod lists them.
const MODULES: &str = "modules";
/// The kernel and the initial RAM disk of a guest, for the host.
pub(crate) const GUEST: [&str; 2] = ["vmlinuz", "initrd.img"];

/// What it is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceManifest {
    /// Identifies the recipe.
    pub key: String,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel_release: String,
    /// Modules that the host loads, by file name in the order of loading.
    pub modules: Vec<String>,
    /// Its files.
    pub files: Vec<FileRecord>,
    /// Everything that went in.
    pub packages: Vec<PackageRecord>,
}

impl Recorded for DeviceManifest {
    const KIND: &'static str = "a manifest of a host with devices";

    fn files(&self) -> &[FileRecord] {
        &self.files
    }
}

/// A finished kernel for hosts with devices, with all that belongs to it.
#[derive(Debug, Clone)]
pub struct DeviceImage {
    folder: PathBuf,
    manifest: DeviceManifest,
}

impl DeviceImage {
    /// That of the current recipe, if it is there and whole by the sizes of its files.
    ///
    /// # Errors
    /// [`Error::Damaged`] when files are missing or have another size than was recorded.
    pub fn find(cache: &Cache) -> Result<Option<Self>, Error> {
        let folder = cache.device_image(&content_key());
        Ok(recorded::find(&folder)?.map(|manifest| Self { folder, manifest }))
    }

    /// That of the current recipe, built first if it is not there. Nothing half-built is ever taken for it.
    ///
    /// # Errors
    /// When packages cannot be fetched or unpacked, when the disk is too small, or when the kernel is not bootable.
    pub fn find_or_build(cache: &Cache, on_progress: OnProgress<'_>) -> Result<Self, Error> {
        let building =
            Building { space_mib: SPACE_TO_BUILD, packages: &PACKAGES, folder: "building-devices" };
        recorded::find_or_build(
            cache,
            &building,
            on_progress,
            Self::find,
            |packages, work, on_progress| Self::build(cache, packages, work, on_progress),
            |image| cache.remove_other_device_images(&image.folder),
        )
    }

    fn build(
        cache: &Cache,
        packages: &[Package],
        work: &Path,
        on_progress: OnProgress<'_>,
    ) -> Result<Self, Error> {
        let (root, folder) = (work.join("root"), work.join("image"));
        unpack::unpack(packages, &root, &recipe::LEFT_OUT, on_progress)?;
        on_progress(Progress { step: Step::Assemble, done: 0, total: 1 });
        // depmod looks in /lib, which a package that is not here makes a link.
        let link = root.join("lib");
        if !link.exists() {
            symlink("usr/lib", &link).map_err(Error::file("Could not link", &link))?;
        }
        let (path, kernel_release) = find_kernel(&root)?;
        let compressed = fs::read(&path).map_err(Error::file("Could not read", &path))?;
        write(&folder.join(KERNEL), &unpack_bzimage(&path, &compressed)?)?;
        write(&folder.join(GUEST[0]), &compressed)?;
        let order = keep_modules(&root, &folder.join(MODULES), &kernel_release)?;
        write(&folder.join(GUEST[1]), &guest_initial_ram_disk(&root, &folder.join(MODULES), &order)?)?;
        let manifest = manifest(&folder, packages, kernel_release, with_needs(&order, &EARLY_MODULES))?;
        recorded::write_manifest(&folder, &manifest)?;
        let place = cache.device_image(&manifest.key);
        take_place(&folder, &place)?;
        Ok(Self { folder: place, manifest })
    }

    /// What it is made of.
    pub fn manifest(&self) -> &DeviceManifest {
        &self.manifest
    }

    /// Bytes that it takes on the disk.
    pub fn disk_usage(&self) -> u64 {
        disk_usage(&self.folder)
    }

    /// Packages whose version is not the one with which it was proven: name, here, proven.
    pub fn drift(&self) -> Vec<(&str, &str, &str)> {
        recorded::drift(&self.manifest.packages, &PROVEN)
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.join(below)
    }

    /// Names and contents of the modules, and of depmod's lists of them.
    pub(crate) fn modules(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let below = format!("{MODULES}/");
        let names = self.manifest.files.iter().filter_map(|file| file.path.strip_prefix(&below));
        names.map(|name| Ok((name.to_owned(), self.read(&format!("{below}{name}"))?))).collect()
    }

    pub(crate) fn read(&self, below: &str) -> Result<Vec<u8>, Error> {
        let path = self.path(below);
        fs::read(&path).map_err(Error::file("Could not read", path))
    }
}

/// Identifies the recipe.
fn content_key() -> String {
    let steps = STEPS.to_string();
    let modules = EARLY_MODULES.iter().chain(&LATER_MODULES).chain(&GUEST_MODULES);
    recipe::key([RELEASE, COMPONENTS, &steps].iter().chain(&PACKAGES).chain(modules))
}

/// Unpacks the modules of the recipe, and those that they need, into one folder, and lists them there.
fn keep_modules(root: &Path, to: &Path, release: &str) -> Result<Loading, Error> {
    list_modules(root, release)?;
    let folder = root.join("usr/lib/modules").join(release);
    let path = folder.join("modules.dep");
    let dependencies = fs::read_to_string(&path).map_err(Error::file("Could not read", &path))?;
    let wanted: Vec<&str> =
        EARLY_MODULES.iter().chain(&LATER_MODULES).chain(&GUEST_MODULES).copied().collect();
    let order = loading(&dependencies, &wanted);
    if let Some(missing) = wanted.iter().find(|&&name| !order.contains_key(name)) {
        return Err(Error::Kernel { path, problem: format!("it has no module {missing}") });
    }
    let available = files_below(&folder);
    for file in with_needs(&order, &wanted) {
        write(&folder.join(&file), &unpacked_module(&folder, &available, &file)?)?;
    }
    for packed in available.iter().filter(|path| path.extension().is_some_and(|kind| kind == "xz")) {
        fs::remove_file(packed).map_err(Error::file("Could not remove", packed))?;
    }
    list_modules(root, release)?;
    for file in files_below(&folder) {
        let name = file.file_name().unwrap_or_default();
        let listed = to.join(name);
        fs::create_dir_all(to).map_err(Error::file("Could not make", to))?;
        copy(&file, &listed)?;
    }
    Ok(order)
}

/// The files of these modules and of what they need, each once, in the order of loading.
fn with_needs(order: &Loading, names: &[&str]) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    for file in names.iter().filter_map(|&name| order.get(name)).flatten() {
        if !files.contains(file) {
            files.push(file.clone());
        }
    }
    files
}

/// A guest that loads the drivers of the devices, runs /job.sh if a second archive brings one, and powers off.
fn guest_initial_ram_disk(root: &Path, modules: &Path, order: &Loading) -> Result<Vec<u8>, Error> {
    let in_memory = || Error::file("Could not make the guest's", "initial RAM disk");
    let files = with_needs(order, &GUEST_MODULES);
    let load: String = files.iter().map(|file| format!("insmod /modules/{file}\n")).collect();
    let init = format!(
        "#!/bin/busybox sh\n\
         /bin/busybox --install -s /bin\n\
         mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev\n\
         {load}\
         read up rest < /proc/uptime; echo \"exitless guest up after $up s\"\n\
         [ -f /job.sh ] && sh /job.sh\n\
         poweroff -f\n"
    );
    let path = root.join("usr/bin/busybox");
    let busybox = fs::read(&path).map_err(Error::file("Could not read", &path))?;
    let mut archive = Archive::default();
    for folder in ["/proc", "/sys", "/dev"] {
        archive.folder(folder).map_err(in_memory())?;
    }
    archive.file("/bin/busybox", 0o755, &busybox).map_err(in_memory())?;
    for file in &files {
        let path = modules.join(file);
        let contents = fs::read(&path).map_err(Error::file("Could not read", &path))?;
        archive.file(&format!("/modules/{file}"), 0o644, &contents).map_err(in_memory())?;
    }
    archive.file("/init", 0o755, init.as_bytes()).map_err(in_memory())?;
    archive.finish().map_err(in_memory())
}

fn manifest(
    folder: &Path,
    packages: &[Package],
    kernel_release: String,
    modules: Vec<String>,
) -> Result<DeviceManifest, Error> {
    let mut paths: Vec<String> = [KERNEL, GUEST[0], GUEST[1]].map(str::to_owned).to_vec();
    let kept = files_below(&folder.join(MODULES));
    let names = kept.iter().filter_map(|path| path.file_name()?.to_str());
    paths.extend(names.map(|name| format!("{MODULES}/{name}")));
    paths.sort();
    Ok(DeviceManifest {
        key: content_key(),
        kernel_release,
        modules,
        files: recorded::files(folder, paths)?,
        packages: recorded::packages(packages)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_two_need_is_loaded_once_and_first() {
        let order = |files: &[&str]| files.iter().map(|&file| file.to_owned()).collect::<Vec<_>>();
        let loading = Loading::from([
            ("igb".to_owned(), order(&["dca.ko", "igb.ko"])),
            ("igbvf".to_owned(), order(&["dca.ko", "igbvf.ko"])),
        ]);
        assert_eq!(
            with_needs(&loading, &["igbvf", "igb", "absent"]),
            order(&["dca.ko", "igbvf.ko", "igb.ko"])
        );
    }

    #[test]
    fn a_missing_file_is_damage_and_the_modules_come_with_their_lists() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        assert!(DeviceImage::find(&cache).unwrap().is_none());
        let folder = cache.device_image(&content_key());
        let record = |path: &str| FileRecord { path: path.into(), bytes: 1, sha256: String::new() };
        let manifest = DeviceManifest {
            key: content_key(),
            kernel_release: "6.12".into(),
            modules: vec!["a.ko".into()],
            files: vec![record(KERNEL), record("modules/a.ko"), record("modules/modules.dep")],
            packages: Vec::new(),
        };
        recorded::write_manifest(&folder, &manifest).unwrap();
        let missing = DeviceImage::find(&cache).unwrap_err().to_string();
        assert!(missing.contains("lab clean"), "{missing}");
        for file in &manifest.files {
            write(&folder.join(&file.path), b"x").unwrap();
        }
        let modules = DeviceImage::find(&cache).unwrap().unwrap().modules().unwrap();
        let names: Vec<&str> = modules.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a.ko", "modules.dep"]);
    }
}
