//! A worker's thread.

use super::backoff::{Backoff, Idle, Polling};
use super::entry::{NextLook, QueueEntry, resume, serve};
use super::mailbox::{Command, Mailbox, Reply, Routes};
use super::rest::{REST_NS, Rests};
use super::scheduling::{COUNTED_NS, Scheduling};
use super::signals::Signals;
use super::uring::Uring;
use super::{WorkerError, WorkerOptions, pin_thread};
use crate::clock::{now_ns, thread_cpu_ns, ticks};
use crate::queue::{Queue, QueueKey, completed};
use crate::statistics::WorkerCounters;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The source of an epoll event: the command eventfd, the io_uring, or the queue with this number.
const COMMANDS: u64 = 1 << 61;
const COMPLETIONS: u64 = 1 << 62;
/// The flag of an event of a queue's other source, which is not a kick.
const SOURCE: u64 = 1 << 63;
/// The number of events read at once.
const EVENTS: usize = 64;
/// The interval at which a worker that never waits checks for kicks of queues that it does not poll, nanoseconds. The
/// check is cheap compared with that.
const KICK_CHECK_NS: u64 = 50_000;

/// The interval at which a worker that is awake looks at the rings of queues that it does not poll, nanoseconds. A
/// look takes a few for each.
const LOOK_NS: u64 = 5_000;

/// A queue that had requests this long ago, nanoseconds, counts as one that has work.
const RECENT_NS: u64 = 10_000_000;

/// The two queues that had requests last, and the time of these.
#[derive(Debug, Default)]
struct Recent([Option<(QueueKey, u64)>; 2]);

impl Recent {
    fn found(&mut self, key: QueueKey, now: u64) {
        match &mut self.0 {
            [Some((last, when)), _] if *last == key => *when = now,
            [last, before] => (*before, *last) = (last.take(), Some((key, now))),
        }
    }

    /// Tests whether another queue than this one has work.
    fn others(&self, key: QueueKey, now: u64) -> bool {
        let is_other =
            |&(other, when): &(QueueKey, u64)| other != key && now.saturating_sub(when) < RECENT_NS;
        self.0.iter().flatten().any(is_other)
    }
}

/// A worker's thread.
pub(crate) struct Run {
    mailbox: Arc<Mailbox>,
    counters: Arc<WorkerCounters>,
    routes: Arc<Routes>,
    polling: Polling,
    epoll: OwnedFd,
    uring: Uring,
    signals: Signals,
    entries: Vec<QueueEntry>,
    /// The index of each queue in `entries`.
    indexes: HashMap<QueueKey, usize>,
    /// The queue that is served first in the next sweep.
    first: usize,
    backoff: Backoff,
    rests: Rests,
    /// `None` if the kernel does not tell how it schedules this thread.
    scheduling: Option<Scheduling>,
    /// The time of the last check for kicks, nanoseconds.
    kicks_checked: u64,
    /// The time of the last look at queues that are not polled, nanoseconds.
    looked: u64,
    /// The queues with completions to publish: empty between two turns, and kept for its memory.
    touched: Vec<usize>,
    recent: Recent,
    stopping: Option<Reply<Vec<Queue>>>,
    /// The number of queues that are being drained.
    draining: usize,
}

