//! Debian's other kernels. A KVM host can boot one, with its modules, instead of the kernel in the
//! laboratories' image. The disk and the kernel of nested guests on it stay the same.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::assemble::{PackedKernel, merge_libraries};
use crate::cache::Cache;
use crate::definition::{Emulator, Hypervisor, Lab};
use crate::device::Device;
use crate::device_image::keep_modules;
use crate::error::Error;
use crate::guest_initial_ram_disk::{Loading, with_needs};
use crate::packages::{self, Package};
use crate::progress::{Effort, OnProgress, Progress, Step};
use crate::recipe::{self, COMPONENTS, RELEASE};
use crate::recorded::{Built, Manifest, Place, files_in};
use crate::tree::{copy, write};
use crate::unpack;

/// The effort of preparing a kernel, in addition to the image that all laboratories share.
pub const KERNEL_BUILD_EFFORT: Effort =
    Effort { download_mib: 60, disk_mib: 300, time: Duration::from_secs(10) };

/// Incremented when the steps from packages to a prepared kernel change, unless the earlier ones still work: Debian
/// may have dropped a kernel that is in the cache.
const STEPS: u32 = 1;
/// The package of depmod.
const TOOLS: [&str; 1] = ["kmod"];

/// Modules of the channel to the host: without them nothing can be reported. Later kernels have them built
/// in.
const CHANNEL_MODULES: [&str; 2] = ["virtio_pci", "virtio_console"];
/// Modules of each emulator's disk.
const VIRTIO_MODULES: [&str; 1] = ["virtio_blk"];
const ATA_MODULES: [&str; 2] = ["sd_mod", "ata_piix"];
const VENDOR_MODULES: [&str; 2] = ["kvm_intel", "kvm_amd"];
/// Modules for `modprobe` in the host.
const LATER_MODULES: [&str; 3] = ["tun", "vhost_net", "overlay"];

fn all_modules() -> Vec<&'static str> {
    [&CHANNEL_MODULES[..], &VIRTIO_MODULES, &ATA_MODULES, &VENDOR_MODULES, &LATER_MODULES].concat()
}

/// The suffix of releases of the cloud kernels.
const FLAVOUR: &str = "-cloud-amd64";

/// The uncompressed kernel.
pub(crate) const KERNEL: &str = "vmlinux";
/// The folder of modules, with depmod's lists.
const MODULES: &str = "modules";

/// A kernel of Debian, by its series.
#[derive(Debug, PartialEq, Eq)]
pub struct DebianKernel {
    /// The name on the command line: the series, and the Debian release it was built for if there are two.
    pub name: &'static str,
    /// The suites of Debian's archive that contain its packages.
    pub suites: &'static [&'static str],
    /// The prefix of the kernel's release; names of packages have `linux-image-` in front of it.
    prefix: &'static str,
    /// The tested version of its package. The newest version of the series is used.
    pub proven: &'static str,
}

/// All kernels, oldest first.
pub const KERNELS: [DebianKernel; 9] = [
    DebianKernel::new("5.10", &["bullseye", "bullseye-security"], "5.10.", "5.10.262-1"),
    DebianKernel::new("6.1", &["bookworm", "bookworm-security"], "6.1.", "6.1.192-2"),
    DebianKernel::new("6.12~bpo12", &["bookworm-backports"], "6.12.", "6.12.95-1~bpo12+1"),
    DebianKernel::new("6.12", &["trixie", "trixie-security"], "6.12.", "6.12.118-1"),
    DebianKernel::new("6.16", &["trixie-backports"], "6.16.", "6.16.12-1~bpo13+1"),
    DebianKernel::new("6.17", &["trixie-backports"], "6.17.", "6.17.13-1~bpo13+1"),
    DebianKernel::new("6.18", &["trixie-backports"], "6.18.", "6.18.15-1~bpo13+1"),
    DebianKernel::new("7.2", &["forky", "sid"], "7.2.", "7.2.13-1"),
    DebianKernel::new("7.3", &["trixie-backports"], "7.3.", "7.3.4-1~bpo13+1"),
];

