//! The control socket: JSON requests and answers over a UNIX socket, one a line.

mod connection;

use super::access::Access;
use crate::daemon::Daemon;
use crate::inherited::{Inheritance, ListenerFile};
use crate::listener::{Listener, Waker};
use crate::log_limit::LogLimit;
use crate::socket_file::SocketAccess;
use connection::PeerConnection;
use files::Missing;
use rustix::net::sockopt::socket_peercred;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The largest number of peers at the same time.
pub(crate) const MAX_PEERS: usize = 64;

/// A control socket that nobody serves yet. Dropping it removes the file, unless the socket is kept for the next daemon.
#[derive(Debug)]
pub struct BoundSocket {
    path: PathBuf,
    /// Both are `None` once [`ControlSocket`] owns them.
    file: Option<ListenerFile>,
    listener: Option<Listener>,
    access: Access,
}

/// A control socket that is served until it is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    file: ListenerFile,
    waker: Waker,
    peers: Arc<Mutex<Vec<ServedPeer>>>,
    thread: Option<JoinHandle<()>>,
}

/// A connected peer.
#[derive(Debug)]
struct ServedPeer {
    stream: UnixStream,
    thread: JoinHandle<()>,
}

/// The limits of log lines, so that refused peers do not hide failures.
#[derive(Debug, Default)]
struct Log {
    refusals: LogLimit,
    failures: LogLimit,
}

/// A failure of the control socket.
#[derive(Debug, thiserror::Error)]
#[error("Cannot make the control socket {path}; another path can be given as `socket` under [control]")]
pub struct SocketError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl BoundSocket {
    /// Makes a socket for root, a user and the members of a group. A missing directory is made; a socket that an
    /// earlier daemon left is replaced.
    ///
    /// # Errors
    /// [`SocketError`].
    pub fn bind(path: &Path, access: Access) -> Result<Self, SocketError> {
        Self::bind_with(path, access, &mut Inheritance::default())
    }

    /// The same, but uses the socket in `inheritance` if it is there.
    ///
    /// # Errors
    /// [`SocketError`].
    pub(crate) fn bind_with(
        path: &Path,
        access: Access,
        inheritance: &mut Inheritance,
    ) -> Result<Self, SocketError> {
        let cannot = |source: io::Error| SocketError { path: path.to_owned(), source };
        let mode = Some(if access.group.is_some() { 0o660 } else { 0o600 });
        let of_file = SocketAccess { user: Some(access.user), group: access.group, mode, less_umask: false };
        let (listener, file) = inheritance.listener(path, Missing::Made(0o755), of_file).map_err(cannot)?;
        let mut bound = Self { path: path.to_owned(), file: Some(file), listener: None, access };
        if let Some(file) = &bound.file {
            file.give_directory(access.user).map_err(cannot)?;
        }
        bound.listener = Some(Listener::new(listener).map_err(cannot)?);
        Ok(bound)
    }

    /// Serves the tree of a daemon.
    ///
    /// # Errors
    /// [`SocketError`] when a thread cannot be started.
    pub fn serve(mut self, daemon: &Arc<Daemon>) -> Result<ControlSocket, SocketError> {
        let cannot = |source| SocketError { path: self.path.clone(), source };
        let (Some(listener), Some(file)) = (self.listener.take(), self.file.take()) else {
            return Err(cannot(io::ErrorKind::NotFound.into()));
        };
        let (access, waker) = (self.access, listener.waker());
        let peers = Arc::<Mutex<Vec<ServedPeer>>>::default();
        let body = {
            let (peers, daemon) = (Arc::clone(&peers), Arc::clone(daemon));
            let log = Log::default();
            move || {
                while let Some(stream) = listener.accept().transpose() {
                    match stream {
                        Ok(stream) => accept(stream, access, &peers, &daemon, &log),
                        Err(error) => {
                            log.failures
                                .warn(|| format!("No peer can connect to the control socket: {error}"));
                            // Most likely the process has too many open files: accepting again at once would spin.
                            std::thread::sleep(std::time::Duration::from_millis(100));
                        }
                    }
                }
            }
        };
        let thread = crate::fatal::spawn("control", body);
        let thread = Some(thread.map_err(cannot)?);
        Ok(ControlSocket { file, waker, peers, thread })
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            file.end();
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.waker.wake();
        self.file.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let peers = std::mem::take(&mut *self.peers.lock().unwrap_or_else(PoisonError::into_inner));
        for ServedPeer { stream, thread } in peers {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            let _ = thread.join();
        }
    }
}

/// Serves a peer in its own thread, if the peer may use the socket.
fn accept(
    stream: UnixStream,
    access: Access,
    peers: &Mutex<Vec<ServedPeer>>,
    daemon: &Arc<Daemon>,
    log: &Log,
) {
    let mut peers = peers.lock().unwrap_or_else(PoisonError::into_inner);
    peers.retain(|peer| !peer.thread.is_finished());
    let mut connection = PeerConnection::new(stream);
    if let Err(why) = may(connection.stream(), access) {
        log.refusals.warn(|| format!("A peer of the control socket is refused: {why}"));
        return connection.refuse(&why);
    }
    if peers.len() >= MAX_PEERS {
        return connection.refuse(&format!("{MAX_PEERS} peers are served already: end one of them"));
    }
    let Ok(copy) = connection.stream().try_clone() else { return };
    let daemon = Arc::clone(daemon);
    let body = move || connection.serve(&*daemon);
    match crate::fatal::spawn("control-peer", body) {
        Ok(thread) => peers.push(ServedPeer { stream: copy, thread }),
        Err(error) => log.failures.warn(|| format!("No thread for a peer of the control socket: {error}")),
    }
}

/// Checks the credentials that the kernel recorded when the peer connected.
fn may(stream: &UnixStream, access: Access) -> Result<(), String> {
    let peer =
        socket_peercred(stream).map_err(|error| format!("the kernel does not say who it is: {error}"))?;
    let mut of_peer = vec![peer.gid.as_raw()];
    if access.group.is_some() {
        of_peer
            .extend(groups(stream).map_err(|error| format!("the kernel does not tell its groups: {error}"))?);
    }
    match access.allows(peer.uid.as_raw(), &of_peer) {
        true => Ok(()),
        false => Err(format!("user {} may not use the control socket", peer.uid.as_raw())),
    }
}

/// The supplementary groups that a peer had when it connected (`SO_PEERGROUPS`, Linux 4.13).
fn groups(stream: &UnixStream) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; 64];
    loop {
        let mut bytes = libc::socklen_t::try_from(size_of_val(&groups[..])).unwrap_or(libc::socklen_t::MAX);
        // SAFETY: the kernel writes at most `bytes` bytes, which is the size of `groups`.
        let outcome = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let count = bytes as usize / size_of::<u32>();
        match outcome {
            0 => {
                groups.truncate(count);
                return Ok(groups);
            }
            // The kernel has returned the size that it needs.
            _ if count > groups.len() => groups.resize(count, 0),
            _ => return Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
#[path = "socket/socket_tests.rs"]
mod tests;
