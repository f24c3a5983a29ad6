//! Makes the parts of an image from the tree of unpacked packages.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::archive::Archive;
use crate::error::Error;
use crate::kernel;
use crate::module_signature::without_signature;
use crate::namespaces;
use crate::packages::succeeded;
use crate::progress::{OnProgress, Progress, Step};
use crate::tools::{Invocation, LIBRARIES};
use crate::tree::{BLOCK, contents_size, copy, furnish, remove, write};

// Names of an image's files and folders.
pub(crate) const KERNEL: &str = "vmlinux";
pub(crate) const DISK: &str = "disk.ext4";
pub(crate) const BUSYBOX: &str = "busybox";
pub(crate) const MODULES: &str = "modules";
pub(crate) const TOOLS: &str = "tools";

/// Facts about the kernel that other parts of the image need.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) release: String,
    pub(crate) modules: Vec<String>,
}

/// Debian's QEMU, below the tools' folder, for machines that cannot compile ours.
pub(crate) const STOCK_QEMU: &str = "usr/bin/qemu-system-x86_64";
/// The files that the emulators need besides their programs.
const EMULATOR_DATA: [&str; 5] =
    [LIBRARIES, "usr/share/bochs", "usr/share/vgabios", "usr/share/qemu", "usr/share/seabios"];

/// KVM's modules in loading order; the vendor's module comes after them.
pub(crate) const KVM_MODULES: [&str; 2] = ["irqbypass.ko", "kvm.ko"];
/// The module for QEMU's disks. NVMe would be built into the kernel, but a snapshot cannot hold its state.
pub(crate) const VIRTIO_MODULES: [&str; 1] = ["virtio_blk.ko"];
/// The modules for Bochs's disk, in loading order.
pub(crate) const ATA_MODULES: [&str; 5] =
    ["scsi_common.ko", "scsi_mod.ko", "sd_mod.ko", "libata.ko", "ata_piix.ko"];
const VENDOR_MODULES: [&str; 2] = ["kvm-intel.ko", "kvm-amd.ko"];

/// Folder in the disk with a kernel and an initial RAM disk for nested VMs.
const GUEST: &str = "opt/exitless/guest";
/// Bochs describes the geometry of disks as cylinders of 16 heads and 63 sectors.
pub(crate) const CYLINDER: u64 = 16 * 63 * 512;
/// Free room in the disk of an emulated host, in bytes.
const DISK_ROOM: u64 = 512 << 20;

pub(crate) fn assemble(root: &Path, image: &Path, on_progress: OnProgress<'_>) -> Result<Kernel, Error> {
    let mut done = 0;
    let mut step = || {
        on_progress(Progress { step: Step::Assemble, done, total: 4 });
        done += 1;
    };
    step();
    let kernel = kernel_and_modules(root, image)?;
    step();
    copy(&root.join("usr/bin/busybox"), &image.join(BUSYBOX))?;
    prepare_tree(root, &kernel.release)?;
    step();
    make_disk(root, &image.join(DISK), DISK_ROOM)?;
    step();
    keep_tools(root, &image.join(TOOLS))?;
    Ok(kernel)
}

fn kernel_and_modules(root: &Path, image: &Path) -> Result<Kernel, Error> {
    let PackedKernel { release, compressed, elf, .. } = PackedKernel::of(root)?;
    write(&image.join(KERNEL), &elf)?;
    write(&root.join(GUEST).join("vmlinux"), &elf)?;
    write(&root.join(GUEST).join("vmlinuz"), &compressed)?;
    write(&root.join(GUEST).join("initrd.img"), &reporting_guest(root, &[])?)?;

    let folder = root.join("usr/lib/modules").join(&release);
    let available = files_below(&folder);
    let wanted = KVM_MODULES.iter().chain(&ATA_MODULES).chain(&VIRTIO_MODULES).chain(&VENDOR_MODULES);
    let mut modules = Vec::new();
    for &module in wanted {
        let packed = packed_module(&folder, &available, module)?;
        let unpacked = unpack_module(packed)?;
        write(&image.join(MODULES).join(module), &unpacked)?;
        // `modprobe` also gets the unsigned, uncompressed module: a host that loads KVM again would otherwise
        // decompress and hash it.
        write(&packed.with_extension(""), &unpacked)?;
        fs::remove_file(packed).map_err(Error::file("Could not remove", packed))?;
        modules.push(module.to_owned());
    }
    Ok(Kernel { release, modules })
}

/// The module with this file name (`kvm.ko`), uncompressed and without its signature.
pub(crate) fn unpacked_module(folder: &Path, available: &[PathBuf], module: &str) -> Result<Vec<u8>, Error> {
    unpack_module(packed_module(folder, available, module)?)
}

