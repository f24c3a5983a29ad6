//! Makes the parts of the Xen host's image from the tree of unpacked packages: Xen, the control domain's
//! kernel and modules, and the disk.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::assemble::{
    DISK, MODULES, PackedKernel, files_below, list_modules, make_disk, reporting_guest, unpacked_module,
};
use crate::definition::Emulator;
use crate::error::Error;
use crate::guest_initial_ram_disk::{loading, with_needs};
use crate::progress::{OnProgress, Progress, Step};
use crate::tools::Invocation;
use crate::tree::{furnish, remove, write};
use crate::uncompressed;
use crate::xen_guest;
use crate::xen_recipe::{ATA_MODULES, EARLY_MODULES, GUEST_MODULES, LATER_MODULES, VIRTIO_MODULES};

pub(crate) const HYPERVISOR: &str = "xen.elf";
pub(crate) const KERNEL: &str = "vmlinux";
/// Free room on the disk, in bytes.
const ROOM: u64 = 256 << 20;
/// The largest hypervisor that is unpacked, in bytes: Debian's has 5 MiB.
const LARGEST_HYPERVISOR: u64 = 64 << 20;

/// The modules of a control domain; each list is in loading order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct XenModules {
    /// The modules of Xen and of the root file system.
    pub always: Vec<String>,
    /// The modules of QEMU's disk.
    pub virtio: Vec<String>,
    /// The modules of Bochs's disk.
    pub ata: Vec<String>,
}

impl XenModules {
    /// All modules, each once.
    pub(crate) fn all(&self) -> Vec<&String> {
        let mut all: Vec<&String> = Vec::new();
        for module in self.always.iter().chain(&self.virtio).chain(&self.ata) {
            if !all.contains(&module) {
                all.push(module);
            }
        }
        all
    }

    /// The modules that the machine of `emulator` needs.
    pub(crate) fn needed(&self, emulator: Emulator) -> impl Iterator<Item = &String> {
        let disk = match emulator {
            Emulator::Bochs => &self.ata,
            Emulator::Qemu => &self.virtio,
        };
        self.always.iter().chain(disk)
    }
}

/// Facts about the kernel that other parts of the image need.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) kernel_release: String,
    /// The modules to load before the disk is available.
    pub(crate) modules: XenModules,
}

pub(crate) fn assemble(root: &Path, image: &Path, on_progress: OnProgress<'_>) -> Result<Assembled, Error> {
    let mut done = 0;
    let mut step = || {
        on_progress(Progress { step: Step::Assemble, done, total: 3 });
        done += 1;
    };
    step();
    unpack_hypervisor(root, image)?;
    let kernel = PackedKernel::of(root)?;
    write(&image.join(KERNEL), &kernel.elf)?;
    let guest = root.join(xen_guest::FOLDER);
    write(&guest.join("vmlinux"), &kernel.elf)?;
    write(&guest.join("bzImage"), &uncompressed::bzimage(&kernel.path, &kernel.compressed, &kernel.elf)?)?;
    let busybox = root.join("usr/bin/busybox");
    let busybox = fs::read(&busybox).map_err(Error::file("Could not read", &busybox))?;
    xen_guest::write_below(root, &busybox)?;
    step();
    let modules = keep_modules(root, image, &kernel.release, &guest.join(xen_guest::DEVICE_RAM_DISK))?;
    remove(&root.join("boot"))?;
    prepare_tree(root)?;
    step();
    make_disk(root, &image.join(DISK), ROOM)?;
    Ok(Assembled { kernel_release: kernel.release, modules })
}

/// Unpacks Xen, which Debian compresses with gzip, for QEMU's multiboot loader.
fn unpack_hypervisor(root: &Path, image: &Path) -> Result<(), Error> {
    let boot = root.join("boot");
    let problem =
        |path: &Path, problem: &str| Error::Kernel { path: path.to_owned(), problem: problem.into() };
    let packed = files_below(&boot)
        .into_iter()
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("xen-") && name.ends_with(".gz")
        })
        .max()
        .ok_or_else(|| problem(&boot, "no xen-*.gz was unpacked"))?;
    let mut gzip = Invocation::of_tree(root, "usr/bin/gzip");
    gzip.args(["--decompress", "--stdout"]).arg(&packed);
    let mut child = gzip
        .command_under(&[])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .map_err(Error::file("Could not start", "gzip"))?;
    let mut elf = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout
            .take(LARGEST_HYPERVISOR)
            .read_to_end(&mut elf)
            .map_err(Error::file("Could not unpack", &packed))?;
    }
    let status = child.wait().map_err(Error::file("Could not wait for", "gzip"))?;
    // Check the ELF class: QEMU's loader only accepts 32-bit images, such as Debian's.
    if !status.success() || !elf.starts_with(b"\x7fELF\x01") {
        return Err(problem(&packed, "it is not a 32-bit ELF file packed with gzip"));
    }
    write(&image.join(HYPERVISOR), &elf)
}

