//! A vhost-user connection: the requests of one front-end, and their effect on the queues.

mod requests;
mod vring;

use crate::device::Device;
use crate::log_limit::LogLimit;
use crate::memory::{DirtyLog, GuestMemory, RegionDescription};
use crate::pool::{Pool, PoolError};
use crate::protocol::{
    Connection, ConnectionError, Header, ProtocolFeatures, Request, RequestError, VirtioFeatures,
};
use crate::queue::inflight::InflightMemory;
use crate::queue::{DeviceEventfds, QueueState};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use vring::Vring;

/// The back-end of a device, which stays while front-ends come and go.
#[derive(Debug)]
pub struct Backend {
    /// The device.
    pub device: Box<dyn Device>,
    /// Its queues by number.
    pub queues: Vec<Arc<BackendQueue>>,
    requests: Mutex<Requests>,
    /// The configuration space has changed, and the front-end was not told.
    untold: AtomicBool,
    /// No queue may start any more.
    over: AtomicBool,
    /// The limit of log lines that its front-end can cause.
    pub log: LogLimit,
}

/// The channel for requests of the back-end (`VHOST_USER_SET_BACKEND_REQ_FD`).
#[derive(Debug, Default)]
struct Requests {
    connection: Option<Connection>,
    /// A message to the front-end has failed; it is sent nothing more.
    is_deaf: bool,
}

/// A queue of a back-end, served or not.
#[derive(Debug, Default)]
pub struct BackendQueue {
    /// Its counters and state.
    pub state: Arc<QueueState>,
    /// Its number while it is served, and until it has been drained and dropped.
    pub key: Mutex<Option<crate::queue::QueueKey>>,
    /// The worker that is to serve it, kept across connections.
    pub worker: Mutex<Option<u32>>,
    /// Its weight; 0 for the default.
    pub weight: std::sync::atomic::AtomicU32,
    /// It is always polled, and never waits for kicks.
    pub polled: std::sync::atomic::AtomicBool,
}

impl Backend {
    /// The back-end of a device with this name, without a front-end.
    #[must_use]
    pub fn new(name: &str, device: Box<dyn Device>) -> Arc<Self> {
        let eventfds = DeviceEventfds::new(name);
        let queue = || {
            let state = QueueState { eventfds: Arc::clone(&eventfds), ..QueueState::default() };
            Arc::new(BackendQueue { state: Arc::new(state), ..BackendQueue::default() })
        };
        let queues = (0..device.queues()).map(|_| queue()).collect();
        Arc::new(Self {
            device,
            queues,
            requests: Mutex::default(),
            untold: AtomicBool::new(false),
            over: AtomicBool::new(false),
            log: LogLimit::default(),
        })
    }

