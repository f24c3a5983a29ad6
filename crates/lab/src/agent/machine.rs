//! Setting up the emulated host: kernel file systems, modules, the root file system.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_move};
use rustix::time::{ClockId, Timespec, clock_settime};

use crate::guest_agent;
use crate::guest_image::{
    BESIDE_THE_ROOT, COMPRESSED_KERNEL, IN_LABORATORY, INITIAL_RAM_DISK, KERNEL, MANIFEST, ROOT,
};
use crate::job::{BUSYBOX, GUEST_AGENT, HOME, MODULE_FOLDER, Root, Setup};

/// The serial number of a virtio disk, and the position of a disk on Bochs's ATA channel.
type Disk = (&'static str, Place);
const OWN_DISK: Disk = ("disk", Place::Master);
const GUEST_DISK: Disk = ("guest", Place::Slave);

/// A position on an ATA channel. The value is the SCSI target that Linux assigns to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Master = 0,
    Slave = 1,
}
/// Mount point of the guest image's disk.
const GUEST_ROOT: &str = "/run/exitless/guest-root";
const DISK_WAIT: Duration = Duration::from_secs(60);

/// Kernel file systems in the required order of mounting, and whether each is required: some kernels lack the
/// others.
const KERNEL_FILE_SYSTEMS: [(&str, &str, bool); 7] = [
    ("proc", "/proc", true),
    ("sysfs", "/sys", true),
    ("devtmpfs", "/dev", true),
    ("devpts", "/dev/pts", false),
    ("tmpfs", "/dev/shm", false),
    ("debugfs", "/sys/kernel/debug", false),
    ("tracefs", "/sys/kernel/tracing", false),
];

pub(super) fn mount_kernel_file_systems() -> io::Result<()> {
    for (kind, at, required) in KERNEL_FILE_SYSTEMS {
        let mounted = fs::create_dir_all(at)
            .and_then(|()| mount(kind, at, kind, MountFlags::empty(), None).map_err(io::Error::from));
        if required {
            mounted?;
        }
    }
    Ok(())
}

/// Loads a module from the initial RAM disk. A module that is already loaded is no error.
pub(super) fn load_module(file: &str, parameters: &BTreeMap<String, String>) -> Result<(), String> {
    let path = Path::new(MODULE_FOLDER).join(file);
    let name = file.trim_end_matches(".ko").replace('-', "_");
    let values = parameters.get(&name).map_or("", String::as_str);
    let values = CString::new(values).map_err(|_| format!("the parameters of {name} hold a zero byte"))?;
    let module = File::open(&path).map_err(|error| format!("opening {}: {error}", path.display()))?;
    match rustix::system::finit_module(&module, &values, 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(format!("loading the kernel module {name} with parameters {values:?}: {error}")),
    }
}

/// Waits until the machine's disks exist, without reading from them.
pub(super) fn wait_for_disks(setup: &Setup) -> Result<(), String> {
    let own = (setup.root == Root::Disk).then_some(OWN_DISK);
    let guest = setup.guest_image.then_some(GUEST_DISK);
    own.into_iter().chain(guest).try_for_each(|disk| wait_for_disk(disk, Path::new("/")).map(drop))
}

/// Sets the clock to nanoseconds since 1970. It stood still while the machine was a snapshot.
pub(super) fn set_clock(nanoseconds: u64) -> Result<(), String> {
    const SECOND: u64 = 1_000_000_000;
    // The casts are lossless: a u64 holds less than 600 years of nanoseconds.
    let time = Timespec { tv_sec: (nanoseconds / SECOND) as i64, tv_nsec: (nanoseconds % SECOND) as i64 };
    clock_settime(ClockId::Realtime, time).map_err(|error| format!("setting the clock: {error}"))
}

/// Makes the command's root file system and returns its mount point.
pub(super) fn make_root(root: Root) -> Result<PathBuf, String> {
    match root {
        Root::Bare => {
            fs::create_dir_all(HOME).map_err(|error| format!("making {HOME}: {error}"))?;
            symlink("/init", "/bin/exitless").map_err(|error| format!("linking exitless: {error}"))?;
            let installed = Command::new(BUSYBOX).args(["--install", "-s", "/bin"]).status();
            match installed {
                Ok(status) if status.success() => Ok(PathBuf::from("/")),
                other => Err(format!("installing busybox's commands: {other:?}")),
            }
        }
        Root::Disk => mount_disk(),
    }
}