/// Unpacks the modules that are loaded early into the image, makes the initial RAM disk of the guests that
/// load modules, keeps modules in the tree that may be needed later, and removes all others.
fn keep_modules(
    root: &Path,
    image: &Path,
    release: &str,
    guest_ram_disk: &Path,
) -> Result<XenModules, Error> {
    list_modules(root, release)?;
    let folder = root.join("usr/lib/modules").join(release);
    let early = EARLY_MODULES.iter().chain(&VIRTIO_MODULES).chain(&ATA_MODULES);
    let wanted: Vec<&str> = early.chain(&LATER_MODULES).chain(&GUEST_MODULES).copied().collect();
    let order = loading(&folder, &wanted)?;
    let available = files_below(&folder);
    let early = XenModules {
        always: with_needs(&order, &EARLY_MODULES),
        virtio: with_needs(&order, &VIRTIO_MODULES),
        ata: with_needs(&order, &ATA_MODULES),
    };
    for file in early.all() {
        write(&image.join(MODULES).join(file), &unpacked_module(&folder, &available, file)?)?;
    }
    let drivers: Result<Vec<_>, Error> = with_needs(&order, &GUEST_MODULES)
        .into_iter()
        .map(|file| unpacked_module(&folder, &available, &file).map(|contents| (file, contents)))
        .collect();
    write(guest_ram_disk, &reporting_guest(root, &drivers?)?)?;
    let kept: Vec<&String> = order.values().flatten().collect();
    let needless = |path: &&PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let module = name.strip_suffix(".xz").filter(|name| name.ends_with(".ko"));
        module.is_some_and(|name| !kept.iter().any(|kept| *kept == name))
    };
    for path in available.iter().filter(needless) {
        fs::remove_file(path).map_err(Error::file("Could not remove", path))?;
    }
    list_modules(root, release)?;
    Ok(early)
}

/// Creates the files and folders of a control domain that maintainer scripts of packages would create.
fn prepare_tree(root: &Path) -> Result<(), Error> {
    const FOLDERS: [&str; 12] = [
        "proc",
        "sys",
        "dev",
        "run",
        "tmp",
        "root",
        "mnt",
        "var/lib/xen",
        "var/lib/xenstored",
        "var/log/xen/console",
        "etc/xen/auto",
        "usr/local/sbin",
    ];
    let files = [
        (
            "etc/passwd",
            "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        ),
        ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
        ("etc/hostname", "exitless-xen\n"),
        ("etc/hosts", "127.0.0.1 localhost exitless-xen\n::1 localhost\n"),
        // The mount point for this program, which is mounted when the host boots. The image must not depend
        // on the program's version.
        ("usr/bin/exitless", ""),
    ];
    furnish(root, &FOLDERS, &files)?;
    let links = [("usr/bin/awk", "gawk"), ("var/run", "/run"), ("var/lock", "/run/lock")];
    for (path, target) in links {
        let link = root.join(path);
        // An old package ships this as an empty folder.
        let _ = fs::remove_dir(&link);
        if link.symlink_metadata().is_err() {
            symlink(target, &link).map_err(Error::file("Could not link", &link))?;
        }
    }
    link_programs(root)
}

/// Links Xen's programs. Debian's commands are scripts that find the running version's program and call it.
/// There is only one version here, and a script takes an emulated CPU a second.
fn link_programs(root: &Path) -> Result<(), Error> {
    let programs = files_below(&root.join("usr/lib")).into_iter().filter(|path| {
        let folder = path.parent().and_then(|folder| folder.strip_prefix(root.join("usr/lib")).ok());
        folder.is_some_and(|folder| {
            let text = folder.to_string_lossy();
            text.starts_with("xen-4") && text.ends_with("/bin")
        })
    });
    for program in programs {
        let (Some(name), Ok(below)) = (program.file_name(), program.strip_prefix(root)) else { continue };
        let link = root.join("usr/local/sbin").join(name);
        symlink(Path::new("/").join(below), &link).map_err(Error::file("Could not link", &link))?;
    }
    Ok(())
}