impl DebianKernel {
    const fn new(
        name: &'static str,
        suites: &'static [&'static str],
        prefix: &'static str,
        proven: &'static str,
    ) -> Self {
        Self { name, suites, prefix, proven }
    }

    /// Finds a kernel by its name.
    ///
    /// # Errors
    /// [`Error::UnknownKernel`], with the known names.
    pub fn find(name: &str) -> Result<&'static Self, Error> {
        KERNELS.iter().find(|kernel| kernel.name == name).ok_or_else(|| Error::UnknownKernel {
            name: name.to_owned(),
            known: KERNELS.map(|kernel| kernel.name).join(", "),
        })
    }

    /// Checks that a laboratory with these devices can boot the kernel. Called before anything is downloaded.
    ///
    /// # Errors
    /// [`Error::OwnKernelOnly`].
    pub fn require(&self, lab: &Lab, devices: &[Device]) -> Result<(), Error> {
        match (lab.is_xen(), devices.is_empty()) {
            (true, _) => Err(Error::OwnKernelOnly { lab: lab.name, why: "" }),
            (false, false) => Err(Error::OwnKernelOnly { lab: lab.name, why: " when it has devices" }),
            (false, true) => Ok(()),
        }
    }

    fn content_key(&self) -> String {
        let steps = STEPS.to_string();
        let words = [RELEASE, COMPONENTS, &steps, self.name, self.prefix];
        recipe::key(words.iter().chain(self.suites).chain(&TOOLS).chain(&all_modules()))
    }

    fn place(&self, cache: &Cache) -> Place {
        let prefix = format!("kernel-{}-", self.name);
        let folder = cache.root().join(format!("{prefix}{}", self.content_key()));
        Place { folder, prefix, building: format!("building-kernel-{}", self.name), space_mib: 1000 }
    }

    fn fetch(&self, cache: &Cache, work: &Path, on_progress: OnProgress<'_>) -> Result<Vec<Package>, Error> {
        let mut all = packages::fetch(cache, &TOOLS, on_progress)?;
        let newest = |names: &[&str]| packages_of(newest_release(names, self.prefix)?, names);
        let found = packages::fetch_chosen(cache, &work.join("packages"), self.suites, &newest, on_progress)?;
        all.extend(
            found.ok_or_else(|| Error::KernelIsGone { name: self.name, suites: self.suites.join(", ") })?,
        );
        Ok(all)
    }
}

/// The release of the newest cloud kernel in a list of package names.
fn newest_release<'a>(names: &[&'a str], prefix: &str) -> Option<&'a str> {
    let releases = names.iter().filter_map(|name| name.strip_prefix("linux-image-"));
    let has = |part: &str, release: &str| names.contains(&format!("linux-{part}-{release}").as_str());
    // The archive may still have the package of the kernel when that of its modules is gone.
    let is_whole = |release: &str| !has("binary", release) || has("modules", release);
    let of_series = releases
        .filter(|release| release.starts_with(prefix) && release.ends_with(FLAVOUR) && is_whole(release));
    of_series.max_by_key(|release| numbers(release))
}