    /// Stops all queues once their requests in flight have completed, and lets none start any more, whatever the
    /// front-end's thread is doing.
    pub(crate) fn end(&self, pool: &Pool) {
        self.over.store(true, Ordering::SeqCst);
        for queue in &self.queues {
            loop {
                let Some(key) = *queue.key.lock().unwrap_or_else(PoisonError::into_inner) else { break };
                if pool.end(key).is_ok() {
                    *queue.key.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    break;
                }
                // The front-end's thread is stopping the queue, which may wait for a disk.
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        // That thread may be left behind, and keep the device.
        self.device.release();
    }

    /// Replaces the channel for requests of the back-end. Only the front-end's thread closes the old one, and without
    /// the lock: this also closes descriptors that the front-end has left in it, which may block.
    fn replace_requests(&self, connection: Option<Connection>) {
        let requests = Requests { connection, is_deaf: false };
        let before =
            std::mem::replace(&mut *self.requests.lock().unwrap_or_else(PoisonError::into_inner), requests);
        drop(before);
    }

    /// Tells the front-end that the configuration space has changed. While no queue is served, the back-end may send
    /// nothing (vhost-user, "Suspended device state"; QEMU before 7.2 would crash, later ones ignore it), and the front-end
    /// is told when one is. `false` if it was not told yet.
    pub fn config_changed(&self) -> bool {
        self.untold.store(true, Ordering::SeqCst);
        let is_served =
            |queue: &Arc<BackendQueue>| queue.key.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        self.queues.iter().any(is_served) && self.tell_of_change()
    }

    /// Tells the front-end of a change that it was not told of. `false` if there is none, or it cannot be told.
    fn tell_of_change(&self) -> bool {
        /// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`.
        const CONFIG_CHANGE: u32 = 2;
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let Requests { connection: Some(connection), is_deaf: is_deaf @ false } = &mut *requests else {
            return false;
        };
        if !self.untold.swap(false, Ordering::SeqCst) {
            return false;
        }
        match connection.request(CONFIG_CHANGE, &[]) {
            Ok(()) => true,
            Err(error) => {
                // No message can follow one that was sent in part.
                self.log.warn(|| {
                    format!("Cannot tell a front-end that its device's configuration changed: {error}")
                });
                *is_deaf = true;
                self.untold.store(true, Ordering::SeqCst);
                false
            }
        }
    }
}

/// A connection of a front-end.
#[derive(Debug)]
pub struct Session {
    backend: Arc<Backend>,
    pool: Arc<Pool>,
    features: VirtioFeatures,
    /// Those for which `VHOST_USER_SET_FEATURES` was last refused; 0 if it was not.
    refused: u64,
    protocol: ProtocolFeatures,
    memory: Arc<GuestMemory>,
    /// Regions that were added twice or more: QEMU before 8.2 adds and removes each of them once for every queue pair
    /// of a network device.
    duplicate_regions: Vec<RegionDescription>,
    log: Option<Arc<DirtyLog>>,
    inflight: Option<InflightMemory>,
    status: u64,
    vrings: Vec<Vring>,
    /// The front-end has sent a message.
    heard: bool,
}

/// The reply to a request.
enum Reply {
    /// No payload; success is reported if the front-end wants a reply.
    Done,
    /// A payload.
    Payload(Vec<u8>),
    /// A payload with a file descriptor.
    File(Vec<u8>, std::os::fd::OwnedFd),
}

impl Session {
    /// A session before its first request.
    #[must_use]
    pub fn new(backend: Arc<Backend>, pool: Arc<Pool>) -> Self {
        let vrings = backend.queues.iter().map(|_| Vring::default()).collect();
        Self {
            backend,
            pool,
            features: VirtioFeatures::default(),
            refused: 0,
            protocol: ProtocolFeatures::default(),
            memory: Arc::default(),
            duplicate_regions: Vec::new(),
            log: None,
            inflight: None,
            status: 0,
            vrings,
            heard: false,
        }
    }

    /// Serves a front-end until it disconnects, and stops its queues then.
    ///
    /// # Errors
    ///
    /// [`ConnectionError`] unless the front-end closed the connection.
    pub fn run(&mut self, socket: UnixStream) -> Result<(), ConnectionError> {
        let mut connection = Connection::new(socket);
        let outcome = loop {
            match connection.receive() {
                Ok((header, request)) => {
                    self.heard = true;
                    if let Err(error) = self.handle(&mut connection, header, request) {
                        break Err(error);
                    }
                    self.tell_of_change();
                }
                Err(ConnectionError::Closed) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.end();
        outcome
    }

    /// Tests whether the front-end has sent a message.
    #[must_use]
    pub(crate) const fn has_heard(&self) -> bool {
        self.heard
    }

    fn handle(
        &mut self,
        connection: &mut Connection,
        header: Header,
        request: Result<Request, RequestError>,
    ) -> Result<(), ConnectionError> {
        // QEMU sends this for each queue when it connects (hw/virtio/vhost.c, `vhost_virtqueue_init`), and waits for no reply:
        // only the end of the connection tells it that there are too few.
        if let Ok(Request::SetVringCall(index, _)) = request
            && index as usize >= self.vrings.len()
        {
            return Err(ConnectionError::NoQueue(index, self.vrings.len()));
        }
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
            // Few front-ends look at the reply, and the ring would stay dead.
            Err(RequestError::Unusable(why)) => Err(ConnectionError::Unusable(why)),
            Err(error) => {
                let code = header.code;
                self.backend.log.warn(|| format!("A front-end's request {code} is refused: {error}"));
                match header.has_reply() {
                    // The front-end waits for a reply with a payload, which an error cannot give.
                    true => Err(ConnectionError::NoReply(code)),
                    false if acknowledges => connection.reply(header.code, &1_u64.to_ne_bytes(), None),
                    false => Ok(()),
                }
            }
        }
    }

    /// Tells the front-end of a change of the configuration space that came while no queue was served, once one is. This
    /// comes after the reply to its request: QEMU 6.0 to 7.2 also reads the channel while it waits for a reply, and would
    /// then ask for the configuration before it has the reply.
    fn tell_of_change(&self) {
        let is_served = |index: usize| self.vrings[index].key.is_some() && self.is_enabled(index);
        if self.backend.untold.load(Ordering::SeqCst) && (0..self.vrings.len()).any(is_served) {
            self.backend.tell_of_change();
        }
    }

    /// Stops all queues, and forgets what the front-end told the device.
    fn end(&mut self) {
        for index in 0..self.vrings.len() {
            self.stop(index);
        }
        let _ = self.backend.device.set_mtu(None);
        self.backend.replace_requests(None);
    }
}

/// The reply to a request that a worker could not carry out.
fn pool_error(error: &PoolError) -> RequestError {
    RequestError::Invalid(error.to_string())
}

#[cfg(test)]
#[path = "session/session_tests.rs"]
mod tests;
