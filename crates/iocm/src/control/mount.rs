//! The control tree as a file system.
//!
//! It is mounted by a call of our own rather than by a setuid program, so that mounting needs root (`CAP_SYS_ADMIN`), and
//! takes place before the daemon gives that away. Taking it away needs the same: a process that has not given it away does
//! so when the daemon has ended ([`unmount`]).

mod file_system;

use super::access::Access;
use crate::daemon::Daemon;
use file_system::Tree;
use fuser::{BackgroundSession, Config, Session, SessionACL};
use rustix::fs::{Mode as FileMode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file system that is mounted, and that nobody answers for yet.
#[derive(Debug)]
pub struct Mounted {
    path: PathBuf,
    device: Option<OwnedFd>,
    access: Access,
}

/// A file system that is answered for. Dropping it takes it away, where this process may.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
    session: Option<BackgroundSession>,
}

/// Why the tree is not mounted.
#[derive(Debug, thiserror::Error)]
#[error("Cannot mount the control tree at {path}: {what}")]
pub struct MountError {
    path: PathBuf,
    what: &'static str,
    #[source]
    source: io::Error,
}

impl Mounted {
    /// Mounts the tree. Its directory is made where it is not there; what a daemon that was killed left there is taken
    /// away.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn new(path: &Path, access: Access) -> Result<Self, MountError> {
        let cannot = |what| move |source: io::Error| MountError { path: path.to_owned(), what, source };
        if is_dead(path) {
            unmount(path).map_err(cannot("a daemon that is gone left one there"))?;
        }
        std::fs::create_dir_all(path).map_err(cannot("there is no such directory"))?;
        // By descriptor from here on: who owns the directory above could put a link to any other one there.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = rustix::fs::open(path, flags, FileMode::empty());
        let place = place.map_err(|error| cannot("it is no directory")(error.into()))?;
        let is_mounted = rustix::fs::fstatfs(&place).is_ok_and(|found| found.f_type == FUSE_MAGIC);
        if is_mounted {
            return Err(cannot("something is mounted there")(io::ErrorKind::AddrInUse.into()));
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let device = rustix::fs::open("/dev/fuse", flags, FileMode::empty());
        let device = device.map_err(|error| cannot("/dev/fuse cannot be opened")(error.into()))?;
        let options = format!(
            "fd={},rootmode=40000,user_id={},group_id={},default_permissions,allow_other",
            device.as_raw_fd(),
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let options = CString::new(options).map_err(|error| cannot("its options")(error.into()))?;
        let flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
        let target = format!("/proc/self/fd/{}", place.as_raw_fd());
        let mounted = rustix::mount::mount("exitless", target, "fuse.exitless", flags, options.as_c_str());
        mounted.map_err(|error| cannot("this needs root")(error.into()))?;
        Ok(Self { path: path.to_owned(), device: Some(device), access })
    }

    /// Answers for a daemon.
    ///
    /// # Errors
    /// [`MountError`] when the kernel speaks another protocol, or gives no thread.
    pub fn serve(mut self, daemon: &Arc<Daemon>) -> Result<Mount, MountError> {
        let path = self.path.clone();
        let cannot = |what, source: io::Error| MountError { path: path.clone(), what, source };
        let device = self.device.take();
        let device = device.ok_or_else(|| cannot("it is answered for", io::ErrorKind::Other.into()))?;
        let tree = Tree::new(Arc::downgrade(daemon), self.access);
        let session = Session::from_fd(tree, device, SessionACL::All, Config::default());
        let session = session.map_err(|error| cannot("the kernel's protocol is another one", error))?;
        let session = session.spawn().map_err(|error| cannot("there is no thread for it", error))?;
        // From here on it is the other one's to take away.
        let path = std::mem::take(&mut self.path);
        Ok(Mount { path, session: Some(session) })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            let _ = unmount(&self.path);
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        match unmount(&self.path) {
            Ok(()) => {
                if let Some(session) = self.session.take() {
                    let _ = session.join();
                }
            }
            // Its thread ends with this process.
            Err(error) => tracing::debug!("{} stays until it is taken away: {error}", self.path.display()),
        }
    }
}

/// `FUSE_SUPER_MAGIC` (include/uapi/linux/magic.h).
const FUSE_MAGIC: rustix::fs::FsWord = 0x6573_5546;

/// Whether a tree is mounted there for which nobody answers any more.
#[must_use]
pub fn is_dead(path: &Path) -> bool {
    rustix::fs::stat(path).is_err_and(|error| error == rustix::io::Errno::NOTCONN)
}

/// Takes the tree away, whoever uses it.
///
/// # Errors
/// When nothing is mounted there, or this process may not.
pub fn unmount(path: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(path, UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?)
}