/// Mounts the folder of modules where `modprobe` looks for it: the disk has only modules of another kernel.
pub(super) fn offer_modules(root: &Path) -> Result<(), String> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    offer(MODULE_FOLDER, &format!("/lib/modules/{release}"), root)
}

/// Bind-mounts a folder of the initial RAM disk below `root`.
pub(super) fn offer(from: &str, to: &str, root: &Path) -> Result<(), String> {
    let to = root.join(to.trim_start_matches('/'));
    fs::create_dir_all(&to).map_err(|error| format!("making {}: {error}", to.display()))?;
    rustix::mount::mount_bind(from, &to)
        .map_err(|error| format!("putting {from} at {}: {error}", to.display()))
}

/// Makes the device nodes that load a module when they are opened, such as /dev/net/tun and /dev/vhost-net.
/// On other systems udev makes them.
pub(super) fn make_static_nodes(root: &Path) -> Result<(), String> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let list = root.join("lib/modules").join(release).join("modules.devname");
    let text = fs::read_to_string(&list).map_err(|error| format!("reading {}: {error}", list.display()))?;
    for (name, kind, device) in text.lines().filter_map(static_node) {
        let node = root.join("dev").join(name);
        let made = match node.parent() {
            Some(folder) => fs::create_dir_all(folder),
            None => Ok(()),
        };
        let mode = Mode::RUSR | Mode::WUSR;
        let made = made.and_then(|()| match mknodat(CWD, &node, kind, mode, device) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        });
        made.map_err(|error| format!("making {}: {error}", node.display()))?;
    }
    Ok(())
}

/// Parses a line of depmod's modules.devname: `tun net/tun c10:200`. `None` for comments.
fn static_node(line: &str) -> Option<(&str, FileType, u64)> {
    let [_, name, device] = line.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
    let (kind, numbers) = match device.split_at_checked(1)? {
        ("c", numbers) => (FileType::CharacterDevice, numbers),
        ("b", numbers) => (FileType::BlockDevice, numbers),
        _ => return None,
    };
    let (major, minor) = numbers.split_once(':')?;
    Some((name, kind, makedev(major.parse().ok()?, minor.parse().ok()?)))
}

/// Makes `root` the root directory of this process and all its children.
pub(super) fn change_root(root: &Path) -> Result<(), String> {
    rustix::process::chroot(root)
        .and_then(|()| rustix::process::chdir("/"))
        .map_err(|error| format!("changing the root to {}: {error}", root.display()))
}

fn mount_disk() -> Result<PathBuf, String> {
    let at = Path::new("/disk");
    fs::create_dir_all(at).map_err(|error| format!("making {}: {error}", at.display()))?;
    let disk = wait_for_disk(OWN_DISK, Path::new("/"))?;
    mount(Path::new(&disk), at, "ext4", MountFlags::NOATIME, None)
        .map_err(|error| format!("mounting {disk}: {error}"))?;
    for folder in ["proc", "sys", "dev"] {
        let (from, to) = (Path::new("/").join(folder), at.join(folder));
        mount_move(&from, &to).map_err(|error| format!("moving /{folder} to the disk: {error}"))?;
    }
    for folder in ["tmp", "run"] {
        let to = at.join(folder);
        mount("tmpfs", &to, "tmpfs", MountFlags::empty(), None)
            .map_err(|error| format!("mounting {}: {error}", to.display()))?;
    }
    let program = at.join("usr/bin/exitless");
    rustix::mount::mount_bind("/init", &program)
        .map_err(|error| format!("putting exitless at {}: {error}", program.display()))?;
    Ok(at.to_owned())
}

