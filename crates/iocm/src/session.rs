//! One front-end's connection: what it says, step by step, and what follows from it for the queues.

mod requests;
mod vring;

use crate::device::Device;
use crate::log_limit::LogLimit;
use crate::memory::{DirtyLog, GuestMemory, RegionDescription};
use crate::pool::{Pool, PoolError};
use crate::protocol::{
    Connection, ConnectionError, Header, ProtocolFeatures, Request, RequestError, VirtioFeatures,
};
use crate::queue::QueueState;
use crate::queue::inflight::InflightMemory;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use vring::Vring;

/// What of a device is there whether a front-end is connected or not.
#[derive(Debug)]
pub struct Backend {
    /// The device.
    pub device: Box<dyn Device>,
    /// What is known of each of its queues, by number.
    pub queues: Vec<Arc<BackendQueue>>,
    requests: Mutex<Requests>,
    /// Whether no queue may begin any more.
    over: AtomicBool,
    /// What its front-end can have written to the log.
    pub log: LogLimit,
}

/// The connection for the back-end's own requests, when there is one.
#[derive(Debug, Default)]
struct Requests {
    connection: Option<Connection>,
    /// Whether the front-end does not read it, and is told nothing more.
    is_deaf: bool,
}

/// What of a queue is there whether it is served or not.
#[derive(Debug, Default)]
pub struct BackendQueue {
    /// Counters.
    pub state: Arc<QueueState>,
    /// Its number in the daemon while it is served.
    pub key: Mutex<Option<crate::queue::QueueKey>>,
    /// Where it shall be served: kept from connection to connection.
    pub worker: Mutex<Option<u32>>,
    /// Its weight, 0 for the usual.
    pub weight: std::sync::atomic::AtomicU32,
    /// Whether it is looked at all the time, and never left to its kicks.
    pub polled: std::sync::atomic::AtomicBool,
}

impl Backend {
    /// A device that nobody is connected to.
    #[must_use]
    pub fn new(device: Box<dyn Device>) -> Arc<Self> {
        let queues = (0..device.queues()).map(|_| Arc::default()).collect();
        Arc::new(Self {
            device,
            queues,
            requests: Mutex::default(),
            over: AtomicBool::new(false),
            log: LogLimit::default(),
        })
    }

    /// Ends all queues once the kernel has none of their requests, and lets none begin any more, whatever the front-end's
    /// thread is about.
    pub(crate) fn end(&self, pool: &Pool) {
        self.over.store(true, Ordering::SeqCst);
        for queue in &self.queues {
            loop {
                let Some(key) = *queue.key.lock().unwrap_or_else(PoisonError::into_inner) else { break };
                if pool.end(key).is_ok() {
                    *queue.key.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    break;
                }
                // The front-end's thread is ending it, which takes as long as a disk does.
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Takes another connection for the back-end's requests. The one before is closed by the front-end's thread alone, while
    /// nobody waits for the lock: what the front-end left in it goes with it, and closing that may take long.
    fn replace_requests(&self, connection: Option<Connection>) {
        let requests = Requests { connection, is_deaf: false };
        let before =
            std::mem::replace(&mut *self.requests.lock().unwrap_or_else(PoisonError::into_inner), requests);
        drop(before);
    }

    /// Tells the front-end that the configuration has changed. Whether there was one to tell.
    pub fn config_changed(&self) -> bool {
        /// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`.
        const CONFIG_CHANGE: u32 = 2;
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let Requests { connection: Some(connection), is_deaf: is_deaf @ false } = &mut *requests else {
            return false;
        };
        match connection.request(CONFIG_CHANGE, &[]) {
            Ok(()) => true,
            Err(error) => {
                // What is sent in part is no message, and one who does not read is told nothing more.
                self.log.warn(|| {
                    format!("A front-end is not told that its device's configuration changed: {error}")
                });
                *is_deaf = true;
                false
            }
        }
    }
}

/// A front-end's connection.
#[derive(Debug)]
pub struct Session {
    backend: Arc<Backend>,
    pool: Arc<Pool>,
    features: VirtioFeatures,
    protocol: ProtocolFeatures,
    memory: Arc<GuestMemory>,
    /// Regions that were added again, as often as that was: QEMU before 8.2 adds and removes each once for every pair of
    /// a network device's queues.
    duplicate_regions: Vec<RegionDescription>,
    log: Option<Arc<DirtyLog>>,
    inflight: Option<InflightMemory>,
    status: u64,
    vrings: Vec<Vring>,
}

/// What a request is answered with.
enum Reply {
    /// Nothing, or that it was done, if that is wanted.
    Done,
    /// A payload.
    Payload(Vec<u8>),
    /// A payload and a file.
    File(Vec<u8>, std::os::fd::OwnedFd),
}

impl Session {
    /// A session that has not begun.
    #[must_use]
    pub fn new(backend: Arc<Backend>, pool: Arc<Pool>) -> Self {
        let vrings = backend.queues.iter().map(|_| Vring::default()).collect();
        Self {
            backend,
            pool,
            features: VirtioFeatures::default(),
            protocol: ProtocolFeatures::default(),
            memory: Arc::default(),
            duplicate_regions: Vec::new(),
            log: None,
            inflight: None,
            status: 0,
            vrings,
        }
    }

    /// Serves a front-end until it is gone, and ends its queues then.
    ///
    /// # Errors
    /// [`ConnectionError`] when it did not just close the connection.
    pub fn run(&mut self, socket: UnixStream) -> Result<(), ConnectionError> {
        let mut connection = Connection::new(socket);
        let outcome = loop {
            match connection.receive() {
                Ok((header, request)) => {
                    if let Err(error) = self.handle(&mut connection, header, request) {
                        break Err(error);
                    }
                }
                Err(ConnectionError::Closed) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.end();
        outcome
    }

    fn handle(
        &mut self,
        connection: &mut Connection,
        header: Header,
        request: Result<Request, RequestError>,
    ) -> Result<(), ConnectionError> {
        let has_reply = request.as_ref().is_ok_and(Self::has_reply);
        let reply = request.and_then(|request| self.reply(request));
        let acknowledges = header.needs_reply() && self.protocol.has(ProtocolFeatures::REPLY_ACK);
        match reply {
            Ok(Reply::Payload(payload)) => connection.reply(header.code, &payload, None),
            Ok(Reply::File(payload, file)) => {
                use std::os::fd::AsFd as _;
                connection.reply(header.code, &payload, Some(file.as_fd()))
            }
            Ok(Reply::Done) if acknowledges => connection.reply(header.code, &0_u64.to_ne_bytes(), None),
            Ok(Reply::Done) => Ok(()),
            Err(error) => {
                let code = header.code;
                self.backend.log.warn(|| format!("A front-end's request {code} is refused: {error}"));
                match has_reply {
                    // The front-end waits for an answer of a shape that a refusal does not have.
                    true => Err(ConnectionError::Garbled("a request that must be answered cannot be")),
                    false if acknowledges => connection.reply(header.code, &1_u64.to_ne_bytes(), None),
                    false => Ok(()),
                }
            }
        }
    }

    /// Ends all queues.
    fn end(&mut self) {
        for index in 0..self.vrings.len() {
            self.stop(index);
        }
        self.backend.replace_requests(None);
    }
}

/// A failure of workers, as the front-end is told of it.
fn pool_error(error: &PoolError) -> RequestError {
    RequestError::Invalid(error.to_string())
}

#[cfg(test)]
#[path = "session/session_tests.rs"]
mod tests;
