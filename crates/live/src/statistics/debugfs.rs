//! Counters from KVM's directories in debugfs.

use super::{Counters, Found};
use host::vms::Vm;
use std::fs::{self, DirEntry, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The error of reading debugfs.
#[derive(Debug, thiserror::Error)]
pub(super) enum DebugfsError {
    #[error("{path} cannot be read; {next}")]
    Read {
        path: PathBuf,
        next: &'static str,
        #[source]
        source: io::Error,
    },
    #[error(
        "{path} has no directory of process {pid}; its VM has ended, or was made before debugfs was there"
    )]
    NoDirectory { path: PathBuf, pid: i32 },
    #[error("{path} has no known counter; this kernel's KVM is not supported")]
    NoCounter { path: PathBuf },
}

/// The counters of all VMs of the process, summed.
pub(super) fn read(root: &Path, vm: &Vm) -> Result<Found, DebugfsError> {
    if vm.debugfs.is_empty() {
        let path = root.join("sys/kernel/debug/kvm");
        return Err(match fs::read_dir(&path) {
            Ok(_) => DebugfsError::NoDirectory { path, pid: vm.pid },
            Err(source) => cannot_read(path, source),
        });
    }
    let mut found = Found::default();
    for home in &vm.debugfs {
        let counters = counters(home)?;
        if counters.is_empty() {
            return Err(DebugfsError::NoCounter { path: home.clone() });
        }
        found.add(&counters);
    }
    found.name_units();
    Ok(found)
}

fn counters(home: &Path) -> Result<Counters, DebugfsError> {
    let entries = fs::read_dir(home).map_err(|source| cannot_read(home.to_owned(), source))?;
    let mut counters = Counters::new();
    for entry in entries.flatten() {
        let Some(name) = counter_name(&entry) else { continue };
        let text = text(&entry.path()).map_err(|source| cannot_read(entry.path(), source))?;
        if let Ok(value) = text.trim().parse() {
            counters.insert(name, value);
        }
    }
    Ok(counters)
}

/// The file's name if it is that of a cumulative counter.
fn counter_name(entry: &DirEntry) -> Option<String> {
    let name = entry.file_name().into_string().ok()?;
    let about = entry.metadata().ok()?;
    // Gauges are not writable (virt/kvm/kvm_main.c, kvm_stats_debugfs_mode); only one bucket of a histogram is
    // readable; and reading the table of rmaps blocks the VM's page faults.
    let of_another_kind = name.starts_with("max_") || name.ends_with("_hist") || name == "mmu_rmaps_stat";
    (about.is_file() && about.permissions().mode() & 0o200 != 0 && !of_another_kind).then_some(name)
}

fn text(path: &Path) -> io::Result<String> {
    const LONGEST: u64 = 64;
    let mut text = String::new();
    File::open(path)?.take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

fn cannot_read(path: PathBuf, source: io::Error) -> DebugfsError {
    let next = match (source.kind(), source.raw_os_error()) {
        // EPERM instead of EACCES: lockdown denies access to debugfs even to root.
        (_, Some(libc::EPERM)) => "the kernel is locked down (/sys/kernel/security/lockdown)",
        (io::ErrorKind::PermissionDenied, _) => "run as root",
        (io::ErrorKind::NotFound, _) => {
            "mount debugfs with `mount -t debugfs debugfs /sys/kernel/debug`, and see whether KVM is loaded and \
             the VM still runs"
        }
        _ => "see the cause",
    };
    DebugfsError::Read { path, next, source }
}
