//! tracefs, the file system in which the kernel describes its tracepoints.

use crate::{Error, EventFormat, lockdown};
use exits::KernelVersion;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A mounted tracefs.
#[derive(Debug, Clone)]
pub struct Tracefs {
    home: PathBuf,
    root: PathBuf,
    kernel: Option<KernelVersion>,
}

impl Tracefs {
    /// Finds the tracefs of the host below `root` (`/` for this one). Does not mount it.
    ///
    /// # Errors
    /// [`Error::NoTracefs`] if none is mounted, [`Error::TracefsDenied`] if it may not be accessed,
    /// [`Error::LockedDown`] if it is empty.
    pub fn find(root: &Path) -> Result<Self, Error> {
        let places = [root.join("sys/kernel/tracing"), root.join("sys/kernel/debug/tracing")];
        let release = std::fs::read_to_string(root.join("proc/sys/kernel/osrelease")).ok();
        let kernel = release.and_then(|text| text.parse().ok());
        let mut denied = None;
        for home in &places {
            match std::fs::metadata(home.join("events")) {
                Ok(_) => {
                    return Ok(Self { home: home.clone(), root: root.to_owned(), kernel });
                }
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    denied.get_or_insert_with(|| home.clone());
                }
                Err(_) => {}
            }
        }
        // A tracefs is mounted then, but has no folder of events.
        lockdown::check(root)?;
        let [first, second] = places;
        match denied {
            Some(home) => Err(Error::TracefsDenied { path: home.clone(), home }),
            None => Err(Error::NoTracefs { first, second }),
        }
    }

    /// The directory.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The version of the kernel, if its release could be read.
    #[must_use]
    pub fn kernel(&self) -> Option<KernelVersion> {
        self.kernel
    }

    /// The host's root directory.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Tests whether the kernel has this tracepoint at the moment.
    #[must_use]
    pub fn has(&self, system: &str, name: &str) -> bool {
        self.format_path(system, name).exists()
    }

    /// Reads the format of a tracepoint.
    ///
    /// # Errors
    /// [`Error::NoEvent`], [`Error::TracefsDenied`], [`Error::Read`] or [`Error::Format`].
    pub fn format(&self, system: &str, name: &str) -> Result<EventFormat, Error> {
        let path = self.format_path(system, name);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let next = match system {
                    "kvm" => {
                        "load kvm_intel or kvm_amd; a KVM without hardware virtualization has no such event"
                    }
                    _ => "the kernel was built without it",
                };
                return Err(Error::NoEvent { event: format!("{system}:{name}"), path, next });
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(Error::TracefsDenied { path, home: self.home.clone() });
            }
            Err(source) => return Err(Error::Read { path, expected: "an event's format", source }),
        };
        EventFormat::parse(&text).map_err(|source| Error::Format { path, source })
    }

    fn format_path(&self, system: &str, name: &str) -> PathBuf {
        self.home.join("events").join(system).join(name).join("format")
    }
}

/// The offset of a numeric field of this size in an event.
pub(crate) fn offset(
    format: &EventFormat,
    system: &str,
    field: &'static str,
    size: usize,
) -> Result<u32, Error> {
    let unusable = || Error::Field { event: format!("{system}:{}", format.name), field };
    let found = format.field(field).filter(|found| found.size == size && !found.array && !found.located);
    u32::try_from(found.ok_or_else(unusable)?.offset).map_err(|_| unusable())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_unmounted_tracefs_is_an_empty_directory() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("sys/kernel/tracing")).unwrap();
        let error = Tracefs::find(root.path()).unwrap_err();
        assert!(matches!(error, Error::NoTracefs { .. }));
        assert!(error.to_string().contains("mount -t tracefs"));
    }

    #[test]
    fn an_empty_tracefs_of_a_kernel_that_is_locked_down_is_not_to_be_mounted() {
        let find = |modes| Tracefs::find(lockdown::tests::host(modes).path()).unwrap_err();
        let error = find("none integrity [confidentiality]\n");
        assert!(matches!(error, Error::LockedDown), "{error}");
        assert!(matches!(find("[none] integrity confidentiality\n"), Error::NoTracefs { .. }));
    }

    #[test]
    fn debugfs_is_the_second_place() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("sys/kernel/debug/tracing");
        fs::create_dir_all(home.join("events")).unwrap();
        fs::create_dir_all(root.path().join("proc/sys/kernel")).unwrap();
        fs::write(root.path().join("proc/sys/kernel/osrelease"), "6.12.1\n").unwrap();
        let tracefs = Tracefs::find(root.path()).unwrap();
        assert_eq!(tracefs.home(), home);
        assert_eq!(tracefs.kernel(), Some(KernelVersion::new(6, 12)));
        let error = tracefs.format("kvm", "kvm_exit").unwrap_err();
        assert!(matches!(error, Error::NoEvent { .. }));
        assert!(error.to_string().contains("kvm_amd"));
    }
}
