//! Listening sockets from a service manager, and those that it keeps for the next daemon: socket activation and the
//! descriptor store of systemd (sd_listen_fds(3), sd_notify(3)).

use super::InheritedSocket;
use crate::socket_file::{SocketAccess, SocketFile};
use files::Missing;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A store that keeps listening sockets over restarts of the daemon.
pub trait ListenerStore: Send + Sync + Debug {
    /// Keeps a copy of the socket with this path. `false` if it is not kept.
    fn keep(&self, path: &Path, listener: BorrowedFd<'_>) -> bool;
    /// Drops the copy.
    fn forget(&self, path: &Path);
}

/// The descriptors that the service manager gives to the daemon, and keeps for the next one.
#[derive(Debug, Default)]
pub struct Inheritance {
    listeners: VecDeque<InheritedListener>,
    store: Option<Arc<dyn ListenerStore>>,
}

#[derive(Debug)]
struct InheritedListener {
    path: PathBuf,
    listener: UnixListener,
    /// An earlier daemon stored it.
    stored: bool,
}

/// The reason why descriptors cannot be taken.
#[derive(Debug, thiserror::Error)]
#[error("{0}; they come from the service manager, as sd_listen_fds(3) says")]
pub struct BadInheritance(String);

/// The first inherited descriptor (`SD_LISTEN_FDS_START`, systemd's sd-daemon.h).
const FIRST: RawFd = 3;
/// The prefix of the names of the daemon's own sockets in the store.
const PREFIX: &str = "iocm=";
/// The longest name of a stored descriptor (`FDNAME_MAX`, systemd's src/basic/fd-util.h).
const LONGEST_NAME: usize = 255;
/// The descriptors were taken already.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The name of a socket in the store: its path in printable ASCII without `:`. `None` if it is too long.
#[must_use]
pub fn stored_name(path: &Path) -> Option<String> {
    let mut name = PREFIX.to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b':' | b'%' | ..=b' ' | 0x7f.. => name += &format!("%{byte:02x}"),
            _ => name.push(char::from(*byte)),
        }
    }
    (name.len() <= LONGEST_NAME).then_some(name)
}

/// The path of a socket in the store; `None` if the name is not one of [`stored_name`].
fn stored_path(name: &str) -> Option<PathBuf> {
    let mut bytes = Vec::new();
    let mut rest = name.strip_prefix(PREFIX)?.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |digit: &u8| char::from(*digit).to_digit(16);
                (u8::try_from(16 * digit(high)? + digit(low)?).ok()?, after)
            }
            (b'%', _) => return None,
            (byte, after) => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

impl Inheritance {
    /// Takes the descriptors that the environment announces, once. Call it before the process opens anything.
    ///
    /// # Errors
    /// [`BadInheritance`].
    pub fn from_environment() -> Result<Self, BadInheritance> {
        let variable = |name| std::env::var(name).ok();
        let [pid, count, names] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"].map(variable);
        let own = std::process::id();
        match announced(own, pid.as_deref(), count.as_deref(), names.as_deref())? {
            Some(names) if !TAKEN.swap(true, Ordering::SeqCst) => Self::take(&names),
            _ => Ok(Self::default()),
        }
    }

    /// Sets the store that keeps new sockets for the next daemon.
    #[must_use]
    pub fn with_store(mut self, store: Option<Arc<dyn ListenerStore>>) -> Self {
        self.store = store;
        self
    }

