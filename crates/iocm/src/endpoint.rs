//! A vhost-user endpoint: a device with a socket on which it serves one front-end after another.

use crate::config::DeviceConfig;
use crate::device::Device;
use crate::inherited::{Inheritance, InheritedSocket, ListenerFile};
use crate::listener::{Listener, Waker};
use crate::pool::Pool;
use crate::session::{Backend, Session};
use crate::socket_file::SocketAccess;
use files::Missing;
use rustix::net::sockopt::socket_peercred;
use std::convert::Infallible;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The delay before the next accept(2) after one that failed.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// The longest time that closing an endpoint waits for the thread that serves its front-end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest VM name that is kept, characters: a process may write anything into its command line.
const MAX_VM_NAME: usize = 256;

/// A vhost-user endpoint.
#[derive(Debug)]
pub struct Endpoint {
    /// The configuration that the device was made from.
    pub config: DeviceConfig,
    /// The device and its queues.
    pub backend: Arc<Backend>,
    /// The worker that serves only this device, if there is one.
    pub own_worker: Option<u32>,
    file: ListenerFile,
    pool: Arc<Pool>,
    /// `None` if there is one connection and no listening socket.
    waker: Option<Waker>,
    closing: Arc<AtomicBool>,
    connection: Arc<Mutex<Option<Front>>>,
    /// Receives `true` when the only front-end of the endpoint has disconnected, `false` if its connection failed.
    only: Mutex<Option<Receiver<bool>>>,
    /// The thread, and a channel that closes when it ends.
    thread: Mutex<Option<(JoinHandle<()>, Receiver<Infallible>)>>,
}

/// A socket that nobody serves yet. Dropping it removes the file, unless the socket is kept for the next daemon.
#[derive(Debug)]
pub struct BoundEndpoint {
    /// `None` once an [`Endpoint`] owns it.
    file: Option<ListenerFile>,
    /// `None` once the thread of an [`Endpoint`] owns it. That thread drops it, because this also closes descriptors
    /// that peers have sent, which may block.
    source: Option<Source>,
    /// It is for one front-end only.
    once: bool,
}

/// The source of front-ends.
#[derive(Debug)]
enum Source {
    Listener(Listener),
    Connection(UnixStream),
}

impl Source {
    /// Waits for a front-end; `None` when no more will come.
    fn next(&mut self, served: bool) -> io::Result<Option<UnixStream>> {
        match self {
            Self::Listener(listener) => listener.accept(),
            Self::Connection(_) if served => Ok(None),
            Self::Connection(stream) => stream.try_clone().map(Some),
        }
    }
}

impl Drop for BoundEndpoint {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            file.end();
        }
    }
}

/// The connected front-end.
#[derive(Debug)]
struct Front {
    stream: UnixStream,
    peer: Option<Peer>,
}

/// The process of a front-end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The process that connected.
    pub pid: i32,
    /// The name of its VM on the command line, else the name of the process; empty if neither is known.
    pub vm: String,
}

impl Peer {
    /// The peer's credentials from the kernel; `None` for a process outside of this PID namespace.
    fn of(stream: &UnixStream) -> Option<Self> {
        let pid = socket_peercred(stream).ok()?.pid.as_raw_pid();
        if pid <= 0 {
            return None;
        }
        let root = Path::new("/");
        let name = host::vms::name_of(root, pid).or_else(|| {
            let command = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            Some(command.trim_end().to_owned())
        });
        // The name comes from another user's process, and is shown as one line.
        let characters =
            name.as_deref().unwrap_or_default().chars().filter(|character| !character.is_control());
        let vm = characters.take(MAX_VM_NAME).collect();
        Some(Self { pid, vm })
    }
}

