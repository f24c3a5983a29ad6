//! The image of a KVM host with devices: Debian's generic kernel, because the cloud kernel lacks the AMD
//! IOMMU's driver; the modules of that kernel; and a guest that drives the devices.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::assemble::{
    PackedKernel, files_below, list_modules, merge_libraries, reporting_guest, unpacked_module,
};
use crate::error::Error;
use crate::guest_initial_ram_disk::{Loading, loading, with_needs};
use crate::packages::Package;
use crate::progress::{Effort, OnProgress, Progress, Step};
use crate::recipe::{self, COMPONENTS, RELEASE};
use crate::recorded::{Built, Manifest, Recipe, files_in};
use crate::tree::{copy, write};
use crate::unpack;

/// The effort of building the image, in addition to the image that all laboratories share.
pub const DEVICE_BUILD_EFFORT: Effort =
    Effort { download_mib: 110, disk_mib: 130, time: Duration::from_secs(30) };

/// Incremented when the steps from packages to the image change.
const STEPS: u32 = 2;
const PACKAGES: [&str; 3] = ["linux-image-amd64", "busybox-static", "kmod"];

/// The modules that the host loads before it has its disk or waits for an order.
const EARLY_MODULES: [&str; 4] = ["crc32c_generic", "ext4", "virtio_blk", "kvm_amd"];
/// Modules for `modprobe` in the host.
const LATER_MODULES: [&str; 8] =
    ["vfio_pci", "vfio_iommu_type1", "igb", "igbvf", "nvme", "tun", "vhost_net", "overlay"];
/// The modules that the guest loads.
const GUEST_MODULES: [&str; 2] = ["igbvf", "nvme"];

pub(crate) const KERNEL: &str = "vmlinux";
/// The folder of modules, with depmod's lists.
const MODULES: &str = "modules";
const GUEST_RAM_DISK: &str = "initrd.img";
/// The kernel and initial RAM disk of a guest, as files in the host. The kernel is uncompressed:
/// decompressing takes 7 s by the emulated clock.
pub(crate) const GUEST: [&str; 2] = [KERNEL, GUEST_RAM_DISK];

/// The KVM host with devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceHost {
    /// The file names of the modules that the host loads, in loading order.
    pub modules: Vec<String>,
}

/// A finished image of a host with devices.
pub type DeviceImage = Built<DeviceHost>;

impl Recipe for DeviceHost {
    const PREFIX: &'static str = "devices-";
    const SPACE_MIB: u64 = 1000;
    const PACKAGES: &'static [&'static str] = &PACKAGES;
    const PROVEN: &'static [(&'static str, &'static str)] = &[("linux-image-amd64", "6.12.118-1")];
    const BUILDING: &'static str = "building-devices";

    fn content_key() -> String {
        let steps = STEPS.to_string();
        let modules = EARLY_MODULES.iter().chain(&LATER_MODULES).chain(&GUEST_MODULES);
        recipe::key([RELEASE, COMPONENTS, &steps].iter().chain(&PACKAGES).chain(modules))
    }

    fn make(
        packages: &[Package],
        root: &Path,
        folder: &Path,
        on_progress: OnProgress<'_>,
    ) -> Result<Manifest<Self>, Error> {
        unpack::unpack(packages, root, &recipe::LEFT_OUT, on_progress)?;
        on_progress(Progress { step: Step::Assemble, done: 0, total: 1 });
        merge_libraries(root)?;
        let kernel = PackedKernel::of(root)?;
        write(&folder.join(KERNEL), &kernel.elf)?;
        let wanted = [&EARLY_MODULES[..], &LATER_MODULES, &GUEST_MODULES].concat();
        let order = keep_modules(root, &folder.join(MODULES), &kernel.release, &wanted)?;
        let drivers: Result<Vec<_>, Error> = with_needs(&order, &GUEST_MODULES)
            .into_iter()
            .map(|file| {
                let path = folder.join(MODULES).join(&file);
                Ok((file, fs::read(&path).map_err(Error::file("Could not read", &path))?))
            })
            .collect();
        write(&folder.join(GUEST_RAM_DISK), &reporting_guest(root, &drivers?)?)?;
        let mut files = files_in(folder, MODULES);
        files.extend(GUEST.map(str::to_owned));
        files.sort();
        let host = Self { modules: with_needs(&order, &EARLY_MODULES) };
        Manifest::new(Self::content_key(), kernel.release, host, (folder, files), packages)
    }
}

impl DeviceImage {
    /// The names and contents of the modules and of depmod's lists.
    pub(crate) fn modules(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        self.files_below(MODULES)
    }
}

/// Copies modules and their dependencies, uncompressed, into one folder, and lists them there with depmod.
pub(crate) fn keep_modules(root: &Path, to: &Path, release: &str, wanted: &[&str]) -> Result<Loading, Error> {
    list_modules(root, release)?;
    let folder = root.join("usr/lib/modules").join(release);
    let order = loading(&folder, wanted)?;
    let available = files_below(&folder);
    for file in with_needs(&order, wanted) {
        write(&folder.join(&file), &unpacked_module(&folder, &available, &file)?)?;
    }
    let is_module = |path: &&PathBuf| path.extension().is_some_and(|kind| kind == "xz" || kind == "ko");
    for packed in available.iter().filter(is_module) {
        fs::remove_file(packed).map_err(Error::file("Could not remove", packed))?;
    }
    list_modules(root, release)?;
    fs::create_dir_all(to).map_err(Error::file("Could not make", to))?;
    for file in files_below(&folder).iter().filter(|file| is_for_modprobe(file)) {
        copy(file, &to.join(file.file_name().unwrap_or_default()))?;
    }
    Ok(order)
}

/// Tests whether a host needs a file of the kernel's folder of modules. Since Linux 7.3 the kernel itself is
/// there, too, and would take memory in each host.
fn is_for_modprobe(file: &Path) -> bool {
    !file.file_name().is_some_and(|name| name == "vmlinuz" || name == "System.map")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::recorded::{self, FileRecord};

    #[test]
    fn no_second_kernel_is_kept_with_the_modules() {
        let kept =
            |name: &str| is_for_modprobe(&Path::new("usr/lib/modules/7.3.4+deb13-cloud-amd64").join(name));
        for name in ["kvm.ko", "modules.dep", "modules.builtin", "config"] {
            assert!(kept(name), "{name}");
        }
        assert!(!kept("vmlinuz") && !kept("System.map"));
    }

    #[test]
    fn a_missing_file_is_damage_and_the_modules_come_with_their_lists() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        assert!(DeviceImage::find(&cache).unwrap().is_none());
        let folder = DeviceImage::place(&cache);
        let record = |path: &str| FileRecord { path: path.into(), bytes: 1, sha256: String::new() };
        let manifest = Manifest {
            key: DeviceHost::content_key(),
            kernel_release: "6.12".into(),
            of_kind: DeviceHost { modules: vec!["a.ko".into()] },
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