/// Debian's file of the module with this file name: compressed with xz; until 6.1 the plain module.
fn packed_module<'a>(folder: &Path, available: &'a [PathBuf], module: &str) -> Result<&'a PathBuf, Error> {
    // In names of modules, - and _ are equivalent.
    let same = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| {
            let name = name.to_string_lossy().replace('_', "-");
            name.strip_suffix(".xz").unwrap_or(&name) == module.replace('_', "-")
        })
    };
    available.iter().find(same).ok_or_else(|| Error::Kernel {
        path: folder.to_owned(),
        problem: format!("it has no module {module}"),
    })
}

fn unpack_module(packed: &Path) -> Result<Vec<u8>, Error> {
    let file = fs::File::open(packed).map_err(Error::file("Could not open", packed))?;
    let mut unpacked = Vec::new();
    let read = match packed.extension() {
        Some(kind) if kind == "xz" => liblzma::read::XzDecoder::new(file).read_to_end(&mut unpacked),
        _ => (&file).read_to_end(&mut unpacked),
    };
    read.map_err(Error::file("Could not unpack", packed))?;
    Ok(without_signature(unpacked))
}

/// The newest kernel of a tree of packages.
pub(crate) struct PackedKernel {
    pub(crate) path: PathBuf,
    /// The release, as `uname -r` prints it.
    pub(crate) release: String,
    /// The compressed image, as Debian ships it.
    pub(crate) compressed: Vec<u8>,
    pub(crate) elf: Vec<u8>,
}

impl PackedKernel {
    pub(crate) fn of(root: &Path) -> Result<Self, Error> {
        let (path, release) = find_kernel(root)?;
        let compressed = fs::read(&path).map_err(Error::file("Could not read", &path))?;
        let elf = kernel::unpack_bzimage(&path, &compressed)?;
        Ok(Self { path, release, compressed, elf })
    }
}

/// The newest kernel of the tree, and its release: `/boot/vmlinuz-RELEASE`, or since Linux 7.3
/// `/usr/lib/modules/RELEASE/vmlinuz`.
fn find_kernel(root: &Path) -> Result<(PathBuf, String), Error> {
    let named = |folder: &str| {
        let entries = fs::read_dir(root.join(folder)).into_iter().flatten().filter_map(Result::ok);
        entries.map(|entry| (entry.path(), entry.file_name().to_string_lossy().into_owned()))
    };
    let in_boot = named("boot")
        .filter_map(|(path, name)| name.strip_prefix("vmlinuz-").map(|release| (path, release.to_owned())));
    let beside_modules = named("usr/lib/modules").map(|(path, release)| (path.join("vmlinuz"), release));
    in_boot.chain(beside_modules.filter(|(path, _)| path.is_file())).max().ok_or_else(|| Error::Kernel {
        path: root.to_owned(),
        problem: "neither boot/vmlinuz-* nor usr/lib/modules/*/vmlinuz was unpacked".to_owned(),
    })
}

/// Lists all files below a folder.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries
        .flat_map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => files_below(&entry.path()),
            _ => vec![entry.path()],
        })
        .collect()
}

/// The initial RAM disk of a guest that loads these modules (file names and contents), reports that it is up,
/// runs /job.sh if a second archive contains it, and powers off.
pub(crate) fn reporting_guest(root: &Path, modules: &[(String, Vec<u8>)]) -> Result<Vec<u8>, Error> {
    let load: String = modules.iter().map(|(file, _)| format!("insmod /modules/{file}\n")).collect();
    let init = format!(
        "#!/bin/busybox sh\n\
         /bin/busybox --install -s /bin\n\
         mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev\n\
         {load}\
         read up rest < /proc/uptime; echo \"exitless guest up after $up s\"\n\
         [ -f /job.sh ] && sh /job.sh\n\
         poweroff -f\n"
    );
    let in_memory = || Error::file("Could not make the guest's", "initial RAM disk");
    let busybox = root.join("usr/bin/busybox");
    let busybox = fs::read(&busybox).map_err(Error::file("Could not read", &busybox))?;
    let mut archive = Archive::default();
    for folder in ["/proc", "/sys", "/dev"] {
        archive.folder(folder).map_err(in_memory())?;
    }
    archive.file("/bin/busybox", 0o755, &busybox).map_err(in_memory())?;
    for (file, contents) in modules {
        archive.file(&format!("/modules/{file}"), 0o644, contents).map_err(in_memory())?;
    }
    archive.file("/init", 0o755, init.as_bytes()).map_err(in_memory())?;
    archive.finish().map_err(in_memory())
}