/// A failure of an endpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The socket cannot be made.
    #[error("Cannot listen on {path}; its directory must exist, and nothing else may use the name")]
    Socket {
        /// The path of the socket.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The socket cannot be given to another user or group.
    #[error(
        "Cannot make the socket {path} for another user or group; without root, the group can be one of the daemon's user, \
         and the owner can only be that user"
    )]
    Access {
        /// The path of the socket.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The inherited socket cannot be used.
    #[error("Cannot wait for front-ends on the socket that was inherited")]
    Inherited(#[source] io::Error),
    /// The kernel refused a thread.
    #[error("Cannot start a thread for the device {name}")]
    Thread {
        /// The device.
        name: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl BoundEndpoint {
    /// Limits it to a single front-end.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.once = true;
        self
    }
}

impl Endpoint {
    /// Takes an inherited listening socket, or creates one. A socket file that an ended program left is replaced.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub(crate) fn bind(
        socket: &Path,
        access: SocketAccess,
        inheritance: &mut Inheritance,
    ) -> Result<BoundEndpoint, EndpointError> {
        let path = socket.to_owned();
        let gives = access.user.is_some() || access.group.is_some();
        let cannot = |source: io::Error| match source.raw_os_error() {
            Some(libc::EPERM) if gives => EndpointError::Access { path: path.clone(), source },
            _ => EndpointError::Socket { path: path.clone(), source },
        };
        let (listener, file) = inheritance.listener(socket, Missing::Refused, access).map_err(cannot)?;
        let mut bound = BoundEndpoint { file: Some(file), source: None, once: false };
        bound.source = Some(Source::Listener(Listener::new(listener).map_err(cannot)?));
        Ok(bound)
    }

    /// Takes a socket that another program created.
    ///
    /// # Errors
    /// [`EndpointError::Inherited`].
    pub fn inherit(socket: InheritedSocket) -> Result<BoundEndpoint, EndpointError> {
        let source = match socket {
            InheritedSocket::Listening(listener) => {
                Source::Listener(Listener::new(listener).map_err(EndpointError::Inherited)?)
            }
            InheritedSocket::Connected(stream) => Source::Connection(stream),
        };
        Ok(BoundEndpoint { file: Some(ListenerFile::others()), source: Some(source), once: false })
    }

    /// Serves front-ends of a device on a socket, one after another.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn serve(
        config: DeviceConfig,
        mut bound: BoundEndpoint,
        device: Box<dyn Device>,
        own_worker: Option<u32>,
        pool: &Arc<Pool>,
    ) -> Result<Self, EndpointError> {
        let backend = Backend::new(&config.name, device);
        for queue in &backend.queues {
            *queue.worker.lock().unwrap_or_else(PoisonError::into_inner) = own_worker;
        }
        let mut source = bound.source.take();
        let waker = match &source {
            Some(Source::Listener(listener)) => Some(listener.waker()),
            _ => None,
        };
        let closing = Arc::new(AtomicBool::new(false));
        let connection = Arc::<Mutex<Option<Front>>>::default();
        let (ends, ended) = channel();
        let (tells, only) = channel();
        let body = {
            let (name, pool, backend) = (config.name.clone(), Arc::clone(pool), Arc::clone(&backend));
            let (closing, connection, once) = (Arc::clone(&closing), Arc::clone(&connection), bound.once);
            move || {
                let _ends = ends;
                let mut served = false;
                while let Some(front_end) = source.as_mut().and_then(|source| source.next(served).transpose())
                {
                    if closing.load(Ordering::Acquire) {
                        break;
                    }
                    match front_end {
                        Ok(stream) => {
                            let end = serve(&name, stream, &backend, &pool, &connection, &closing);
                            served = true;
                            // A process that only tests whether somebody listens is not a front-end.
                            if once && end.said_something {
                                // The receiver may be gone.
                                let _ = tells.send(end.in_order);
                                break;
                            }
                        }
                        Err(error) => {
                            backend.log.warn(|| format!("{name}: Cannot accept a front-end: {error}"));
                            // Most likely the process has too many open files: accepting again at once would spin.
                            std::thread::sleep(ACCEPT_RETRY);
                        }
                    }
                }
                drop(source);
            }
        };
        let thread = crate::fatal::spawn("front-end", body);
        let thread = thread.map_err(|source| EndpointError::Thread { name: config.name.clone(), source })?;
        let thread = Mutex::new(Some((thread, ended)));
        let file = bound.file.take().unwrap_or_else(ListenerFile::others);
        let (pool, only) = (Arc::clone(pool), Mutex::new(Some(only)));
        Ok(Self { config, backend, own_worker, file, pool, waker, closing, connection, only, thread })
    }

    /// The end of the only front-end: the channel gets `true` when it has disconnected, `false` if its connection
    /// failed. `None` if it was taken before.
    #[must_use]
    pub fn end_of_only_front_end(&self) -> Option<Receiver<bool>> {
        self.only.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Tests whether a front-end is connected.
    #[must_use]
    pub(crate) fn is_connected(&self) -> bool {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The process of the connected front-end.
    #[must_use]
    pub fn peer(&self) -> Option<Peer> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.peer.clone()
    }

    /// Tests whether it is being closed.
    #[must_use]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Tells the front-end's thread to end, without waiting for it.
    pub(crate) fn begin_to_close(&self) {
        self.closing.store(true, Ordering::Release);
        if let Some(front) = &*self.connection.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = front.stream.shutdown(std::net::Shutdown::Both);
        }
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    /// Closes it for good: its socket is not kept for the next daemon either.
    pub fn remove(&self) {
        self.file.remove();
        self.close(Self::deadline());
    }

    /// The deadline of a close that begins now: closing waits until then for threads that serve front-ends.
    #[must_use]
    pub fn deadline() -> Instant {
        Instant::now() + CLOSE_TIMEOUT
    }

    /// Disconnects the front-end after its requests in flight, stops listening, and removes the socket unless it is kept
    /// for the next daemon.
    ///
    /// A thread that does not end by the deadline is left behind. A front-end can cause that, for instance with a
    /// descriptor whose close(2) waits for a server that does not answer. The thread ends after that, or with this
    /// process.
    pub fn close(&self, deadline: Instant) {
        self.begin_to_close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((thread, ended)) = thread else {
            // Somebody else is closing it, and may be waiting for requests in flight.
            self.backend.end(&self.pool);
            return;
        };
        self.file.end();
        match ended.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {
                self.backend.end(&self.pool);
                if !thread.is_finished() {
                    let name = &self.config.name;
                    tracing::warn!(
                        "{name}: the thread that served its front-end does not end, and is left behind"
                    );
                }
            }
            _ => drop(thread.join()),
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.close(Self::deadline());
    }
}

/// The end of a connection.
struct End {
    /// The front-end has sent at least one message.
    said_something: bool,
    /// The front-end has closed the connection.
    in_order: bool,
}

fn serve(
    name: &str,
    stream: UnixStream,
    backend: &Arc<Backend>,
    pool: &Arc<Pool>,
    connection: &Mutex<Option<Front>>,
    closing: &AtomicBool,
) -> End {
    tracing::info!("{name}: a front-end has connected");
    let set = |front| {
        // Dropped without the lock: this also closes descriptors that the front-end has sent and nobody has read.
        let before =
            std::mem::replace(&mut *connection.lock().unwrap_or_else(PoisonError::into_inner), front);
        drop(before);
    };
    let peer = Peer::of(&stream);
    set(stream.try_clone().ok().map(|stream| Front { stream, peer }));
    // `begin_to_close` may have missed this connection.
    if closing.load(Ordering::Acquire) {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
    let mut session = Session::new(Arc::clone(backend), Arc::clone(pool));
    let outcome = session.run(stream);
    match &outcome {
        Ok(()) => tracing::info!("{name}: the front-end has disconnected"),
        Err(error) => backend.log.warn(|| format!("{name}: {error}")),
    }
    set(None);
    End { said_something: session.has_heard(), in_order: outcome.is_ok() }
}
