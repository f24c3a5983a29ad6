//! A FUSE file system with a single file, mounted for a test.

use fuser::{Config, Filesystem, Session, SessionACL};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::os::fd::AsRawFd as _;
use std::path::Path;

/// The path of the file. Dropping it unmounts the file system.
pub(crate) struct MountedFile(tempfile::NamedTempFile);

impl MountedFile {
    /// Mounts a file system. `None` if this user may not do that.
    pub(crate) fn new(system: impl Filesystem) -> Option<Self> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let options = format!("fd={},rootmode=100600,user_id=0,group_id=0", device.as_raw_fd());
        let options = CString::new(options).unwrap();
        mount("disk", file.path(), "fuse", MountFlags::empty(), options.as_c_str()).ok()?;
        let mounted = Self(file);
        let session = Session::from_fd(system, device, SessionACL::All, Config::default()).unwrap();
        session.spawn().unwrap();
        Some(mounted)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for MountedFile {
    fn drop(&mut self) {
        let _ = unmount(self.path(), UnmountFlags::DETACH);
    }
}
