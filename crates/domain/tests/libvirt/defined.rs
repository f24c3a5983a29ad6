//! Checks of changed XML by a real libvirt, if it and a QEMU are installed.
//!
//! No daemon is needed: virsh loads libvirt's QEMU driver itself, which keeps its files in a temporary
//! folder.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::{changed, for_old_versions};
use crate::reading::{fixtures, text};

/// Debian's QEMU, which searches for its modules next to itself.
const INSTALLED: &str = "/usr/bin/qemu-system-x86_64";

/// The QEMU of the labs, which is a single file.
fn of_laboratories() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let laboratories = cache.map(|cache| cache.join("exitless/lab"));
    let folders =
        laboratories.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let of_qemu = folders.filter(|entry| entry.file_name().to_string_lossy().starts_with("emulator-qemu-"));
    of_qemu.map(|entry| entry.path().join("emulator")).find(|path| path.is_file())
}

/// The user for virsh in a test run by root: as root the driver requires a user that the daemon's package
/// creates.
const NOBODY: u32 = 65534;

/// A libvirt whose files are in a temporary directory, which is removed when this is dropped.
struct Libvirt {
    folder: tempfile::TempDir,
    emulator: PathBuf,
}

impl Libvirt {
    /// Uses the installed QEMU, or else that of the labs. Returns the reason if none is available.
    fn new() -> Result<Self, &'static str> {
        let folder = tempfile::tempdir().expect("there is room for scratch files");
        if Path::new(INSTALLED).is_file() {
            return Self::with(PathBuf::from(INSTALLED), folder);
        }
        Self::of_a_laboratory(folder, "there is no QEMU (package qemu-system-x86, or a laboratory's)")
    }

    /// Uses the QEMU of the labs, which is newer than Debian 12's. Returns the reason if it is not available.
    fn of_a_laboratory(folder: tempfile::TempDir, otherwise: &'static str) -> Result<Self, &'static str> {
        // Copy it to a directory that the user of virsh can reach.
        let emulator = folder.path().join("qemu-system-x86_64");
        std::fs::copy(of_laboratories().ok_or(otherwise)?, &emulator).expect("there is room for an emulator");
        Self::with(emulator, folder)
    }

    fn with(emulator: PathBuf, folder: tempfile::TempDir) -> Result<Self, &'static str> {
        let here = Self { folder, emulator };
        std::fs::set_permissions(here.folder.path(), Permissions::from_mode(0o777)).expect("it is ours");
        let output = here.virsh(&["version"]).map_err(|_| "there is no virsh (package libvirt-clients)")?;
        if !output.status.success() {
            println!("{}", String::from_utf8_lossy(&output.stderr));
            return Err("virsh has no driver of QEMU that works here (package libvirt-daemon-driver-qemu)");
        }
        Ok(here)
    }

    fn virsh(&self, arguments: &[&str]) -> std::io::Result<std::process::Output> {
        let home = self.folder.path();
        let mut virsh = Command::new("virsh");
        virsh.args(["-q", "-c", &format!("qemu:///embed?root={}/root", path(home))]).args(arguments);
        for variable in ["HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"] {
            virsh.env(variable, home);
        }
        if std::fs::metadata("/proc/self")?.uid() == 0 {
            virsh.uid(NOBODY).gid(NOBODY);
        }
        virsh.env("LC_ALL", "C").current_dir(home).output()
    }

    /// libvirt's error for a document; `None` if it accepts it.
    fn complaint(&self, document: &str) -> Option<String> {
        let file = self.folder.path().join("domain.xml");
        std::fs::write(&file, self.with_emulator(document)).expect("there is room for scratch files");
        let output = self.virsh(&["define", path(&file)]).expect("virsh was there before");
        // The next document may have the same name.
        let _ = self.virsh(&["undefine", &name(document)]);
        (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }

    /// The document with this emulator and without a need for KVM.
    fn with_emulator(&self, document: &str) -> String {
        let emulator = format!("<emulator>{}</emulator>", path(&self.emulator));
        let document = match document.split_once("<emulator>") {
            Some((before, rest)) => {
                let (_, after) = rest.split_once("</emulator>").expect("elements end");
                format!("{before}{emulator}{after}")
            }
            None => document.replacen("<devices>", &format!("<devices>{emulator}"), 1),
        };
        document.replacen("type='kvm'", "type='qemu'", 1).replacen("type=\"kvm\"", "type=\"qemu\"", 1)
    }
}

fn name(document: &str) -> String {
    let rest = document.split_once("<name>").map_or("", |(_, rest)| rest);
    rest.split_once("</name>").map_or("", |(name, _)| name).to_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().expect("it is UTF-8")
}

#[test]
fn libvirt_defines_what_is_changed() {
    let libvirt = match Libvirt::new() {
        Ok(libvirt) => libvirt,
        Err(why) => return println!("not tested: {why}"),
    };
    let (mut wrong, mut defined) = (String::new(), 0);
    for name in fixtures("libvirt") {
        let complaint = |document: &[u8]| {
            // The machine types of QEMU 7.2 support only 288 vCPUs.
            let document = for_old_versions(&String::from_utf8_lossy(document)).replace(">380<", ">280<");
            libvirt.complaint(&document).map(|said| (said, document))
        };
        match (complaint(&text(&name).bytes), complaint(&changed(&name))) {
            (None, None) => defined += 1,
            // libvirt refuses the fixture even without the changes: it is for another version or host.
            (Some((before, _)), Some((after, _))) if before == after => {}
            (before, after) => wrong += &format!("{name}: {before:?}\n{after:?}\n"),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(defined >= 3, "{defined}");
}
