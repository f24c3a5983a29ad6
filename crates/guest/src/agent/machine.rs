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
use super::{DATA_SERIAL, ROOT_SERIAL, WORK};

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
    let disk = wait_for("root disk", || root_disk(Path::new("/")))?;
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
    if settings.data { mount_data() } else { Ok(()) }
}

fn mount_data() -> Result<(), String> {
    // Another disk may be one of the host's that the plan passes through.
    let disk = wait_for(&format!("disk with the serial number {DATA_SERIAL}"), || {
        disk_with(Path::new("/"), DATA_SERIAL)
    })?;
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
fn root_disk(machine: &Path) -> Option<PathBuf> {
    let xen = || Some(machine.join("dev/xvda")).filter(|disk| disk.exists());
    disk_with(machine, ROOT_SERIAL).or_else(xen)
}

/// The disk with this serial number.
fn disk_with(machine: &Path, serial: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(machine.join("sys/block")).into_iter().flatten().filter_map(Result::ok);
    let found = entries.filter(|entry| {
        // Where virtio-blk, NVMe, and SCSI and ATA have it. The last is page 80h of the vital product data, with a
        // header of four bytes (SPC-4, 7.8.14).
        [("serial", 0), ("device/serial", 0), ("device/vpd_pg80", 4)].iter().any(|&(file, header)| {
            let text = fs::read(entry.path().join(file)).unwrap_or_default();
            text.get(header..).is_some_and(|text| text.trim_ascii() == serial.as_bytes())
        })
    });
    let mut disks = found.map(|entry| machine.join("dev").join(entry.file_name()));
    disks.find(|disk| disk.exists())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of a disk, a file about it in sysfs, and the file's contents.
    type Disk = (&'static str, &'static str, &'static [u8]);

    fn machine(disks: &[Disk]) -> tempfile::TempDir {
        let machine = tempfile::tempdir().unwrap();
        fs::create_dir_all(machine.path().join("dev")).unwrap();
        fs::create_dir_all(machine.path().join("sys/block")).unwrap();
        for (name, file, contents) in disks {
            let file = machine.path().join("sys/block").join(name).join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, contents).unwrap();
            fs::write(machine.path().join("dev").join(name), "").unwrap();
        }
        machine
    }

    #[test]
    fn only_the_disk_that_was_made_for_data_is_taken_for_it() {
        let others: [Disk; 3] = [
            ("nvme0n1", "device/serial", b"S4EVNX0\n"),
            ("sda", "device/vpd_pg80", b"\0\x80\0\x08exitless"),
            ("vda", "serial", b"exitless-root"),
        ];
        let found = |machine: &tempfile::TempDir| disk_with(machine.path(), DATA_SERIAL);
        assert_eq!(found(&machine(&others)), None);
        let data: [Disk; 3] = [
            ("vdb", "serial", b"exitless-data"),
            ("nvme1n1", "device/serial", b"exitless-data       \n"),
            ("sdb", "device/vpd_pg80", b"\0\x80\0\x14exitless-data       "),
        ];
        for disk in data {
            let machine = machine(&[&others[..], &[disk]].concat());
            assert_eq!(found(&machine), Some(machine.path().join("dev").join(disk.0)));
            assert_eq!(root_disk(machine.path()), Some(machine.path().join("dev/vda")));
        }
    }

    #[test]
    fn the_root_of_a_xen_domain_is_its_first_disk() {
        let disks: [Disk; 2] = [("xvda", "size", b"1"), ("xvdb", "size", b"1")];
        let machine = machine(&disks);
        assert_eq!(root_disk(machine.path()), Some(machine.path().join("dev/xvda")));
        assert_eq!(disk_with(machine.path(), DATA_SERIAL), None);
    }
}