/// The numbers in a release, for ordering: 6.12.115+deb13.1 is newer than 6.12.115+deb13.
fn numbers(release: &str) -> Vec<u64> {
    let version = release.strip_suffix(FLAVOUR).unwrap_or(release);
    version.split(|sign: char| !sign.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// The packages of a release. Since 6.19 the image package is empty and depends on the others.
fn packages_of(release: &str, names: &[&str]) -> Option<Vec<String>> {
    let parts = ["image", "base", "binary", "modules"].map(|part| format!("linux-{part}-{release}"));
    Some(parts.into_iter().filter(|part| names.contains(&part.as_str())).collect())
}

/// A prepared kernel of Debian.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyKernel {
    /// For each module, the files to load, in loading order; none if it is built in.
    loading: Loading,
}

/// A kernel with its modules, ready to be booted.
pub type KernelImage = Built<ReadyKernel>;

impl KernelImage {
    /// The kernel, if it has been prepared.
    ///
    /// # Errors
    /// [`Error::Damaged`] when files are missing or have another size than was recorded.
    pub fn find_kernel(cache: &Cache, kernel: &DebianKernel) -> Result<Option<Self>, Error> {
        Self::in_folder(&kernel.place(cache).folder)
    }

    /// The kernel, prepared first if necessary.
    ///
    /// # Errors
    /// [`Error::KernelIsGone`] and [`Error::SuitesAreGone`] when the archive has it no longer, and those of fetching
    /// and unpacking packages.
    pub fn find_or_build_kernel(
        cache: &Cache,
        kernel: &DebianKernel,
        on_progress: OnProgress<'_>,
    ) -> Result<Self, Error> {
        let key = kernel.content_key();
        Self::found_or_built(
            cache,
            &kernel.place(cache),
            &|| Self::find_kernel(cache, kernel),
            &|work, on_progress| kernel.fetch(cache, work, on_progress),
            &|packages, root, folder, on_progress| make(key.clone(), packages, root, folder, on_progress),
            on_progress,
        )
    }

    /// The version of the kernel's package.
    pub fn version(&self) -> Option<&str> {
        let mut packages = self.manifest().packages.iter();
        Some(&packages.find(|package| package.name.starts_with("linux-image-"))?.version)
    }

    /// The modules of the channel to the host, in loading order.
    pub(crate) fn channel_modules(&self) -> Vec<String> {
        with_needs(&self.manifest().of_kind.loading, &CHANNEL_MODULES)
    }

    /// The modules that a host loads before it waits for an order, in loading order.
    pub(crate) fn early_modules(&self, lab: &Lab, with_disk: bool) -> Vec<String> {
        let disk: &[&str] = match lab.emulator {
            _ if !with_disk => &[],
            Emulator::Bochs => &ATA_MODULES,
            Emulator::Qemu => &VIRTIO_MODULES,
        };
        let vendor = match lab.hypervisor {
            Hypervisor::Kvm { vendor_module } => vendor_module.replace('-', "_"),
            Hypervisor::Xen => String::new(),
        };
        with_needs(&self.manifest().of_kind.loading, &[disk, &[vendor.as_str()]].concat())
    }

    /// The names and contents of the modules and of depmod's lists.
    pub(crate) fn modules(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        self.files_below(MODULES)
    }
}

fn make(
    key: String,
    packages: &[Package],
    root: &Path,
    folder: &Path,
    on_progress: OnProgress<'_>,
) -> Result<Manifest<ReadyKernel>, Error> {
    unpack::unpack(packages, root, &recipe::LEFT_OUT, on_progress)?;
    on_progress(Progress { step: Step::Assemble, done: 0, total: 1 });
    merge_libraries(root)?;
    let kernel = PackedKernel::of(root)?;
    write(&folder.join(KERNEL), &kernel.elf)?;
    let loading = keep_modules(root, &folder.join(MODULES), &kernel.release, &all_modules())?;
    // `doctor` also looks for the kernel's configuration in this folder.
    let configuration = root.join(format!("boot/config-{}", kernel.release));
    if configuration.is_file() {
        copy(&configuration, &folder.join(MODULES).join("config"))?;
    }
    let mut files = files_in(folder, MODULES);
    files.push(KERNEL.to_owned());
    files.sort();
    Manifest::new(key, kernel.release, ReadyKernel { loading }, (folder, files), packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_release_of_a_series_is_taken_with_all_of_its_packages() {
        let names = [
            "linux-image-6.12.9+deb13-cloud-amd64",
            "linux-image-6.12.115+deb13-cloud-amd64",
            "linux-image-6.12.115+deb13.1-cloud-amd64",
            "linux-image-6.12.116+deb13-amd64",
            "linux-image-6.12.116+deb13-cloud-amd64-unsigned",
            "linux-image-6.120.1-cloud-amd64",
            "linux-image-cloud-amd64",
            "linux-image-7.3.4+deb13-cloud-amd64",
            "linux-base-7.3.4+deb13-cloud-amd64",
            "linux-binary-7.3.4+deb13-cloud-amd64",
            "linux-modules-7.3.4+deb13-cloud-amd64",
            "linux-image-7.3.9+deb13-cloud-amd64",
            "linux-binary-7.3.9+deb13-cloud-amd64",
        ];
        let newest = |prefix| packages_of(newest_release(&names, prefix)?, &names);
        assert_eq!(newest("6.12.").unwrap(), ["linux-image-6.12.115+deb13.1-cloud-amd64"]);
        assert_eq!(newest("7.3.").unwrap().len(), 4);
        assert_eq!(newest("5.10."), None);
    }

    #[test]
    fn an_unknown_kernel_and_a_lab_with_its_own_are_told_what_there_is() {
        let unknown = DebianKernel::find("4.19").unwrap_err().to_string();
        assert!(unknown.contains("\"4.19\"") && unknown.contains("5.10, 6.1, "), "{unknown}");
        let kernel = DebianKernel::find("5.10").unwrap();
        let refused = |lab, devices: &[Device]| {
            kernel.require(Lab::find(lab).unwrap(), devices).map_err(|e| e.to_string())
        };
        assert_eq!(refused("amd-avic", &[]), Ok(()));
        assert!(
            refused("xen", &[]).unwrap_err().starts_with("xen boots only the kernel of its own image; leave")
        );
        assert!(refused("amd-svm", &[Device::Nvme]).unwrap_err().contains("when it has devices"));
    }

    #[test]
    fn each_kernel_has_a_place_of_its_own() {
        let places: Vec<_> = KERNELS.iter().map(|kernel| kernel.place(&Cache::at("/c")).prefix).collect();
        for (prefix, at) in places.iter().zip(0..) {
            let others = places.iter().enumerate().filter(|(other, _)| *other != at);
            assert!(others.into_iter().all(|(_, other)| !other.starts_with(prefix)), "{prefix}");
        }
    }
}