    fn take(names: &[String]) -> Result<Self, BadInheritance> {
        let mut taken = Self::default();
        let mut others = Vec::new();
        for (number, name) in (FIRST..).zip(names) {
            // SAFETY: the number is only used in a system call, which fails if it names no descriptor.
            let there = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) });
            if there.is_err() {
                let count = names.len();
                return Err(BadInheritance(format!(
                    "LISTEN_FDS={count}, but descriptor {number} is not open"
                )));
            }
            // SAFETY: the descriptor is open and inherited, so nothing in this process owns it; `TAKEN` lets this
            // happen only once.
            let file = unsafe { OwnedFd::from_raw_fd(number) };
            match InheritedListener::new(file, name) {
                Ok(listener) => taken.listeners.push_back(listener),
                Err(why) => others.push(format!("{number} ({name}): {why}")),
            }
        }
        if let Some(first) = others.first() {
            tracing::warn!(
                "{} of {} inherited descriptors are closed, because they are not listening UNIX stream sockets with a \
                 path; the first one is {first}",
                others.len(),
                names.len()
            );
        }
        Ok(taken)
    }

    /// The listening socket with this path: an inherited one, or a new one.
    pub(crate) fn listener(
        &mut self,
        path: &Path,
        missing: Missing,
        access: SocketAccess,
    ) -> io::Result<(UnixListener, ListenerFile)> {
        let mut of = |stored| {
            let found = self.listeners.iter().position(|one| one.stored == stored && one.path == path)?;
            self.listeners.remove(found)
        };
        // A socket of a unit takes the place of a stored one.
        if let Some(found) = of(false) {
            return Ok((found.listener, ListenerFile::others()));
        }
        if let Some(found) = of(true)
            && let Ok(file) = SocketFile::found_at(path)
        {
            if !file.has(access) {
                // The owner, group or mode is to be another: create a new socket.
                file.remove();
                drop(found);
                return self.made(path, missing, access);
            }
            let file = ListenerFile { path: path.to_owned(), file: Some(file), store: self.store.clone() };
            return Ok((found.listener, file));
        }
        self.made(path, missing, access)
    }

    fn made(
        &self,
        path: &Path,
        missing: Missing,
        access: SocketAccess,
    ) -> io::Result<(UnixListener, ListenerFile)> {
        let (file, listener) = SocketFile::bind(path, missing, access)?;
        let store = self.store.clone().filter(|store| store.keep(path, listener.as_fd()));
        Ok((listener, ListenerFile { path: path.to_owned(), file: Some(file), store }))
    }

    /// Closes the inherited sockets that nothing uses.
    pub(crate) fn close_rest(self) {
        for InheritedListener { path, stored, .. } in self.listeners {
            tracing::warn!("The inherited socket {} is closed: no device waits on it", path.display());
            if let Some(store) = self.store.as_ref().filter(|_| stored) {
                store.forget(&path);
            }
        }
    }
}

impl InheritedListener {
    fn new(file: OwnedFd, name: &str) -> io::Result<Self> {
        let wrong = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::CLOEXEC)?;
        let InheritedSocket::Listening(listener) = InheritedSocket::try_from(file)? else {
            return Err(wrong("it is connected"));
        };
        if let Some(path) = stored_path(name) {
            return Ok(Self { path, listener, stored: true });
        }
        let path = listener.local_addr()?.as_pathname().map(Path::to_owned);
        Ok(Self { path: path.ok_or_else(|| wrong("it has no path"))?, listener, stored: false })
    }
}

/// The names of the descriptors that are announced to this process; `None` if none are.
fn announced(
    own: u32,
    pid: Option<&str>,
    count: Option<&str>,
    names: Option<&str>,
) -> Result<Option<Vec<String>>, BadInheritance> {
    let (Some(pid), Some(count)) = (pid, count) else { return Ok(None) };
    let number = |name: &str, text: &str| {
        text.parse::<u32>().map_err(|_| BadInheritance(format!("{name}={text} is not a number")))
    };
    if number("LISTEN_PID", pid)? != own {
        return Ok(None);
    }
    let count = number("LISTEN_FDS", count)? as usize;
    let names: Vec<&str> = names.into_iter().flat_map(|names| names.split(':')).collect();
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    if count as u64 > most {
        return Err(BadInheritance(format!(
            "LISTEN_FDS={count}, but a process has at most {most} descriptors"
        )));
    }
    if !names.is_empty() && count > 0 && names.len() != count {
        let named = names.len();
        return Err(BadInheritance(format!("LISTEN_FDS={count}, but LISTEN_FDNAMES has {named} names")));
    }
    let name = |index: usize| names.get(index).copied().unwrap_or_default().to_owned();
    Ok(Some((0..count).map(name).collect()))
}

