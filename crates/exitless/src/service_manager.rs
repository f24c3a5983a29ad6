//! The service manager that started this process: the protocol of sd_notify(3).
//!
//! The protocol is a few messages over a datagram socket: not worth a dependency.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use iocm::inherited::{ListenerStore, stored_name};
use live::pause;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// The service manager; without one, all calls do nothing.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// The manager kills a service that sends no keep-alive for this long (sd_watchdog_enabled(3)).
    watchdog: Option<Duration>,
    told: Instant,
}

impl ServiceManager {
    /// The manager at `$NOTIFY_SOCKET`. Call this before privileges are dropped.
    pub(crate) fn connect() -> Self {
        let variable = |name| std::env::var(name).ok();
        let own = |pid: String| pid.parse() == Ok(std::process::id());
        let watchdog = variable("WATCHDOG_USEC").filter(|_| variable("WATCHDOG_PID").is_none_or(own));
        Self::new(variable("NOTIFY_SOCKET").as_deref(), watchdog.as_deref())
    }

    fn new(path: Option<&str>, watchdog_us: Option<&str>) -> Self {
        let socket = path.and_then(|path| {
            let address = match path.strip_prefix('@') {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(path),
            };
            let connected = address.and_then(|address| {
                let socket = UnixDatagram::unbound()?;
                socket.connect_addr(&address)?;
                // A full socket must not block the daemon.
                socket.set_nonblocking(true)?;
                Ok(socket)
            });
            connected.inspect_err(|error| tracing::warn!("NOTIFY_SOCKET {path}: {error}")).ok()
        });
        let watchdog = watchdog_us.and_then(|text| text.parse().ok()).filter(|us| *us > 0);
        let watchdog = socket.as_ref().and(watchdog).map(Duration::from_micros);
        Self { socket, watchdog, told: Instant::now() }
    }

    /// The manager's descriptor store, which passes listeners on to the service's next process
    /// (`FileDescriptorStoreMax=`).
    pub(crate) fn store(&self) -> Option<Arc<dyn ListenerStore>> {
        let socket = self.socket.as_ref()?.try_clone().ok()?;
        Some(Arc::new(Store(socket)))
    }

    /// Reports that the service is ready.
    pub(crate) fn ready(&self) {
        // The manager ends a service that never says this.
        if let Err(error) = self.send("READY=1", &PATIENCE) {
            tracing::warn!("Could not report to the service manager that the service is ready: {error}");
        }
    }

    /// Reports that the service is stopping.
    pub(crate) fn stopping(&self) {
        let _ = self.send("STOPPING=1", &SHORT);
    }

    /// The time at which the next keep-alive is due: after half of the limit, as sd_watchdog_enabled(3)
    /// recommends. `None` without a watchdog.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.watchdog.map(|limit| self.told + limit / 2)
    }

    /// Sends a keep-alive if one is due and `lives` returns true; its argument is a quarter of the watchdog's
    /// limit.
    pub(crate) fn tell(&mut self, lives: impl FnOnce(Duration) -> bool) {
        let Some(limit) = self.watchdog else { return };
        if self.next().is_some_and(|next| Instant::now() >= next) && lives(limit / 4) {
            // One that found no room is sent again at the next call. After another error the next one is due as usual: a
            // loop that calls this would spin.
            if self.send("WATCHDOG=1", &SHORT) != Err(Errno::AGAIN) {
                self.told = Instant::now();
            }
        }
    }

    /// Waits until `until`, and sends the keep-alives that are due meanwhile; false if `stop` was set before.
    pub(crate) fn wait_until(&mut self, until: Instant, stop: &AtomicBool) -> bool {
        loop {
            let next = self.next().map_or(until, |next| next.min(until));
            if !pause(next, stop) {
                return false;
            }
            self.tell(|_| true);
            if next == until {
                return true;
            }
        }
    }

    /// Sends a message, waiting up to `patience` for room in the manager's socket: `Errno::AGAIN` if there was none.
    fn send(&self, text: &str, patience: &Timespec) -> Result<(), Errno> {
        self.socket.as_ref().map_or(Ok(()), |socket| send(socket, text, &[], patience))
    }
}

/// The manager's descriptor store.
#[derive(Debug)]
struct Store(UnixDatagram);

/// The longest wait for room in the manager's socket, whose queue holds few messages of all services: while the service
/// starts, and while it serves.
const PATIENCE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
const SHORT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

