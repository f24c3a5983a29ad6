//! Waiting for events of many connections, with a deadline.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::LoadError;

/// The most events of one wait.
const EVENTS: usize = 1024;
/// The timer's token, which no connection has.
const TIMER: u64 = u64::MAX;

/// A connection that can be read from or written to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ready {
    /// The connection's number.
    pub(super) connection: usize,
    /// Readable, or failed.
    pub(super) readable: bool,
    /// Writable, or failed.
    pub(super) writable: bool,
}

/// An epoll instance with a timerfd in it: the timeouts of epoll_wait(2) are whole milliseconds, which would show in
/// every latency.
pub(super) struct Reactor {
    epoll: OwnedFd,
    timer: OwnedFd,
    armed: Option<Instant>,
}

impl Reactor {
    pub(super) fn new() -> Result<Self, LoadError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(LoadError::system("wait by epoll"))?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, flags).map_err(LoadError::system("make a timer"))?;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER), epoll::EventFlags::IN)
            .map_err(LoadError::system("wait for a timer"))?;
        Ok(Self { epoll, timer, armed: None })
    }

    pub(super) fn add(&self, socket: impl AsFd, connection: usize, write: bool) -> Result<(), Errno> {
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(connection as u64), flags(write))
    }

    pub(super) fn modify(&self, socket: impl AsFd, connection: usize, write: bool) -> Result<(), Errno> {
        epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(connection as u64), flags(write))
    }

    /// Waits until a connection is ready, at most until `until`.
    pub(super) fn wait(&mut self, until: Instant, ready: &mut Vec<Ready>) -> Result<(), LoadError> {
        ready.clear();
        let now = Instant::now();
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = if until <= now {
            Some(&zero)
        } else {
            self.arm(until, now)?;
            None
        };
        let mut events = [MaybeUninit::uninit(); EVENTS];
        let (events, _) = match epoll::wait(&self.epoll, &mut events, timeout) {
            Ok(events) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(LoadError::system("wait by epoll")(error)),
        };
        for event in events {
            let (data, flags) = (event.data.u64(), event.flags);
            if data == TIMER {
                self.armed = None;
                continue;
            }
            let failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            ready.push(Ready {
                connection: data as usize,
                readable: failed || flags.contains(epoll::EventFlags::IN),
                writable: failed || flags.contains(epoll::EventFlags::OUT),
            });
        }
        if self.armed.is_none() {
            self.disarm()?;
        }
        Ok(())
    }

    fn arm(&mut self, until: Instant, now: Instant) -> Result<(), LoadError> {
        if self.armed == Some(until) {
            return Ok(());
        }
        let left = until.saturating_duration_since(now);
        let value = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        self.set(value)?;
        self.armed = Some(until);
        Ok(())
    }

    /// Disarms the timer; this also clears an expiration that was not read.
    fn disarm(&self) -> Result<(), LoadError> {
        self.set(Timespec { tv_sec: 0, tv_nsec: 0 })
    }

    fn set(&self, value: Timespec) -> Result<(), LoadError> {
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)
            .map(|_| ())
            .map_err(LoadError::system("set a timer"))
    }
}

fn flags(write: bool) -> epoll::EventFlags {
    if write { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN }
}
