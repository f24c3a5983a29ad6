//! Setting up a guest: kernel file systems, modules, the root file system whose changes stay in memory, the data disk.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_move};

use super::settings::Settings;
use super::{ROOT_SERIAL, WORK};

const MODULES: &str = "/exitless/modules";
const DISK_WAIT: Duration = Duration::from_secs(60);
const KERNEL_FILE_SYSTEMS: [(&str, &str, bool); 5] = [
    ("proc", "/proc", true),
    ("sysfs", "/sys", true),
    ("devtmpfs", "/dev", true),
    ("devpts", "/dev/pts", false),
    ("tmpfs", "/dev/shm", false),
];

pub(super) fn mount_kernel_file_systems() -> Result<(), String> {
    for (kind, at, required) in KERNEL_FILE_SYSTEMS {
        let mounted = fs::create_dir_all(at)
            .and_then(|()| mount(kind, at, kind, MountFlags::empty(), None).map_err(io::Error::from));
        match mounted {
            Err(error) if required => return Err(format!("mounting {at}: {error}")),
            _ => (),
        }
    }
    Ok(())
}

/// Loads modules and their dependencies. If the kernel has them built in, the image contains no list of modules.
pub(super) fn load_modules(names: &[String]) -> Result<(), String> {
    let list = Path::new(MODULES).join("loading.json");
    let text = match fs::read(&list) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|error| format!("reading {}: {error}", list.display()))?,
    };
    let loading: BTreeMap<String, Vec<String>> =
        serde_json::from_slice(&text).map_err(|error| format!("reading {}: {error}", list.display()))?;
    for file in names.iter().filter_map(|name| loading.get(name)).flatten() {
        let path = Path::new(MODULES).join(file);
        let module = File::open(&path).map_err(|error| format!("opening {}: {error}", path.display()))?;
        match rustix::system::finit_module(&module, c"", 0) {
            Ok(()) | Err(Errno::EXIST) => (),
            Err(error) => return Err(format!("loading the kernel module {file}: {error}")),
        }
    }
    Ok(())
}

/// Mounts the root file system and changes into it: an overlay of the read-only image and a tmpfs for changes.
pub(super) fn make_root(settings: &Settings) -> Result<(), String> {
    let root = Path::new("/root-above");
    for folder in ["/below", "/above", "/root-above"] {
        fs::create_dir_all(folder).map_err(|error| format!("making {folder}: {error}"))?;
    }
    let disk = wait_for("root disk", root_disk)?;
    let step = |what: &'static str| move |error: Errno| format!("{what}: {error}");
    mount(&disk, "/below", "ext4", MountFlags::RDONLY, None).map_err(step("mounting the root's disk"))?;
    mount("tmpfs", "/above", "tmpfs", MountFlags::empty(), None).map_err(step("mounting /above"))?;
    for folder in ["/above/changes", "/above/work"] {
        fs::create_dir_all(folder).map_err(|error| format!("making {folder}: {error}"))?;
    }
    let layers = c"lowerdir=/below,upperdir=/above/changes,workdir=/above/work";
    mount("overlay", root, "overlay", MountFlags::empty(), Some(layers))
        .map_err(step("mounting the root"))?;
    for folder in ["proc", "sys", "dev"] {
        mount_move(Path::new("/").join(folder), root.join(folder))
            .map_err(|error| format!("moving /{folder} to the root: {error}"))?;
    }
    for folder in ["tmp", "run"] {
        mount("tmpfs", root.join(folder), "tmpfs", MountFlags::empty(), None)
            .map_err(|error| format!("mounting /{folder}: {error}"))?;
    }
    rustix::process::chroot(root).map_err(step("changing the root"))?;
    rustix::process::chdir("/").map_err(step("changing the root"))?;
    if settings.data { mount_data(&disk) } else { Ok(()) }
}

fn mount_data(root: &Path) -> Result<(), String> {
    let disk = wait_for("disk besides the root's", || disks().into_iter().find(|disk| disk != root))?;
    // Initialize the tables now: the kernel's lazy initialization would run during the measurement.
    let made = Command::new("/sbin/mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"])
        .arg(&disk)
        .output()
        .map_err(|error| format!("running mke2fs: {error}"))?;
    if !made.status.success() {
        let words = String::from_utf8_lossy(&made.stderr).trim().to_owned();
        return Err(format!("making a file system on {}: {words}", disk.display()));
    }
    mount(&disk, WORK, "ext4", MountFlags::NOATIME, None)
        .map_err(|error| format!("mounting {} on {WORK}: {error}", disk.display()))
}

fn wait_for<T>(what: &str, look: impl Fn() -> Option<T>) -> Result<T, String> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if begun.elapsed() > DISK_WAIT {
            return Err(format!("no {what} appeared within {} s", DISK_WAIT.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The disk with the root's serial number; in Xen, where disks have none, `xvda`.
fn root_disk() -> Option<PathBuf> {
    let serial = |disk: &PathBuf| {
        let name = disk.file_name()?.to_string_lossy().into_owned();
        fs::read_to_string(format!("/sys/block/{name}/serial")).ok()
    };
    let disks = disks();
    let named = disks.iter().find(|disk| serial(disk).is_some_and(|serial| serial.trim() == ROOT_SERIAL));
    named.or_else(|| disks.iter().find(|disk| disk.ends_with("xvda"))).cloned()
}

fn disks() -> Vec<PathBuf> {
    const KINDS: [&str; 4] = ["vd", "sd", "nvme", "xvd"];
    let entries = fs::read_dir("/sys/block").into_iter().flatten().filter_map(Result::ok);
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut disks: Vec<PathBuf> = names
        .filter(|name| KINDS.iter().any(|kind| name.starts_with(kind)))
        .map(|name| Path::new("/dev").join(name))
        .filter(|path| path.exists())
        .collect();
    disks.sort();
    disks
}

/// Facts about this guest.
pub(super) fn facts() -> BTreeMap<String, String> {
    let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let model = read("/proc/cpuinfo").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    let facts = [
        ("kernel", read("/proc/sys/kernel/osrelease")),
        ("kernel arguments", read("/proc/cmdline")),
        ("CPU model", model),
        ("clock source", read("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}
