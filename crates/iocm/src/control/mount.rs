//! The control tree as a file system.
//!
//! The daemon mounts it with system calls, not with the setuid program fusermount. So mounting needs `CAP_SYS_ADMIN`,
//! and happens before the daemon gives that up. Unmounting needs it, too: a process that still has it unmounts the tree
//! when the daemon has ended ([`unmount`]).
//!
//! The daemon's user may be able to write to the parent directory. So the file system is created detached, and then
//! moved onto a directory that was opened by descriptor: mount(2) would resolve the path again. It is unmounted by the
//! descriptor of the mount, whatever is at the path by then.

mod file_system;

use super::access::Access;
use crate::config::MOUNT;
use crate::daemon::Daemon;
use file_system::Tree;
use files::{Directory, Missing};
use fuser::{BackgroundSession, Config, Session, SessionACL};
use rustix::fs::{Mode as FileMode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A mounted tree that nobody serves yet.
#[derive(Debug)]
pub struct Mounted {
    path: PathBuf,
    /// The root of the mount; `None` once [`Mount`] owns it.
    mount: Option<OwnedFd>,
    device: Option<OwnedFd>,
    access: Access,
}

/// A mounted tree that is served. Dropping it unmounts the tree, if this process may.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
    mount: OwnedFd,
    unmounts: bool,
    session: Option<BackgroundSession>,
}

/// A failure to mount the tree.
#[derive(Debug, thiserror::Error)]
#[error("Cannot mount the control tree at {path}: {what}")]
pub struct MountError {
    path: PathBuf,
    what: &'static str,
    #[source]
    source: io::Error,
}

impl Mounted {
    /// Mounts the tree. A missing directory is made; a tree that a killed daemon left is unmounted first.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn new(path: &Path, access: Access) -> Result<Self, MountError> {
        let cannot = |what| move |source: io::Error| MountError { path: path.to_owned(), what, source };
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(cannot("the path does not name a directory")(io::ErrorKind::InvalidInput.into()));
        };
        let above = Directory::open(above, Missing::Made(0o755)).map_err(files::Error::into_io);
        let above = above.map_err(cannot("there is no such directory"))?;
        if let Ok(left) = above.entry(name)
            && is_dead(left.as_fd())
        {
            unmount(left.as_fd()).map_err(cannot("a daemon that has ended left a mount there"))?;
        }
        let target = Directory::open(path, Missing::Made(0o755)).map_err(files::Error::into_io);
        let target = target.map_err(cannot("there is no such directory"))?;
        if rustix::fs::fstatfs(&target).is_ok_and(|found| found.f_type == FUSE_MAGIC) {
            return Err(cannot("something is mounted there")(io::ErrorKind::AddrInUse.into()));
        }
        let device = device().map_err(|error| cannot(NO_DEVICE)(error.into()))?;
        let mount = mount(&device, &target).map_err(|error| cannot(NOT_ROOT)(error.into()))?;
        Ok(Self { path: path.to_owned(), mount: Some(mount), device: Some(device), access })
    }

    /// The mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor of the mount, for [`unmount`].
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.mount.as_ref().map(AsFd::as_fd)
    }

    /// Serves the tree of a daemon. Without `unmounts` another process unmounts it at the end, because a filter of system
    /// calls ends this one at the attempt.
    ///
    /// # Errors
    ///
    /// [`MountError`] when the kernel's FUSE version is not supported, or the host refuses a thread.
    pub fn serve(mut self, daemon: &Arc<Daemon>, unmounts: bool) -> Result<Mount, MountError> {
        let path = self.path.clone();
        let cannot = |what, source: io::Error| MountError { path: path.clone(), what, source };
        let gone = || cannot("it is answered for", io::ErrorKind::Other.into());
        let device = self.device.take().ok_or_else(gone)?;
        let tree = Tree::new(Arc::downgrade(daemon), self.access);
        let session = Session::from_fd(tree, device, SessionACL::All, Config::default());
        let session = session.map_err(|error| cannot("the kernel's protocol is another one", error))?;
        let session = session.spawn().map_err(|error| cannot("cannot start a thread for it", error))?;
        let mount = self.mount.take().ok_or_else(gone)?;
        Ok(Mount { path, mount, unmounts, session: Some(session) })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mount) = &self.mount {
            let _ = unmount(mount.as_fd());
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.unmounts {
            return;
        }
        match unmount(self.mount.as_fd()) {
            Ok(()) => {
                if let Some(session) = self.session.take() {
                    let _ = session.join();
                }
            }
            // Its thread ends with this process.
            Err(error) => tracing::debug!("{} stays until it is removed: {error}", self.path.display()),
        }
    }
}

/// `FUSE_SUPER_MAGIC` (include/uapi/linux/magic.h).
const FUSE_MAGIC: rustix::fs::FsWord = 0x6573_5546;

const NO_DEVICE: &str =
    "/dev/fuse cannot be opened (udev lets everybody open it; without udev: chmod 666 /dev/fuse)";
const NOT_ROOT: &str = "this needs root";

/// Tests whether this process may mount the tree: creates a detached file system, and drops it.
///
/// # Errors
/// [`MountError`].
pub fn can_mount() -> Result<(), MountError> {
    let cannot =
        |what| move |error: rustix::io::Errno| MountError { path: MOUNT.into(), what, source: error.into() };
    let device = device().map_err(cannot(NO_DEVICE))?;
    made(&device).map(drop).map_err(cannot(NOT_ROOT))
}

fn device() -> rustix::io::Result<OwnedFd> {
    rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, FileMode::empty())
}

/// Makes the file system and mounts it on a directory; returns a descriptor of its root.
fn mount(device: &OwnedFd, target: &Directory) -> rustix::io::Result<OwnedFd> {
    let mount = made(device)?;
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&mount, "", target, "", both)?;
    Ok(mount)
}

/// Creates the file system, detached. The options are those of `fuse_fs_parameters` (fs/fuse/inode.c), which FUSE
/// accepts from fsconfig(2) since Linux 5.4.
fn made(device: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let system = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (option, value) in [
        ("source", "exitless".to_owned()),
        ("subtype", "exitless".to_owned()),
        ("fd", device.as_raw_fd().to_string()),
        ("rootmode", "40000".to_owned()),
        ("user_id", rustix::process::geteuid().as_raw().to_string()),
        ("group_id", rustix::process::getegid().as_raw().to_string()),
    ] {
        fsconfig_set_string(&system, option, value)?;
    }
    for option in ["default_permissions", "allow_other"] {
        fsconfig_set_flag(&system, option)?;
    }
    fsconfig_create(&system)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Tests whether a descriptor belongs to a tree whose daemon has ended.
#[must_use]
pub fn is_dead(mount: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(mount).is_err_and(|error| error == rustix::io::Errno::NOTCONN)
}

/// Unmounts the tree, even if it is in use, and wherever it is mounted by now.
///
/// # Errors
///
/// When the descriptor is not the root of a mount, or this process may not unmount it.
pub fn unmount(mount: BorrowedFd<'_>) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", mount.as_raw_fd());
    Ok(rustix::mount::unmount(path, UnmountFlags::FORCE | UnmountFlags::DETACH)?)
}