impl Run {
    pub(crate) fn new(
        options: &WorkerOptions,
        mailbox: Arc<Mailbox>,
        counters: Arc<WorkerCounters>,
        routes: Arc<Routes>,
    ) -> Result<Self, WorkerError> {
        let cannot = |what, source: io::Error| WorkerError::Cannot { what, source };
        if !options.cpus.is_empty() {
            pin_thread(&options.cpus).map_err(|source| cannot("it may not run on these CPUs", source))?;
        }
        // Without this naps last up to 50 microseconds longer.
        if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
            tracing::debug!("Naps may last too long: {error}");
        }
        // Before the threads that do its I/O are started.
        let scheduling = Scheduling::of_this_thread()
            .inspect_err(|error| {
                tracing::debug!("An I/O worker may get its CPU late after a wake-up: {error}")
            })
            .ok();
        let no_events = |error: rustix::io::Errno| cannot("no epoll instance", error.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(no_events)?;
        let uring = match options.without_uring {
            true => Uring::without_ring(),
            false => Uring::new(),
        };
        let uring = uring.map_err(|source| cannot("no threads that wait for disks", source))?;
        let signals = Signals::new()?;
        let add =
            |file, data| epoll::add(&epoll, file, epoll::EventData::new_u64(data), epoll::EventFlags::IN);
        add(mailbox.wake(), COMMANDS).map_err(no_events)?;
        add(uring.file(), COMPLETIONS).map_err(no_events)?;
        Ok(Self {
            mailbox,
            counters,
            routes,
            polling: options.polling,
            epoll,
            uring,
            signals,
            entries: Vec::new(),
            indexes: HashMap::new(),
            first: 0,
            backoff: Backoff::default(),
            rests: Rests::default(),
            scheduling,
            kicks_checked: 0,
            looked: 0,
            touched: Vec::new(),
            recent: Recent::default(),
            stopping: None,
            draining: 0,
        })
    }

    pub(super) fn until_stopped(&mut self) {
        self.counters.awake_ticks.start(ticks());
        loop {
            let mut now = now_ns();
            if self.uring.in_flight > 0 && self.rests.are_due(now, self.uring.needs_threads()) {
                self.rest(now);
                now = now_ns();
            }
            // Notice a kick in time, however busy the other queues are. This must come before commands are taken,
            // because it clears their eventfd.
            if now.saturating_sub(self.kicks_checked) >= KICK_CHECK_NS
                && self.entries.iter().any(|entry| !entry.polling_now)
            {
                self.wait(Some(0));
            }
            for command in self.mailbox.take() {
                self.execute(command);
            }
            // The driver must have been called before its queue is given back.
            if self.draining > 0 && self.signals.flush(now) {
                self.hand_back_drained();
            }
            let goes_on = |entry: &QueueEntry| entry.waiting || entry.draining.is_some();
            let is_ending = self.stopping.is_some() && !self.entries.iter().any(goes_on);
            if is_ending && self.uring.in_flight == 0 && self.signals.flush(now) {
                break;
            }
            let now = now_ns();
            let (found, is_told) = self.round(now);
            if let Some(scheduling) = self.scheduling.as_mut().filter(|scheduling| scheduling.is_due(now)) {
                let has_work = |entry: &&QueueEntry| now.saturating_sub(entry.last_found) < COUNTED_NS;
                let threads_of = |entry: &QueueEntry| {
                    let device = Arc::as_ptr(&entry.queue.state().eventfds);
                    let saved = entry.queue.handler.needs_no_thread();
                    std::iter::once((device, false)).chain(saved.then_some((device, true)))
                };
                scheduling.set_weight(now, self.entries.iter().filter(has_work).flat_map(threads_of));
            }
            // Requests with further steps are resumed at once.
            let goes_on = |entry: &QueueEntry| {
                let is_free = entry.draining.is_some() && entry.queue.in_flight() == 0;
                entry.waiting || is_free
            };
            let is_waiting = !is_told || self.entries.iter().any(goes_on);
            if found > 0 {
                self.backoff.found(found, now, self.polling, thread_cpu_ns);
            }
            // Between naps, one look is enough if each queue's turn has taken all that it had.
            let is_served = self.backoff.naps() && !self.entries.iter().any(QueueEntry::has_more);
            if is_waiting || found > 0 && !is_served {
                continue;
            }
            match self.backoff.idle(self.polling, now) {
                Idle::Poll if self.entries.iter().any(|entry| entry.polling_now) => {
                    self.signals.idle(now);
                    // The kernel completes some requests only when the thread enters it.
                    match self.uring.in_flight {
                        0 => std::hint::spin_loop(),
                        _ => self.wait(Some(0)),
                    }
                }
                Idle::Nap(ns) if self.entries.iter().any(|entry| entry.polling_now) => {
                    self.counters.naps.add(1);
                    self.nap(self.until_unthrottled(Some(ns), now).unwrap_or(ns));
                    self.rests.slept(now_ns());
                }
                _ => {
                    let began = ticks();
                    match self.stop_polling_all(now, began) {
                        NextLook::Kicked => self.sleep(self.until_unthrottled(None, now), began),
                        NextLook::Later => {
                            let nap = self.polling.longest_nap_ns();
                            self.sleep(self.until_unthrottled(Some(nap), now), began);
                        }
                        NextLook::Now => self.wait(Some(0)),
                    }
                }
            }
        }
        let left = ticks();
        self.counters.awake_ticks.stop(left);
        if let Some(reply) = self.stopping.take() {
            let queues = self.entries.drain(..).map(|entry| entry.leave(left)).collect();
            let _ = reply.send(queues);
        }
    }

