//! Setting the emulated host up: kernel file systems, modules, the root file system.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_move};

use crate::guest_image::{
    BESIDE_THE_ROOT, COMPRESSED_KERNEL, IN_LABORATORY, INITIAL_RAM_DISK, KERNEL, MANIFEST, ROOT,
};
use crate::job::{BUSYBOX, HOME, MODULE_FOLDER, Root};

const DISKS: [&str; 2] = ["/dev/nvme0n1", "/dev/sda"];
const GUEST_DISKS: [&str; 2] = ["/dev/nvme0n2", "/dev/sdb"];
/// Where the guest image's disk is mounted.
const GUEST_ROOT: &str = "/run/exitless/guest-root";
const DISK_WAIT: Duration = Duration::from_secs(60);

/// Kernel file systems, in the order in which they must be mounted. Those marked optional are there only in some
/// kernels.
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

/// Loads a module from the initial RAM disk; one that is already there is fine.
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

/// Makes the root file system of the command and returns where it is mounted.
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

/// Makes `root` the root of this process and of all that it starts.
pub(super) fn change_root(root: &Path) -> Result<(), String> {
    rustix::process::chroot(root)
        .and_then(|()| rustix::process::chdir("/"))
        .map_err(|error| format!("changing the root to {}: {error}", root.display()))
}

fn mount_disk() -> Result<PathBuf, String> {
    let at = Path::new("/disk");
    fs::create_dir_all(at).map_err(|error| format!("making {}: {error}", at.display()))?;
    let disk = wait_for_disk(DISKS, Path::new("/"))?;
    mount_ext4(Path::new(disk), at, MountFlags::NOATIME)
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

/// Mounts the second disk, and puts what a guest image has where it is looked for: the disk itself is its root.
pub(super) fn offer_guest_image(root: &Path) -> Result<(), String> {
    let disk = wait_for_disk(GUEST_DISKS, root)?;
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let (mounted, offered) = (below(GUEST_ROOT), below(IN_LABORATORY));
    for folder in [&mounted, &offered] {
        fs::create_dir_all(folder).map_err(|error| format!("making {}: {error}", folder.display()))?;
    }
    mount_ext4(&below(disk), &mounted, MountFlags::RDONLY)
        .map_err(|error| format!("mounting the guest image's disk {disk}: {error}"))?;
    let beside = [MANIFEST, KERNEL, COMPRESSED_KERNEL, INITIAL_RAM_DISK]
        .map(|name| (format!("{GUEST_ROOT}/{BESIDE_THE_ROOT}/{name}"), name));
    for (target, name) in beside.into_iter().chain([(disk.to_owned(), ROOT)]) {
        symlink(&target, offered.join(name)).map_err(|error| format!("linking {target}: {error}"))?;
    }
    Ok(())
}

/// A disk's driver gives a request up by real time, for which an emulator that waits for a CPU can be too late.
fn mount_ext4(disk: &Path, at: &Path, flags: MountFlags) -> Result<(), Errno> {
    const TRIES: u32 = 3;
    let mut outcome = mount(disk, at, "ext4", flags, None);
    for _ in 1..TRIES {
        if outcome != Err(Errno::IO) {
            break;
        }
        std::thread::sleep(Duration::from_millis(500));
        outcome = mount(disk, at, "ext4", flags, None);
    }
    outcome
}

/// The first of these that is there, below `root`.
fn wait_for_disk(disks: [&'static str; 2], root: &Path) -> Result<&'static str, String> {
    let begun = Instant::now();
    loop {
        if let Some(disk) = disks.into_iter().find(|disk| root.join(disk.trim_start_matches('/')).exists()) {
            return Ok(disk);
        }
        if begun.elapsed() > DISK_WAIT {
            return Err(format!("none of the disks {} appeared within {DISK_WAIT:?}", disks.join(", ")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
