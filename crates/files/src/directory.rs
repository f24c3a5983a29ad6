//! Directories that are reached and used by file descriptor.

use crate::Error;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, getxattr_query, mkdirat, openat,
    readlinkat, unlinkat,
};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

/// The number of links that the kernel follows (`MAXSYMLINKS`, include/linux/namei.h).
const MOST_LINKS: u32 = 40;
/// The inode number of the root of procfs (`PROC_ROOT_INO`, include/linux/proc_ns.h).
const PROC_ROOT: u64 = 1;

/// The treatment of missing directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Missing directories are an error.
    Refused,
    /// Missing directories are created with these permission bits, less the umask.
    Made(u32),
}

/// A directory that was reached component by component with openat(2), from `/` or another trusted directory.
///
/// A symbolic link on the way is followed only if nobody but root and this process's user can have put it there.
#[derive(Debug)]
pub struct Directory {
    /// Opened as `O_PATH`.
    descriptor: OwnedFd,
    path: PathBuf,
    /// The reason why others could replace this directory or one above it; `None` if nobody could.
    loose: Option<Error>,
    made: bool,
}

impl Directory {
    /// Opens the directory at `path`, even if others may write to it.
    ///
    /// # Errors
    /// [`Error::Open`], or [`Error::Link`] for a link that others may have put there.
    pub fn open(path: &Path, missing: Missing) -> Result<Self, Error> {
        let root = Path::new("/");
        let start = if path.is_absolute() { root } else { Path::new(".") };
        Self::walk(start, root, path, missing)
    }