/// Mounts the second disk, and links the parts of a guest image to where they are expected; the disk itself
/// is the guests' root. Mounts the agent of guests, if there is one, next to this program.
pub(super) fn offer_guest_image(root: &Path) -> Result<(), String> {
    let disk = wait_for_disk(GUEST_DISK, root)?;
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let (mounted, offered) = (below(GUEST_ROOT), below(IN_LABORATORY));
    for folder in [&mounted, &offered] {
        fs::create_dir_all(folder).map_err(|error| format!("making {}: {error}", folder.display()))?;
    }
    mount(below(&disk), &mounted, "ext4", MountFlags::RDONLY, None)
        .map_err(|error| format!("mounting the guest image's disk {disk}: {error}"))?;
    let beside = [MANIFEST, KERNEL, COMPRESSED_KERNEL, INITIAL_RAM_DISK]
        .map(|name| (format!("{GUEST_ROOT}/{BESIDE_THE_ROOT}/{name}"), name));
    for (target, name) in beside.into_iter().chain([(disk, ROOT)]) {
        symlink(&target, offered.join(name)).map_err(|error| format!("linking {target}: {error}"))?;
    }
    if !Path::new(GUEST_AGENT).exists() {
        return Ok(());
    }
    // A bind mount needs an existing file.
    let agent = below("/usr/bin").join(guest_agent::NAME);
    let put = File::create(&agent)
        .and_then(|_| rustix::mount::mount_bind(GUEST_AGENT, &agent).map_err(io::Error::from));
    put.map_err(|error| format!("putting the agent of guests at {}: {error}", agent.display()))
}

/// Waits for the disk and returns its path below `root`.
fn wait_for_disk(disk: Disk, root: &Path) -> Result<String, String> {
    let begun = Instant::now();
    loop {
        // The disk appears in /sys shortly before it appears in /dev.
        if let Some(name) = find_disk(disk, &root.join("sys/block"))
            && root.join("dev").join(&name).exists()
        {
            return Ok(format!("/dev/{name}"));
        }
        if begun.elapsed() > DISK_WAIT {
            let (serial, place) = disk;
            return Err(format!(
                "neither a virtio disk with the serial number {serial} nor an ATA disk as {place:?} appeared within \
                 {DISK_WAIT:?}"
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Finds a disk's name. Linux probes disks in parallel, so neither virtio's nor ATA's names follow a fixed
/// order.
fn find_disk((serial, place): Disk, block: &Path) -> Option<String> {
    let disks = fs::read_dir(block).ok()?;
    let mut names = disks.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.find(|found| match fs::read_to_string(block.join(found).join("serial")) {
        Ok(number) => number.trim() == serial,
        Err(_) => ata_target(&block.join(found)) == Some(place as u32),
    })
}

/// The target in a disk's SCSI address, `HOST:CHANNEL:TARGET:LUN`, which is the name of its device's folder.
fn ata_target(disk: &Path) -> Option<u32> {
    let device = fs::read_link(disk.join("device")).ok()?;
    let address: Vec<&str> = device.file_name()?.to_str()?.split(':').collect();
    let [_, _, target, _] = address[..] else { return None };
    target.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtio_disk_is_found_by_its_serial_number_and_not_by_its_name() {
        let block = tempfile::tempdir().unwrap();
        for (disk, number) in [("vda", "guest\n"), ("vdb", "disk\n")] {
            fs::create_dir(block.path().join(disk)).unwrap();
            fs::write(block.path().join(disk).join("serial"), number).unwrap();
        }
        fs::create_dir(block.path().join("loop0")).unwrap();
        assert_eq!(find_disk(OWN_DISK, block.path()).as_deref(), Some("vdb"));
        assert_eq!(find_disk(GUEST_DISK, block.path()).as_deref(), Some("vda"));
    }

    #[test]
    fn device_nodes_come_from_the_list_of_depmod() {
        let tun = ("net/tun", FileType::CharacterDevice, makedev(10, 200));
        assert_eq!(static_node("tun net/tun c10:200"), Some(tun));
        assert_eq!(static_node("loop loop-control b7:0").map(|node| node.1), Some(FileType::BlockDevice));
        assert_eq!(static_node("# Device nodes to trigger on-demand module loading."), None);
        assert_eq!(static_node("tun net/tun c10"), None);
    }

    /// Bochs's disks, when Linux probed the slave first.
    #[test]
    fn an_ata_disk_is_found_by_its_place_and_not_by_its_name() {
        let block = tempfile::tempdir().unwrap();
        assert_eq!(find_disk(OWN_DISK, block.path()), None);
        for (disk, device) in
            [("sda", "../../../0:0:1:0"), ("sdb", "../../../0:0:0:0"), ("sr0", "../../../1:0:0")]
        {
            fs::create_dir(block.path().join(disk)).unwrap();
            symlink(device, block.path().join(disk).join("device")).unwrap();
        }
        fs::create_dir(block.path().join("loop0")).unwrap();
        assert_eq!(find_disk(OWN_DISK, block.path()).as_deref(), Some("sdb"));
        assert_eq!(find_disk(GUEST_DISK, block.path()).as_deref(), Some("sda"));
    }
}
