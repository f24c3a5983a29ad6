//! Socket files in directories that others may write to.
//!
//! A daemon makes them as root, and its own user may write to `/run/exitless`. So a file is opened by descriptor and
//! checked before its owner is changed.

use files::{Directory, Missing};
use rustix::fs::{AtFlags, FileType, Gid, Mode, Stat, Uid, chownat, fchmod, fstat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// The owner, group and mode of a socket's file; `None` where nothing is to be set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// The user, by number.
    pub user: Option<u32>,
    /// The group, by number.
    pub group: Option<u32>,
    /// The permissions.
    pub mode: Option<u32>,
    /// The umask cuts the mode: the system call filter of a running daemon forbids more than bind(2) does.
    pub less_umask: bool,
}

/// The number of connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// The file of a listening socket.
#[derive(Debug)]
pub struct SocketFile {
    directory: Directory,
    name: OsString,
    /// The device and inode of the file that was made.
    made: Option<(u64, u64)>,
}

impl SocketFile {
    /// Creates a listening socket. A socket that an ended program left is replaced; any other file is in use. If the
    /// owner or group is to change, only root can connect before that.
    ///
    /// # Errors
    /// If the directory cannot be opened, or the socket cannot be made or given away.
    pub fn bind(path: &Path, missing: Missing, access: SocketAccess) -> io::Result<(Self, UnixListener)> {
        let mut file = Self::at(path, missing)?;
        // bind(2) follows no link, whatever the path is.
        let reached = file.directory.reach(&file.name);
        let changes = access.user.is_some() || access.group.is_some();
        let mode = if changes { Some(0) } else { access.mode };
        let listener = match listener_at(&reached, mode) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && file.is_left() => {
                file.directory.remove(&file.name)?;
                listener_at(&reached, mode)?
            }
            bound => bound?,
        };
        file.made = file.found();
        // The umask may have cut the mode.
        if !access.less_umask
            && !file.has(access)
            && let Err(error) = file.give(access)
        {
            file.remove();
            return Err(error);
        }
        Ok((file, listener))
    }

    /// Opens the directory of a socket.
    fn at(path: &Path, missing: Missing) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = Directory::open(above, missing).map_err(files::Error::into_io)?;
        Ok(Self { directory, name, made: None })
    }

    /// The file of a listening socket that an earlier daemon made.
    ///
    /// # Errors
    /// If there is no socket.
    pub(crate) fn found_at(path: &Path) -> io::Result<Self> {
        let mut file = Self::at(path, Missing::Refused)?;
        let found = fstat(file.directory.entry(&file.name)?)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
            return Err(io::ErrorKind::NotFound.into());
        }
        file.made = file.found();
        Ok(file)
    }

    /// Tests whether it has this owner, group and mode, as far as they are named.
    #[must_use]
    pub fn has(&self, access: SocketAccess) -> bool {
        let found = self.directory.entry(&self.name).and_then(|entry| Ok(fstat(entry)?));
        let is = |wanted: Option<u32>, found| wanted.is_none_or(|wanted| wanted == found);
        found.is_ok_and(|found| {
            is(access.user, found.st_uid)
                && is(access.group, found.st_gid)
                && is(access.mode, found.st_mode & 0o777)
        })
    }

    /// Gives the directory to a user if it was made for the socket, so that the daemon can remove its socket and make
    /// others there.
    ///
    /// # Errors
    /// If this process may not.
    pub(crate) fn give_directory(&self, user: u32) -> io::Result<()> {
        match self.directory.was_made() {
            true => Ok(chownat(&self.directory, "", Some(Uid::from_raw(user)), None, AtFlags::EMPTY_PATH)?),
            false => Ok(()),
        }
    }

    /// Gives the socket to a user and a group, and then sets its mode.
    fn give(&self, access: SocketAccess) -> io::Result<()> {
        let socket = self.directory.entry(&self.name)?;
        let found = fstat(&socket)?;
        // Check that it is our socket: meanwhile somebody may have linked another one of root there.
        let is_ours = found.st_uid == rustix::process::geteuid().as_raw() && found.st_nlink == 1;
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket || !is_ours {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it is no longer the socket that was made",
            ));
        }
        let (user, group) = (access.user.map(Uid::from_raw), access.group.map(Gid::from_raw));
        chownat(&socket, "", user, group, AtFlags::EMPTY_PATH)?;
        match access.mode {
            Some(mode) => std::fs::set_permissions(itself(&socket), Permissions::from_mode(mode)),
            None => Ok(()),
        }
    }

    /// Removes the file from the directory that it was made in. It is not an error if the file is gone, and a file that
    /// somebody put in its place stays.
    pub fn remove(&self) {
        if self.made.is_some() && self.made == self.found() {
            let _ = self.directory.remove(&self.name);
        }
    }

    /// The device and inode of the file at the path.
    fn found(&self) -> Option<(u64, u64)> {
        let Stat { st_dev, st_ino, .. } = fstat(self.directory.entry(&self.name).ok()?).ok()?;
        Some((st_dev, st_ino))
    }

    /// Tests whether it is a socket on which nobody listens.
    fn is_left(&self) -> bool {
        let is_socket = |entry: &OwnedFd| {
            fstat(entry).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Socket)
        };
        self.directory.entry(&self.name).is_ok_and(|entry| is_socket(&entry) && refuses(&itself(&entry)))
    }
}