/// The file of a listening socket, and who removes it.
#[derive(Debug)]
pub(crate) struct ListenerFile {
    path: PathBuf,
    /// `None` if others made the socket.
    file: Option<SocketFile>,
    /// The keeper of the socket, if it is kept for the next daemon.
    store: Option<Arc<dyn ListenerStore>>,
}

impl ListenerFile {
    /// The file of a socket that others have created, and will remove.
    pub(crate) fn others() -> Self {
        Self { path: PathBuf::new(), file: None, store: None }
    }

    /// Gives the socket's directory to a user, if it was created for the socket.
    pub(crate) fn give_directory(&self, user: u32) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.give_directory(user))
    }

    /// Removes the file because the daemon ends, unless the socket is kept for the next one.
    pub(crate) fn end(&self) {
        if let (Some(file), None) = (&self.file, &self.store) {
            file.remove();
        }
    }

    /// Removes the file, and the socket from the store, so that nobody can connect any more.
    pub(crate) fn remove(&self) {
        if let Some(store) = &self.store {
            store.forget(&self.path);
        }
        if let Some(file) = &self.file {
            file.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;

    /// A store in memory.
    #[derive(Debug, Default)]
    struct Kept(Mutex<Vec<(PathBuf, OwnedFd)>>);

    impl ListenerStore for Kept {
        fn keep(&self, path: &Path, listener: BorrowedFd<'_>) -> bool {
            self.forget(path);
            self.0.lock().unwrap().push((path.to_owned(), listener.try_clone_to_owned().unwrap()));
            true
        }

        fn forget(&self, path: &Path) {
            self.0.lock().unwrap().retain(|(kept, _)| kept != path);
        }
    }

    fn of(store: &Arc<Kept>) -> Inheritance {
        let listeners = store.0.lock().unwrap();
        let listeners = listeners.iter().map(|(path, file)| {
            InheritedListener::new(file.try_clone().unwrap(), &stored_name(path).unwrap()).unwrap()
        });
        Inheritance {
            listeners: listeners.collect(),
            store: Some(Arc::clone(store) as Arc<dyn ListenerStore>),
        }
    }

    fn listener(inheritance: &mut Inheritance, path: &Path) -> (UnixListener, ListenerFile) {
        inheritance.listener(path, Missing::Refused, SocketAccess::default()).unwrap()
    }

    #[test]
    fn the_next_daemon_gets_the_same_socket_and_whoever_connected_meanwhile() {
        let directory = tempfile::tempdir().unwrap();
        let (path, store) = (directory.path().join("a:% \u{e4}.sock"), Arc::new(Kept::default()));
        let (first, file) = listener(&mut of(&store), &path);
        file.end();
        drop((first, file));
        // A client connects while no daemon runs.
        let meanwhile = UnixStream::connect(&path).unwrap();
        let mut inheritance = of(&store);
        let (next, file) = listener(&mut inheritance, &path);
        inheritance.close_rest();
        let (_served, _) = next.accept().unwrap();
        drop(meanwhile);
        // The device is removed.
        file.remove();
        assert!(!path.exists() && store.0.lock().unwrap().is_empty());
    }

    #[test]
    fn a_stored_socket_whose_file_is_gone_is_made_anew_and_one_that_nobody_wants_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let (path, store) = (directory.path().join("socket"), Arc::new(Kept::default()));
        drop(listener(&mut of(&store), &path));
        std::fs::remove_file(&path).unwrap();
        let (_listener, _file) = listener(&mut of(&store), &path);
        assert!(UnixStream::connect(&path).is_ok());
        of(&store).close_rest();
        assert!(store.0.lock().unwrap().is_empty());
    }

    #[test]
    fn a_stored_socket_for_others_than_the_file_names_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (path, store) = (directory.path().join("socket"), Arc::new(Kept::default()));
        drop(listener(&mut of(&store), &path));
        let _before = UnixStream::connect(&path).unwrap();
        let private = SocketAccess { mode: Some(0o600), ..SocketAccess::default() };
        for is_new in [true, false] {
            let before = std::fs::metadata(&path).unwrap().ino();
            let mut inheritance = of(&store);
            let (listener, _file) = inheritance.listener(&path, Missing::Refused, private).unwrap();
            let found = std::fs::metadata(&path).unwrap();
            assert_eq!((found.mode() & 0o777, found.ino() != before), (0o600, is_new));
            listener.set_nonblocking(true).unwrap();
            assert!(listener.accept().is_err(), "those who connected before are not served");
            inheritance.close_rest();
        }
    }

    #[test]
    fn a_stored_socket_with_a_mode_that_the_umask_would_cut_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let (path, store) = (directory.path().join("socket"), Arc::new(Kept::default()));
        let of_all = SocketAccess { mode: Some(0o666), ..SocketAccess::default() };
        let mut inodes = (0..3).map(|_| {
            drop(of(&store).listener(&path, Missing::Refused, of_all).unwrap());
            std::fs::metadata(&path).unwrap().ino()
        });
        let first = inodes.next().unwrap();
        assert!(inodes.all(|inode| inode == first));
    }

    #[test]
    fn a_socket_of_a_unit_stays_at_the_end_and_is_known_by_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let of_unit = UnixListener::bind(&path).unwrap();
        let inherited = InheritedListener::new(of_unit.into(), "exitless-iocm.socket").unwrap();
        let mut inheritance = Inheritance { listeners: [inherited].into(), store: None };
        let other = directory.path().join("other");
        let (_made, made) = listener(&mut inheritance, &other);
        let (_taken, taken) = listener(&mut inheritance, &directory.path().join("./socket"));
        for file in [made, taken] {
            file.end();
            file.remove();
        }
        assert!(path.exists() && !other.exists());
    }

    #[test]
    fn names_of_the_store_are_read_back_and_others_are_no_paths() {
        for path in ["/run/exitless/web.sock", "/a:b%c d\u{e4}\n", "relative"] {
            let name = stored_name(Path::new(path)).unwrap();
            assert!(name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':'), "{name}");
            assert_eq!(stored_path(&name).as_deref(), Some(Path::new(path)));
        }
        assert_eq!(stored_name(Path::new(&"/x".repeat(130))), None);
        for name in ["", "stored", "iocm", "iocm=%", "iocm=%4", "iocm=%zz", "iocm=%+1", "IOCM=/x"] {
            assert!(stored_path(name).is_none(), "{name}");
        }
    }

    #[test]
    fn what_is_announced_to_others_or_wrongly_is_not_taken() {
        let names = |pid, count, names| {
            announced(7, Some(pid), Some(count), names).map_err(|error| error.to_string())
        };
        assert!(
            names("8", "2", None).unwrap().is_none()
                && announced(7, None, Some("2"), None).unwrap().is_none()
        );
        assert_eq!(names("7", "2", None).unwrap().unwrap(), ["", ""]);
        assert_eq!(names("7", "2", Some("a:b")).unwrap().unwrap(), ["a", "b"]);
        assert!(names("7", "0", Some("")).unwrap().unwrap().is_empty());
        assert!(names("7", "2", Some("a")).unwrap_err().contains("has 1 names"));
        for count in ["-1", "x", "4294967296", ""] {
            assert!(names("7", count, None).unwrap_err().contains("not a number"), "{count}");
        }
        assert!(names("7", "4294967295", None).unwrap_err().contains("at most"));
        assert!(names("seven", "1", None).unwrap_err().contains("LISTEN_PID=seven"));
    }
}
