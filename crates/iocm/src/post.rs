//! A device that waits for its front-ends, one after another.

use crate::device::Device;
use crate::pool::Pool;
use crate::session::{Served, Session};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A device that waits on a socket, or serves the front-end that came.
#[derive(Debug)]
pub struct Post {
    /// What it is called.
    pub name: String,
    /// Its socket.
    pub socket: PathBuf,
    /// The device and its queues.
    pub served: Arc<Served>,
    closing: Arc<AtomicBool>,
    connection: Arc<Mutex<Option<UnixStream>>>,
    thread: Option<JoinHandle<()>>,
}

/// Why a device cannot wait on a socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The socket cannot be made.
    #[error("Cannot wait for front-ends on {path}; its directory must be there, and the name free")]
    Socket {
        /// The socket's path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no thread for it.
    #[error("No thread for the device {name}")]
    Thread {
        /// The device.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Post {
    /// Waits on a socket for front-ends of a device, one after another. What another program that is gone left there is
    /// replaced.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn open(
        name: String,
        socket: &Path,
        device: Box<dyn Device>,
        pool: &Arc<Pool>,
    ) -> Result<Self, PostError> {
        let cannot = |source| PostError::Socket { path: socket.to_owned(), source };
        let listener = bind(socket).map_err(cannot)?;
        let served = Served::new(device);
        let closing = Arc::new(AtomicBool::new(false));
        let connection = Arc::<Mutex<Option<UnixStream>>>::default();
        let body = {
            let (name, pool, served) = (name.clone(), Arc::clone(pool), Arc::clone(&served));
            let (closing, connection) = (Arc::clone(&closing), Arc::clone(&connection));
            move || {
                for stream in listener.incoming() {
                    if closing.load(Ordering::Acquire) {
                        break;
                    }
                    match stream {
                        Ok(stream) => serve(&name, stream, &served, &pool, &connection),
                        Err(error) => tracing::warn!("{name}: no front-end can connect: {error}"),
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("front-end".to_owned()).spawn(body);
        let thread = thread.map_err(|source| PostError::Thread { name: name.clone(), source })?;
        Ok(Self { name, socket: socket.to_owned(), served, closing, connection, thread: Some(thread) })
    }

    /// Whether a front-end is connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        if let Some(connection) = &*self.connection.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
        // The thread that waits for the next front-end sees one that is none.
        let _ = UnixStream::connect(&self.socket);
        let _ = std::fs::remove_file(&self.socket);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn bind(socket: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(socket) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            // One that answers is another's.
            if UnixStream::connect(socket).is_ok() {
                return Err(error);
            }
            std::fs::remove_file(socket)?;
            UnixListener::bind(socket)
        }
        bound => bound,
    }
}

fn serve(
    name: &str,
    stream: UnixStream,
    served: &Arc<Served>,
    pool: &Arc<Pool>,
    connection: &Mutex<Option<UnixStream>>,
) {
    tracing::info!("{name}: a front-end is there");
    let set = |stream| *connection.lock().unwrap_or_else(PoisonError::into_inner) = stream;
    set(stream.try_clone().ok());
    match Session::new(Arc::clone(served), Arc::clone(pool)).run(stream) {
        Ok(()) => tracing::info!("{name}: the front-end is gone"),
        Err(error) => tracing::warn!("{name}: {error}"),
    }
    set(None);
}