    /// Opens the directory at `path` below the trusted `start`, even if others may write to it. An absolute link starts
    /// at `start` again.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn below(start: &Path, path: &Path, missing: Missing) -> Result<Self, Error> {
        Self::walk(start, start, path, missing)
    }

    /// Opens a directory below the trusted `start`, if only root and this process's user can have created entries in it
    /// or replaced it.
    ///
    /// # Errors
    /// [`Error`].
    pub fn trusted(start: &Path, path: &Path, missing: Missing) -> Result<Self, Error> {
        let mut directory = Self::walk(start, start, path, missing)?;
        if let Some(error) = directory.loose.take() {
            return Err(error);
        }
        match directory.distrusted(&directory.stat()?) {
            Some(error) => Err(error),
            None => Ok(directory),
        }
    }

    /// Opens a directory below the trusted `start` that belongs to this process's user, and to which nobody else has
    /// access.
    ///
    /// # Errors
    /// [`Error`].
    pub fn private(start: &Path, path: &Path, missing: Missing) -> Result<Self, Error> {
        let directory = Self::trusted(start, path, missing)?;
        let found = directory.stat()?;
        let user = rustix::process::geteuid().as_raw();
        if found.st_uid != user {
            return Err(Error::Owner {
                path: directory.path,
                owner: found.st_uid,
                expected: user.to_string(),
            });
        }
        if found.st_mode & 0o077 != 0 {
            return Err(Error::Mode { path: directory.path, mode: found.st_mode & 0o7777, wanted: "0700" });
        }
        Ok(directory)
    }

    /// Walks from `start`; an absolute link starts at `root`. Both are trusted.
    fn walk(start: &Path, root: &Path, path: &Path, missing: Missing) -> Result<Self, Error> {
        let begun = |at: &Path| -> Result<Self, Error> {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let descriptor = rustix::fs::open(at, flags, Mode::empty())
                .map_err(|errno| Error::Open { path: at.to_owned(), source: errno.into() })?;
            Ok(Self { descriptor, path: at.to_owned(), loose: None, made: false })
        };
        let mut here = begun(start)?;
        let mut left: VecDeque<OsString> = parts(path).collect();
        let mut links = 0;
        while let Some(part) = left.pop_front() {
            let above = here.stat()?;
            let next = here.path.join(&part);
            let cannot = |errno: Errno| Error::Open { path: next.clone(), source: errno.into() };
            let (child, made) = here.child(&part, missing).map_err(cannot)?;
            let found = fstat(&child).map_err(cannot)?;
            let loose = here.loose.take().or_else(|| match here.distrusted(&above)? {
                // With the sticky bit, users can rename or remove only their own entries, so the entry's owner counts.
                Error::Mode { .. } if above.st_mode & 0o1000 != 0 => {
                    let expected = "root or yourself".to_owned();
                    let owner = found.st_uid;
                    (!is_ours(owner)).then(|| Error::Owner { path: next.clone(), owner, expected })
                }
                loose => Some(loose),
            });
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory => here = Self { descriptor: child, path: next, loose, made },
                FileType::Symlink if loose.is_some() => {
                    return Err(Error::Link { path: next, owner: found.st_uid });
                }
                FileType::Symlink => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(cannot(Errno::LOOP));
                    }
                    let target = readlinkat(&child, "", Vec::new()).map_err(cannot)?;
                    let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                    if target.is_absolute() {
                        here = begun(root)?;
                    }
                    for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                        left.push_front(part);
                    }
                }
                _ => return Err(cannot(Errno::NOTDIR)),
            }
        }
        Ok(here)
    }

    fn child(&self, name: &OsStr, missing: Missing) -> rustix::io::Result<(OwnedFd, bool)> {
        let open = || {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(&self.descriptor, name, flags, Mode::empty())
        };
        match (open(), missing) {
            (Err(Errno::NOENT), Missing::Made(mode)) => {
                let made = match mkdirat(&self.descriptor, name, Mode::from_raw_mode(mode)) {
                    Ok(()) => true,
                    // Another process has just created it.
                    Err(Errno::EXIST) => false,
                    Err(error) => return Err(error),
                };
                open().map(|child| (child, made))
            }
            (opened, _) => opened.map(|child| (child, false)),
        }
    }

    fn stat(&self) -> Result<Stat, Error> {
        fstat(&self.descriptor).map_err(|errno| Error::Open { path: self.path.clone(), source: errno.into() })
    }

    /// The path of the directory, with links resolved.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tests whether the directory was created and had not been there before.
    #[must_use]
    pub fn was_made(&self) -> bool {
        self.made
    }

    /// A path of an entry for system calls that take no directory descriptor. If others can change a directory above,
    /// the path goes through `/proc/self/fd`, so that it cannot be redirected; otherwise it is the usual path.
    #[must_use]
    pub fn reach(&self, name: &OsStr) -> PathBuf {
        if self.loose.is_none() { self.path.join(name) } else { self.itself().join(name) }
    }

    /// The directory's path by its descriptor, in `/proc/self/fd`.
    #[must_use]
    pub fn itself(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.descriptor.as_raw_fd()))
    }

    /// Tests whether only root and this process's user can have created entries in the directory.
    ///
    /// # Errors
    /// Of fstat(2).
    pub fn is_ours(&self) -> io::Result<bool> {
        Ok(self.loose.is_none() && self.distrusted(&fstat(&self.descriptor)?).is_none())
    }

    /// The reason why somebody else could have created entries of the directory. Group root counts as root.
    fn distrusted(&self, found: &Stat) -> Option<Error> {
        let path = || self.path.clone();
        if !is_ours(found.st_uid) {
            let expected = "root or yourself".to_owned();
            let owner = Error::Owner { path: path(), owner: found.st_uid, expected };
            return (!self.is_root_of_proc(found)).then_some(owner);
        }
        let group_writes = || found.st_mode & 0o020 != 0 && (found.st_gid != 0 || self.may_have_acl());
        let others_write = found.st_mode & 0o002 != 0 || group_writes();
        others_write.then(|| Error::Mode { path: path(), mode: found.st_mode & 0o7777, wanted: "go-w" })
    }

    /// Tests whether the directory may have an access control list. The group's bits of its mode are then the list's mask
    /// (acl(5)), and say nothing about group root.
    fn may_have_acl(&self) -> bool {
        // Unlike fgetxattr(2), this accepts an `O_PATH` descriptor.
        let list = getxattr_query(self.itself(), "system.posix_acl_access");
        !matches!(list, Err(Errno::NODATA | Errno::OPNOTSUPP))
    }

    /// Tests whether this is the root of procfs. Nobody can create entries there, but in a user namespace it does not
    /// belong to the namespace's root.
    fn is_root_of_proc(&self, found: &Stat) -> bool {
        found.st_ino == PROC_ROOT
            && fstatfs(&self.descriptor).is_ok_and(|about| about.f_type == PROC_SUPER_MAGIC)
    }

    /// Opens a regular file in the directory; a link, a FIFO or a device is refused. A new file gets the permission
    /// bits `mode`, less the umask.
    ///
    /// # Errors
    /// Of open(2).
    pub fn open_file(&self, name: &str, flags: OFlags, mode: u32) -> io::Result<File> {
        // `NONBLOCK`: do not hang in open(2) on a FIFO that somebody put there.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(openat(&self.descriptor, name, flags, Mode::from_raw_mode(mode))?);
        if file.metadata()?.is_file() {
            return Ok(file);
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is no regular file")))
    }

    /// A descriptor (`O_PATH`) of an entry of any file type; links are not followed.
    ///
    /// # Errors
    /// Of open(2).
    pub fn entry(&self, name: &OsStr) -> io::Result<OwnedFd> {
        Ok(openat(&self.descriptor, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Removes an empty directory in this one.
    ///
    /// # Errors
    /// Of unlink(2).
    pub fn remove_directory(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.descriptor, name, AtFlags::REMOVEDIR)?)
    }

    /// Removes an entry that is not a directory.
    ///
    /// # Errors
    /// Of unlink(2).
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.descriptor, name, AtFlags::empty())?)
    }

    /// Syncs the directory's entries to the disk.
    ///
    /// # Errors
    /// Of fsync(2).
    pub fn sync(&self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        File::from(openat(&self.descriptor, ".", flags, Mode::empty())?).sync_all()
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// Tests whether a user is root or the user of this process.
pub(crate) fn is_ours(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