fn send(
    socket: &UnixDatagram,
    text: &str,
    files: &[BorrowedFd<'_>],
    patience: &Timespec,
) -> Result<(), Errno> {
    loop {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(files));
        }
        match sendmsg(socket, &[IoSlice::new(text.as_bytes())], &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => match poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(patience)) {
                Ok(0) => return Err(Errno::AGAIN),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        }
    }
}

impl Store {
    fn send(&self, text: &str, files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        send(&self.0, text, files, &PATIENCE)
    }
}

impl ListenerStore for Store {
    fn keep(&self, path: &Path, listener: BorrowedFd<'_>) -> bool {
        let Some(name) = stored_name(path) else { return false };
        // Remove the entry of an earlier daemon whose socket file was deleted.
        let sent = self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), &[]);
        let sent = sent.and_then(|()| self.send(&format!("FDSTORE=1\nFDNAME={name}"), &[listener]));
        if let Err(error) = &sent {
            tracing::warn!("{} is not kept over a restart: {error}", path.display());
        }
        sent.is_ok()
    }

    fn forget(&self, path: &Path) {
        if let Some(name) = stored_name(path) {
            // If this fails, the listener stays in the store; the next process drops it.
            let _ = self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), &[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> Option<String> {
        let mut bytes = [0; 64];
        let length = socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    fn pair(watchdog: Option<&str>) -> (UnixDatagram, ServiceManager, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let manager = ServiceManager::new(path.to_str(), watchdog);
        (socket, manager, folder)
    }

    #[test]
    fn a_manager_hears_when_the_service_is_ready_and_when_it_ends() {
        let (socket, manager, _folder) = pair(None);
        manager.ready();
        manager.stopping();
        assert_eq!(received(&socket).as_deref(), Some("READY=1"));
        assert_eq!(received(&socket).as_deref(), Some("STOPPING=1"));
        assert_eq!(manager.next(), None);
    }

    #[test]
    fn a_sign_of_life_is_given_when_it_is_due_and_only_by_a_living_service() {
        let (socket, mut manager, _folder) = pair(Some("20000000"));
        manager.tell(|_| true);
        assert_eq!(received(&socket), None, "it was not due");
        manager.told = manager.told.checked_sub(Duration::from_secs(10)).unwrap();
        manager.tell(|_| false);
        assert_eq!(received(&socket), None, "it does not live");
        manager.tell(|within| within == Duration::from_secs(5));
        assert_eq!(received(&socket).as_deref(), Some("WATCHDOG=1"));
        assert!(manager.next().is_some_and(|next| next > Instant::now()));
    }

    #[test]
    fn a_sign_of_life_that_finds_no_room_is_given_again() {
        let (socket, mut manager, _folder) = pair(Some("20000000"));
        while manager.send("X=1", &Timespec { tv_sec: 0, tv_nsec: 0 }).is_ok() {}
        manager.told = manager.told.checked_sub(Duration::from_secs(10)).unwrap();
        manager.tell(|_| true);
        assert!(manager.next().is_some_and(|next| next <= Instant::now()), "it was not sent");
        while received(&socket).is_some() {}
        manager.tell(|_| true);
        assert_eq!(received(&socket).as_deref(), Some("WATCHDOG=1"));
        assert!(manager.next().is_some_and(|next| next > Instant::now()));
        // Nobody reads any more, so there is nothing to wait for.
        drop(socket);
        manager.told = manager.told.checked_sub(Duration::from_secs(10)).unwrap();
        manager.tell(|_| true);
        assert!(manager.next().is_some_and(|next| next > Instant::now()));
    }

    #[test]
    fn a_service_that_waits_for_longer_than_the_limit_gives_signs_of_life() {
        let (socket, mut manager, _folder) = pair(Some("20000"));
        let until = Instant::now() + Duration::from_millis(50);
        assert!(manager.wait_until(until, &AtomicBool::new(false)) && Instant::now() >= until);
        assert_eq!(received(&socket).as_deref(), Some("WATCHDOG=1"));
        assert!(!manager.wait_until(Instant::now() + Duration::from_secs(60), &AtomicBool::new(true)));
    }

    #[test]
    fn without_a_manager_nothing_happens() {
        let mut manager = ServiceManager::new(None, Some("20000"));
        manager.ready();
        manager.tell(|_| panic!("nobody waits for it"));
        assert_eq!(manager.next(), None);
        assert!(ServiceManager::new(Some("/nowhere/notify"), None).socket.is_none());
    }

    #[test]
    fn an_abstract_socket_is_reached() {
        let name = format!("exitless-test-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        ServiceManager::new(Some(&format!("@{name}")), None).ready();
        assert_eq!(received(&socket).as_deref(), Some("READY=1"));
    }
}