    /// Sleeps until something completes, but not for long: see [`Rests`].
    fn rest(&mut self, now: u64) {
        let was_useful = self.nap(REST_NS);
        self.rests.rested(now, now_ns(), was_useful);
    }

    /// Sleeps until an event, or until the timeout in nanoseconds. `began` is now, in ticks.
    fn sleep(&mut self, timeout: Option<u64>, began: u64) {
        self.counters.sleeps.add(1);
        self.counters.awake_ticks.stop(began);
        self.counters.slept_ticks.start(began);
        self.queues_nap(began);
        let before = now_ns();
        self.wait(timeout);
        let now = now_ns();
        self.backoff.slept(now.saturating_sub(before));
        self.rests.slept(now);
        let ended = ticks();
        self.counters.slept_ticks.stop(ended);
        self.counters.awake_ticks.start(ended);
        self.queues_napped(ended);
    }

    /// Counts the sleep that begins at these ticks for those queues whose driver does not know of it: kicks are disabled.
    fn queues_nap(&self, began: u64) {
        for entry in self.entries.iter().filter(|entry| entry.polling_now) {
            entry.queue.state().counters.napped_ticks.start(began);
        }
    }

    /// Ends what [`Self::queues_nap`] began.
    fn queues_napped(&self, ended: u64) {
        for entry in &self.entries {
            entry.queue.state().counters.napped_ticks.stop(ended);
        }
    }

    /// Serves all queues and takes all completions. Returns the number of both, and whether the kernel took all
    /// submissions and signals.
    pub(crate) fn round(&mut self, now: u64) -> (u64, bool) {
        let found = self.sweep(now) + self.take_completions();
        (found, self.uring.submit() & self.signals.flush(now))
    }

    /// Serves each queue that may have requests once. Returns the number of requests found.
    fn sweep(&mut self, now: u64) -> u64 {
        self.counters.sweeps.add(1);
        let mut found = 0;
        let always = self.polling == Polling::Always;
        let count = self.entries.len();
        self.first = if self.first + 1 < count { self.first + 1 } else { 0 };
        let looks = now.saturating_sub(self.looked) >= LOOK_NS;
        if looks {
            self.looked = now;
        }
        // A worker that stops takes no new requests.
        let is_ending = self.stopping.is_some();
        for turn in 0..count {
            let index = self.first + turn;
            let index = if index < count { index } else { index - count };
            let entry = &mut self.entries[index];
            let is_idle = !(entry.polling_now || entry.kicked || looks && entry.has_unkicked(now));
            if is_idle || entry.throttled_until > now || entry.draining.is_some() || is_ending {
                if entry.waiting || entry.draining.is_some() {
                    let crowded = self.recent.others(entry.queue.key, now);
                    resume(entry, &mut self.uring, &mut self.signals, crowded);
                }
                continue;
            }
            if entry.is_passed_over(now, always) {
                continue;
            }
            let key = entry.queue.key;
            let crowded = self.recent.others(key, now);
            let requests =
                serve(entry, &mut self.uring, &mut self.signals, &self.counters, now, always, crowded);
            if requests > 0 {
                self.recent.found(key, now);
            }
            // The disk begins while the next queue has its turn. With eight devices on a file past the page cache this
            // gives 7 % more I/O than one submission for the sweep, for the same CPU time per request.
            self.uring.submit();
            found += requests;
        }
        self.uring.submit();
        self.signals.flush(now);
        found
    }

