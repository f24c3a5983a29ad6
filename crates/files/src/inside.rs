//! Paths below another host's root directory, whose links stay inside it.

use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// A file below a directory that is treated as `/`: absolute links and `..` are resolved inside it (openat2(2),
/// `RESOLVE_IN_ROOT`, Linux 5.6), so that no link can name a file of this machine.
#[derive(Debug)]
pub struct Inside(OwnedFd);

impl Inside {
    /// Finds a file. With `links`, a link in the last component is followed. The root `/` is this machine's own, where
    /// links are followed as usual.
    ///
    /// # Errors
    /// Of openat2(2); [`io::ErrorKind::Unsupported`] before Linux 5.6, but for `/`.
    pub fn find(root: &Path, path: &str, links: bool) -> io::Result<Self> {
        let path = path.trim_start_matches('/');
        let path = if path.is_empty() { "." } else { path };
        let top = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let last = if links { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::PATH | OFlags::CLOEXEC | last;
        let found = match root == Path::new("/") {
            true => rustix::fs::openat(top, path, flags, Mode::empty()),
            false => rustix::fs::openat2(top, path, flags, Mode::empty(), ResolveFlags::IN_ROOT),
        };
        Ok(Self(found?))
    }

    /// A path by which this process can open the file as long as this value lives.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// The target of a symbolic link that was found without following it.
    ///
    /// # Errors
    /// Of readlinkat(2); `EINVAL` for anything but a link.
    pub fn link(&self) -> io::Result<PathBuf> {
        use std::os::unix::ffi::OsStringExt as _;
        let target = rustix::fs::readlinkat(&self.0, "", Vec::new()).map_err(|error| match error {
            // The kernel's error for an empty path and a file that is not a link.
            rustix::io::Errno::NOENT => rustix::io::Errno::INVAL,
            error => error,
        })?;
        Ok(PathBuf::from(std::ffi::OsString::from_vec(target.into_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_lead_inside_the_directory() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("host");
        fs::create_dir_all(root.join("usr/lib")).unwrap();
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(folder.path().join("secret"), "mine").unwrap();
        fs::write(root.join("usr/lib/os-release"), "theirs").unwrap();
        symlink("/usr/lib/os-release", root.join("etc/os-release")).unwrap();
        symlink("../../secret", root.join("etc/above")).unwrap();
        symlink("/etc/passwd", root.join("etc/passwd")).unwrap();
        let read =
            |path: &str| Inside::find(&root, path, true).and_then(|found| fs::read_to_string(found.path()));
        assert_eq!(read("/etc/os-release").unwrap(), "theirs");
        for outside in ["/etc/above", "/etc/passwd", "/../secret"] {
            // ENOENT, and ELOOP for the link to itself.
            let error = read(outside).unwrap_err().raw_os_error();
            assert!(matches!(error, Some(2 | 40)), "{outside}: {error:?}");
        }
        let link = |path: &str| Inside::find(&root, path, false).and_then(|found| found.link());
        assert_eq!(link("/etc/os-release").unwrap(), Path::new("/usr/lib/os-release"));
        assert_eq!(link("/usr/lib/os-release").unwrap_err().raw_os_error(), Some(22));
        assert!(Inside::find(&root, "", true).unwrap().path().is_absolute());
    }
}