/// Creates the files and folders of an emulated host that maintainer scripts of packages would create.
fn prepare_tree(root: &Path, release: &str) -> Result<(), Error> {
    let files = [
        (
            "etc/passwd",
            "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        ),
        ("etc/group", "root:x:0:\nkvm:x:104:\nnogroup:x:65534:\n"),
        ("etc/hostname", "exitless-lab\n"),
        ("etc/hosts", "127.0.0.1 localhost exitless-lab\n::1 localhost\n"),
        // The mount point for this program, which is mounted when the host boots. The image must not depend
        // on the program's version.
        ("usr/bin/exitless", ""),
    ];
    furnish(root, &["proc", "sys", "dev", "run", "tmp", "root", "mnt"], &files)?;
    let awk = root.join("usr/bin/awk");
    if !awk.exists() {
        symlink("gawk", &awk).map_err(Error::file("Could not link", &awk))?;
    }
    list_modules(root, release)
}

/// Makes /lib a symbolic link, because depmod looks there for modules. In packages of older releases it is a
/// folder.
pub(crate) fn merge_libraries(root: &Path) -> Result<(), Error> {
    let (own, merged) = (root.join("lib"), root.join("usr/lib"));
    let modules = own.join("modules");
    if modules.exists() {
        let place = merged.join("modules");
        fs::rename(&modules, &place).map_err(Error::file("Could not move", &modules))?;
    }
    remove(&own)?;
    symlink("usr/lib", &own).map_err(Error::file("Could not link", own))
}

/// Runs depmod, which writes modules.dep and related files.
pub(crate) fn list_modules(root: &Path, release: &str) -> Result<(), Error> {
    let mut depmod = Invocation::of_tree(root, "usr/bin/kmod");
    // kmod behaves as depmod if called by that name.
    depmod.arguments.splice(0..0, ["--argv0".into(), "depmod".into()]);
    depmod.arg("--basedir").arg(root).arg(release);
    run(&depmod, &[], "depmod")
}

/// Makes an ext4 file system from the tree, with `room` bytes of free space.
pub(crate) fn make_disk(root: &Path, disk: &Path, room: u64) -> Result<(), Error> {
    let size = disk_size(root, room);
    run(&mke2fs(root, disk, size), namespaces::as_root(), "mke2fs")?;
    let file = fs::OpenOptions::new().write(true).open(disk).map_err(Error::file("Could not open", disk))?;
    file.set_len(size).map_err(Error::file("Could not size", disk))
}

/// The size of a disk with the tree and `room` bytes of free space.
fn disk_size(root: &Path, room: u64) -> u64 {
    (contents_size(root) * 11 / 10 + room).next_multiple_of(CYLINDER)
}

fn mke2fs(root: &Path, disk: &Path, size: u64) -> Invocation {
    let mut mke2fs = Invocation::of_tree(root, "usr/sbin/mke2fs");
    // The features of the file system must not depend on this machine's configuration.
    mke2fs.env("MKE2FS_CONFIG", root.join("etc/mke2fs.conf"));
    mke2fs.args(["-q", "-t", "ext4", "-m", "0", "-L", "exitless", "-O", "^has_journal,^metadata_csum"]);
    mke2fs.arg("-b").arg(BLOCK.to_string());
    mke2fs
        .args(["-E", "lazy_itable_init=0,nodiscard", "-d"])
        .arg(root)
        .arg(disk)
        .arg(format!("{}k", size / 1024));
    mke2fs
}

fn keep_tools(root: &Path, tools: &Path) -> Result<(), Error> {
    for part in [STOCK_QEMU].iter().chain(&EMULATOR_DATA) {
        let (from, to) = (root.join(part), tools.join(part));
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(Error::file("Could not make", parent))?;
        }
        fs::rename(&from, &to).map_err(Error::file("Could not keep", &from))?;
    }
    Ok(())
}

pub(crate) fn run(invocation: &Invocation, wrapper: &[&str], name: &str) -> Result<(), Error> {
    let output = invocation.command_under(wrapper).output().map_err(Error::file("Could not start", name))?;
    succeeded(name, &output).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_room_though_the_contents_take_no_blocks_here() {
        const MIB: u64 = 1 << 20;
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("folder")).unwrap();
        // Without any block, as a file that ZFS has not written yet.
        fs::File::create(root.path().join("folder/file")).unwrap().set_len(64 * MIB).unwrap();
        symlink("file", root.path().join("link")).unwrap();
        let size = disk_size(root.path(), 16 * MIB);
        assert!((80 * MIB..90 * MIB).contains(&size), "{size}");
        assert_eq!(size % CYLINDER, 0);
    }

    #[test]
    fn a_disk_does_not_depend_on_this_machines_configuration() {
        let mke2fs = mke2fs(Path::new("/tree"), Path::new("/disk"), CYLINDER);
        assert_eq!(mke2fs.environment, [("MKE2FS_CONFIG", PathBuf::from("/tree/etc/mke2fs.conf"))]);
    }

    #[test]
    fn modules_of_an_older_package_are_where_depmod_looks() {
        let root = tempfile::tempdir().unwrap();
        write(&root.path().join("lib/modules/5.10/a.ko"), b"x").unwrap();
        fs::create_dir_all(root.path().join("usr/lib")).unwrap();
        merge_libraries(root.path()).unwrap();
        assert!(root.path().join("usr/lib/modules/5.10/a.ko").exists());
        assert!(root.path().join("lib").is_symlink() && root.path().join("lib/modules/5.10/a.ko").exists());
    }
}