    /// Handles all completions. Returns their number.
    fn take_completions(&mut self) -> u64 {
        let mut found = 0;
        let mut touched = std::mem::take(&mut self.touched);
        while let Some((user_data, result)) = self.uring.next_completion() {
            let (key, token) = completed(user_data);
            found += 1;
            match self.indexes.get(&key) {
                Some(&index) => {
                    self.entries[index].queue.complete(token, result);
                    // Completions of one queue mostly follow each other.
                    if touched.last() != Some(&index) {
                        touched.push(index);
                    }
                }
                None => self.routes.send_on(key, token, result),
            }
        }
        for index in touched.drain(..) {
            self.entries[index].completed(&mut self.signals);
        }
        self.touched = touched;
        found
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Add(queue) => self.add(*queue),
            Command::HandOver { queues, reply } => {
                let _ = reply.send(self.hand_over(queues));
            }
            Command::Take { key, reply } => match self.indexes.get(&key) {
                None => {
                    let _ = reply.send(None);
                }
                Some(&index) => {
                    self.entries[index].draining = Some(reply);
                    self.draining += 1;
                }
            },
            Command::With { key, act } => match self.indexes.get(&key) {
                Some(&index) => {
                    let entry = &mut self.entries[index];
                    act(Some(&mut entry.queue));
                    entry.queue.wake(|file| self.signals.add(file));
                    // The function may have enabled the queue, or changed its polling or its limits.
                    entry.start_polling(ticks());
                    entry.throttled_until = 0;
                }
                None => act(None),
            },
            Command::Completed { key, token, result } => match self.indexes.get(&key) {
                Some(&index) => {
                    let entry = &mut self.entries[index];
                    entry.queue.complete(token, result);
                    entry.completed(&mut self.signals);
                }
                None => self.routes.send_on(key, token, result),
            },
            Command::Polling(polling) => {
                self.polling = polling;
                // The new mode decides anew which queues are polled.
                self.entries.iter_mut().for_each(|entry| entry.start_polling(ticks()));
            }
            Command::Pin { cpus, reply } => {
                let _ = reply.send(pin_thread(&cpus));
            }
            Command::Stop { reply } => self.stopping = Some(reply),
        }
    }

    /// Hands each queue to its next worker directly, without waiting for the others or for the caller.
    fn hand_over(&mut self, queues: Vec<(QueueKey, Arc<Mailbox>)>) -> Vec<QueueKey> {
        let mut missing = Vec::new();
        for (key, to) in queues {
            let index = self.indexes.get(&key).filter(|&&index| self.entries[index].draining.is_none());
            let Some(&index) = index else {
                missing.push(key);
                continue;
            };
            let mut queue = self.remove(index).leave(ticks());
            queue.left = Some(now_ns());
            self.routes.give(queue, &to);
        }
        missing
    }

    pub(crate) fn add(&mut self, queue: Queue) {
        let key = queue.key;
        let events = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let mut is_deaf = false;
        for (file, flag) in [(queue.kick(), 0), (queue.handler.source(), SOURCE)] {
            let Some(file) = file else { continue };
            let data = epoll::EventData::new_u64(key.0 | flag);
            if let Err(error) = epoll::add(&self.epoll, file, data, events) {
                let log = &queue.state().log;
                log.warn(|| format!("Cannot wait for kicks of queue {}, and polls it: {error}", key.0));
                is_deaf = true;
            }
        }
        self.indexes.insert(key, self.entries.len());
        let now = now_ns();
        let mut entry = QueueEntry::new(queue, now, ticks());
        entry.is_deaf = is_deaf;
        if let Some(left) = entry.queue.left.take() {
            entry.queue.state().moves.add(now.saturating_sub(left));
        }
        entry.queue.virtqueue.disable_kicks();
        entry.queue.virtqueue.publish();
        entry.queue.wake(|file| self.signals.add(file));
        self.entries.push(entry);
        self.counters.queues.set(self.entries.len() as u64);
    }

    fn remove(&mut self, index: usize) -> QueueEntry {
        let entry = self.entries.swap_remove(index);
        self.indexes.remove(&entry.queue.key);
        if let Some(moved) = self.entries.get(index) {
            self.indexes.insert(moved.queue.key, index);
        }
        for file in [entry.queue.kick(), entry.queue.handler.source()].into_iter().flatten() {
            if let Err(error) = epoll::delete(&self.epoll, file) {
                tracing::debug!("Cannot stop waiting for kicks of queue {}: {error}", entry.queue.key.0);
            }
        }
        self.counters.queues.set(self.entries.len() as u64);
        entry
    }

    fn hand_back_drained(&mut self) {
        let is_ready = |entry: &QueueEntry| entry.draining.is_some() && entry.queue.is_drained();
        while let Some(index) = self.entries.iter().position(is_ready) {
            let mut entry = self.remove(index);
            if let Some(reply) = entry.draining.take() {
                self.draining -= 1;
                let _ = reply.send(Some(entry.leave(ticks())));
            }
        }
    }

    /// Enables kicks of all queues. Returns the time of the next look at one of them; those that a limit holds back do not
    /// count.
    fn stop_polling_all(&mut self, now: u64, ticks: u64) -> NextLook {
        let always = self.polling == Polling::Always;
        let free = self.entries.iter_mut().filter(|entry| entry.throttled_until <= now);
        free.map(|entry| entry.stop_polling(always, ticks)).max().unwrap_or(NextLook::Kicked)
    }

    /// Shortens a timeout to the time at which a limit releases a queue.
    fn until_unthrottled(&self, timeout: Option<u64>, now: u64) -> Option<u64> {
        let held = self.entries.iter().map(|entry| entry.throttled_until).filter(|until| *until > now).min();
        match (timeout, held) {
            (Some(ns), Some(until)) => Some(ns.min(until - now)),
            (None, Some(until)) => Some(until - now),
            (timeout, None) => timeout,
        }
    }

    /// Sleeps for this many nanoseconds, or until a completion or a command; returns `true` in the latter cases. A kick
    /// does not end it: it is seen afterwards, with all others.
    fn nap(&mut self, ns: u64) -> bool {
        let began = ticks();
        self.counters.awake_ticks.stop(began);
        self.counters.napped_ticks.start(began);
        self.queues_nap(began);
        let files = [self.uring.file(), self.mailbox.wake()];
        let mut files = files.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN));
        let before = now_ns();
        let outcome = poll(&mut files, Some(&timespec(ns)));
        self.backoff.slept(now_ns().saturating_sub(before));
        self.signals.slept();
        if outcome == Err(Errno::INTR) {
            self.signals.interrupted();
        }
        let is_over = outcome == Ok(0);
        let ended = ticks();
        self.counters.napped_ticks.stop(ended);
        self.counters.awake_ticks.start(ended);
        self.queues_napped(ended);
        match is_over {
            // The next look at the queues checks for kicks, too.
            true => self.kicks_checked = 0,
            false => self.wait(Some(0)),
        }
        outcome.is_ok_and(|ready| ready > 0)
    }

    fn wait(&mut self, timeout: Option<u64>) {
        if timeout != Some(0) {
            self.signals.slept();
        }
        // `epoll_wait` has a resolution of milliseconds only.
        if let Some(timeout) = timeout.filter(|ns| *ns > 0) {
            match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&timespec(timeout))) {
                Ok(0) => return,
                Err(Errno::INTR) => return self.signals.interrupted(),
                _ => {}
            }
        }
        let timeout = timeout.map(|_| rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 });
        let mut events = [const { std::mem::MaybeUninit::uninit() }; EVENTS];
        let (events, _) = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok(events) => events,
            Err(Errno::INTR) => return self.signals.interrupted(),
            Err(error) => {
                tracing::warn!("An I/O worker cannot wait for events: {error}");
                return;
            }
        };
        let now = now_ns();
        self.kicks_checked = now;
        for event in &*events {
            match event.data.u64() {
                COMMANDS => {
                    let _ = rustix::io::read(self.mailbox.wake(), &mut [0; 8]);
                }
                COMPLETIONS => self.uring.clear(),
                event => {
                    let Some(&index) = self.indexes.get(&QueueKey(event & !SOURCE)) else { continue };
                    let entry = &mut self.entries[index];
                    entry.kicked = true;
                    entry.last_polled = now;
                    if event & SOURCE == 0 {
                        entry.queue.state().counters.kicks.add(1);
                    }
                }
            }
        }
    }
}

pub(super) const fn timespec(ns: u64) -> rustix::event::Timespec {
    rustix::event::Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