/// Tests whether a connection to this socket is refused. With every other error a program may have the socket: its listen
/// queue is full, this process may not connect, or the socket is of another type (unix(7)).
fn refuses(path: &str) -> bool {
    // connect(2) would wait while the listen queue is full.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let connected = socket.and_then(|socket| connect(&socket, &SocketAddrUnix::new(path)?));
    connected == Err(Errno::CONNREFUSED)
}

/// Makes a listening socket whose file has this mode, less the umask, from the beginning: bind(2) takes it from the socket.
fn listener_at(path: &Path, mode: Option<u32>) -> io::Result<UnixListener> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if let Some(mode) = mode {
        fchmod(&socket, Mode::from_raw_mode(mode))?;
    }
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// The path of an open descriptor (proc_pid_fd(5)).
fn itself(descriptor: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::os::unix::net::UnixDatagram;

    const STRANGER: u32 = 65_534;
    const NOTHING: SocketAccess = SocketAccess { user: None, group: None, mode: None, less_umask: false };

    fn to_stranger(mode: u32) -> SocketAccess {
        SocketAccess { user: Some(STRANGER), mode: Some(mode), ..NOTHING }
    }

    #[test]
    fn a_socket_has_its_owner_group_and_mode_and_nobody_connects_before() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("socket");
        let own = rustix::process::getegid().as_raw();
        // If neither the owner nor the group changes, the mode applies from bind(2) on.
        let private = SocketAccess { mode: Some(0o600), ..NOTHING };
        let (_, listener) = SocketFile::bind(&path, Missing::Refused, private).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        drop(listener);
        // And whatever the umask is.
        let all = SocketAccess { mode: Some(0o666), ..NOTHING };
        let (_, listener) = SocketFile::bind(&path, Missing::Refused, all).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o666);
        drop(listener);
        // If one changes, nobody has any permission at first.
        let first = root.path().join("first");
        let _first = listener_at(&first, Some(0)).unwrap();
        assert_eq!(std::fs::metadata(&first).unwrap().mode() & 0o777, 0);
        // In the end the permissions are those that were asked for, whatever the umask.
        let given = SocketAccess { group: Some(own), mode: Some(0o666), ..NOTHING };
        let (file, listener) = SocketFile::bind(&path, Missing::Refused, given).unwrap();
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!((found.gid(), found.mode() & 0o777), (own, 0o666));
        file.remove();
        drop(listener);
        let bound = SocketFile::bind(&path, Missing::Refused, to_stranger(0o660));
        if rustix::process::geteuid().is_root() {
            let (_file, _listener) = bound.unwrap();
            let found = std::fs::metadata(&path).unwrap();
            assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (STRANGER, own, 0o660));
        } else {
            assert_eq!(bound.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            assert!(!path.exists(), "nothing is left");
        }
    }

    #[test]
    fn a_link_of_the_daemons_user_is_neither_bound_nor_given_away() {
        let root = tempfile::tempdir().unwrap();
        let (run, etc) = (root.path().join("run"), root.path().join("etc"));
        for directory in [&run, &etc] {
            std::fs::create_dir(directory).unwrap();
        }
        if std::os::unix::fs::chown(&run, Some(STRANGER), None).is_err() {
            return println!("not tested: giving a directory to another user needs root");
        }
        // A link in the socket's place, and one in its directory's.
        std::fs::write(etc.join("shadow"), "").unwrap();
        symlink(etc.join("shadow"), run.join("control")).unwrap();
        SocketFile::bind(&run.join("control"), Missing::Made(0o755), NOTHING).unwrap_err();
        symlink(&etc, run.join("deep")).unwrap();
        SocketFile::bind(&run.join("deep/control"), Missing::Made(0o755), NOTHING).unwrap_err();
        SocketFile::bind(&run.join("deep/new/control"), Missing::Made(0o755), NOTHING).unwrap_err();
        assert_eq!(std::fs::read_dir(&etc).unwrap().count(), 1);
        // Something else takes the socket's place between both calls.
        let (socket, _listener) =
            SocketFile::bind(&run.join("socket"), Missing::Made(0o755), NOTHING).unwrap();
        std::fs::rename(run.join("socket"), run.join("aside")).unwrap();
        symlink(etc.join("shadow"), run.join("socket")).unwrap();
        assert!(socket.give(to_stranger(0o666)).is_err());
        std::fs::remove_file(run.join("socket")).unwrap();
        std::fs::hard_link(etc.join("shadow"), run.join("socket")).unwrap();
        assert!(socket.give(to_stranger(0o666)).is_err());
        std::fs::remove_file(run.join("socket")).unwrap();
        std::fs::hard_link(run.join("aside"), run.join("socket")).unwrap();
        assert!(socket.give(to_stranger(0o666)).is_err());
        let shadow = std::fs::metadata(etc.join("shadow")).unwrap();
        assert_eq!((shadow.uid(), shadow.mode() & 0o111), (0, 0));
        std::fs::remove_file(run.join("aside")).unwrap();
        socket.give(to_stranger(0o600)).unwrap();
        let given = std::fs::metadata(run.join("socket")).unwrap();
        assert_eq!((given.uid(), given.mode() & 0o777), (STRANGER, 0o600));
    }

    #[test]
    fn a_socket_to_which_no_connection_can_be_made_now_is_in_use() {
        let root = tempfile::tempdir().unwrap();
        let in_use = |name: &str| {
            let path = root.path().join(name);
            let before = std::fs::metadata(&path).unwrap().ino();
            let error = SocketFile::bind(&path, Missing::Refused, NOTHING).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{name}: {error}");
            assert_eq!(std::fs::metadata(&path).unwrap().ino(), before, "{name}");
        };
        let _datagrams = UnixDatagram::bind(root.path().join("datagrams")).unwrap();
        in_use("datagrams");
        let path = root.path().join("full");
        let listener = listener_at(&path, None).unwrap();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let waiting = std::iter::from_fn(|| {
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
            connect(&socket, &SocketAddrUnix::new(&path).unwrap()).is_ok().then_some(socket)
        });
        let waiting: Vec<OwnedFd> = waiting.take(2 * BACKLOG as usize).collect();
        assert!(waiting.len() < 2 * BACKLOG as usize, "the queue is full");
        in_use("full");
        drop((listener, waiting));
        assert!(SocketFile::bind(&path, Missing::Refused, NOTHING).is_ok(), "its program has ended");
        // Root may connect to every socket.
        if !rustix::process::geteuid().is_root() {
            let _listener = listener_at(&root.path().join("another's"), Some(0)).unwrap();
            in_use("another's");
        }
    }

    #[test]
    fn a_socket_is_removed_where_it_was_made_and_nothing_else_is() {
        let root = tempfile::tempdir().unwrap();
        let (run, etc) = (root.path().join("run"), root.path().join("etc"));
        for directory in [&run, &etc] {
            std::fs::create_dir(directory).unwrap();
        }
        let bind = || SocketFile::bind(&run.join("socket"), Missing::Refused, NOTHING).unwrap();
        // Another file in its place.
        let (socket, _listener) = bind();
        std::fs::rename(run.join("socket"), run.join("aside")).unwrap();
        std::fs::write(run.join("socket"), "another's").unwrap();
        socket.remove();
        assert_eq!(std::fs::read_to_string(run.join("socket")).unwrap(), "another's");
        std::fs::remove_file(run.join("socket")).unwrap();
        // A link to another directory in its directory's place.
        let (socket, _listener) = bind();
        std::fs::write(etc.join("socket"), "root's").unwrap();
        std::fs::rename(&run, root.path().join("moved")).unwrap();
        symlink(&etc, &run).unwrap();
        socket.remove();
        assert_eq!(std::fs::read_to_string(etc.join("socket")).unwrap(), "root's");
        assert!(!root.path().join("moved/socket").exists(), "it is removed where it is");
    }
}
